"""What is run by hand: set-up, locks, generated files, tables."""
