"""Who stays behind a launcher: should that one be killed, this one ends what it left.

A launcher that is killed ends nothing any more, and bubblewrap's `--die-with-parent` has a gap. The first
process of a cell waits for the outer bubblewrap to say that it may go on, and is told to die with it only
later: if the outer one is killed in between, the inner one waits for ever, or goes on alone to a command
that was let start already. Nobody would ever look at it; without a cgroup the next launcher cannot.

So the launcher has a parent that does nothing but wait. As a subreaper it inherits whatever the launcher
leaves, at the moment the launcher is gone, and then kills until it has no child any more.
"""

import ctypes
import os
import signal
import time

from petri.launcher import processes

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
_NAME = b"petri-keeper"
_TAKEN = frozenset({signal.SIGUSR1, signal.SIGCHLD})
_LOOK_AGAIN_S = 0.002


def leave_behind(line: int, within_s: float) -> None:
    """Go on in a child; this process stays behind it until nothing the child had is left, and never returns.

    It has all the child has, a lock above all, but for `line`: who waits there for the child's end must see
    it.
    On SIGUSR1 it ends the child, which must die with it.
    """
    keeper = os.getpid()
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:  # it was killed before we could be told to die with it
            os._exit(1)
        return
    # Blocked, and taken one by one: a handler could be called within itself, again and again.
    signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)
    prctl(_PR_SET_NAME, _NAME, 0, 0, 0)  # from now on: who knows it by that name may tell it
    os.close(line)
    signal.set_wakeup_fd(-1)
    status = _see_ended(child)
    _end_children(time.monotonic() + within_s)
    os._exit(abs(os.waitstatus_to_exitcode(status)))


def _see_ended(child: int) -> int:
    """Wait for a child, and end it should SIGUSR1 say so; return how it ended."""
    while not (waited := os.waitpid(child, os.WNOHANG))[0]:
        if signal.sigwait(_TAKEN) == signal.SIGUSR1:
            processes.sigkill(child)  # nobody else has its pid before it was waited for
    return waited[1]


def _end_children(deadline: float) -> None:
    """Kill until there is no child; whoever is left behind by one of them becomes one in turn."""
    while time.monotonic() < deadline:
        for pid in processes.children():
            processes.sigkill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_LOOK_AGAIN_S)
