"""A folder of this machine, kept in step with a sandbox: looked through, remembered, exchanged, written."""
