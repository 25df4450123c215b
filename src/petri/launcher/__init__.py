"""The launcher: a small process of its own that owns every cell, and dies with the server.

Imported by: `engine.process`, for `protocol.py` alone; it starts the rest with a bare interpreter.
Imports: the standard library only.

Why a process and not a module of the server:

- it waits for its children by the kernel's own means, with no event loop and no threads in between;
- it has a mount namespace of its own, in which the workspaces can be reached by any uid even when they lie
  under `/root`; nothing of that is ever visible on the host;
- `--die-with-parent` follows the thread that forked: here that is the only thread there is;
- when the server is killed, the socket closes, and the launcher ends every cell before it goes itself.

`protocol.py` is how the two talk, `cgroups.py` the limits, `hierarchy.py` what is asked of either version,
`sweeping.py` the end of what a crash left there, `view.py` the mount namespace, `networks.py` the networks
and `terminals.py` what is lent with them, `namespaces.py` how both are made, `cells.py` the life of one cell,
`main.py` the loop, `keeper.py` who ends what a launcher leaves that was killed itself.
"""
