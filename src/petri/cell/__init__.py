"""What a cell's own processes are before and around the command. Imports nothing of ours.

`gate.c` is what the launcher starts and what becomes bubblewrap; `init.c` is the first process inside. Both
are built by `engine.rootfs`, with `kernel.h` in place of a libc. `tools/` asks the server for
packages; `building.py` makes a wheel of a source distribution.
"""
