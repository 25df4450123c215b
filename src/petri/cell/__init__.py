"""What runs inside a cell. Imports nothing of ours; `init.c` is built by `engine.rootfs`."""
