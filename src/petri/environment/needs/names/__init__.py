"""Names: which package an import, a requirement or a command means, by tables and never by guessing."""
