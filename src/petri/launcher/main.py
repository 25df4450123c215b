"""The launcher's loop: orders in, endings out, and an end to everything when the server is gone."""

import ctypes
import fcntl
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

from petri.launcher import cgroups, keeper, protocol, view
from petri.launcher.cells import Cells
from petri.launcher.networks import Networks
from petri.launcher.terminals import Terminals

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_LOOK_AGAIN_MS = 2
"""A killed process is gone within a millisecond or two; nothing tells us, so we look."""
_CLEAR_MS = 1000
"""How often is tried to remove a group that could not be."""
_LAST_WORDS_S = 10
_STUCK_S = 3
"""How long a launcher that was killed may hold on to its lock."""
_LOW_NUMBERS = 32
_PID_WIDTH = 12
_NAME = "petri-launcher"


def main() -> None:
    """Serve the socket whose number is the last argument until the server closes it."""
    channel = socket.socket(fileno=int(sys.argv[-1]))
    wake = _prepare_process()
    first = protocol.receive(channel)
    if first is None:
        return
    settings, _ = first
    lock = _await_predecessor(settings["memory"] + ".lock")
    keeper.leave_behind(channel.fileno(), _LAST_WORDS_S)
    _take_up(lock)
    try:
        cells, hierarchy, hello = _prepare(settings)
    except OSError as error:  # what went wrong, and not where: `/health` tells it to anybody
        protocol.send(channel, {"says": "unable", "why": error.strerror or "no reason was given"})
        return
    try:
        protocol.send(channel, hello)
        _serve(channel, wake, cells)
    except ConnectionError:
        pass  # the server went while we spoke to it, or it to us
    finally:
        _end(cells)
        for base in hierarchy.bases() if hierarchy else ():
            cgroups.sweep(base)


def _prepare_process() -> int:
    _keep_low_numbers_free()
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    # A terminal's Ctrl-C, or a service manager's SIGTERM to the whole group, is for the server to handle.
    # Handlers that do nothing, and not SIG_IGN: a program that is started inherits what is ignored.
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # Python ignores two more, and whoever started the server may have ignored others. Cells have all of them
    # back but SIGXFSZ, so that whoever writes too large a file is told so and not killed.
    for number in signal.valid_signals() - {signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    os.chdir("/")
    gc.disable()  # nothing here makes rubbish in circles, and a collection would copy pages after a fork
    return reading


def _keep_low_numbers_free() -> None:
    """Hold the numbers a cell's descriptors will have, so that whatever we receive lies above them."""
    while os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) < _LOW_NUMBERS:
        pass


def _await_predecessor(path: str) -> int:
    """Wait until the launcher of an earlier life has ended its cells; the lock is ours until we end too.

    It is held with the keeper: a successor waits for that one as well.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _locked(lock, _LAST_WORDS_S):
        _end_stuck(int(os.pread(lock, _PID_WIDTH, 0) or 0))
        if not _locked(lock, _STUCK_S):
            sys.exit(f"{_NAME}: another one holds {path} and cannot be ended; it may still have cells")
    return lock


def _take_up(lock: int) -> None:
    """Be the launcher, by name and in the lock."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, _NAME.encode(), 0, 0, 0)
    # Orphans of a bubblewrap that died early come to us, so that we can see them die.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.pwrite(lock, str(os.getpid()).ljust(_PID_WIDTH).encode(), 0)


def _locked(lock: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_AGAIN_MS / 1000)
        else:
            return True
    return False


def _end_stuck(pid: int) -> None:
    """End a launcher that neither works nor goes; the name is asked, since pids are used again."""
    try:
        with open(f"/proc/{pid}/comm") as name:
            if name.read().strip() == _NAME:
                os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        pass


def _prepare(settings: dict[str, Any]) -> tuple[Cells, cgroups.Hierarchy | None, dict[str, Any]]:
    _sweep(settings["memory"])
    hierarchy, missing, groups = None, None, None
    try:
        hierarchy = cgroups.find(settings["tag"])
        groups = hierarchy.folders()
        _remember(settings["memory"], hierarchy.bases())
        hierarchy.bound(**settings["total"])
        hierarchy.hold()
    except (cgroups.Unusable, OSError) as error:
        hierarchy, missing, groups = None, str(error), None
    place = view.arrange(settings["folders"]) if settings["private_view"] else None
    devices = view.make_devices(place) if place else None
    terminals = Terminals(f"{devices}/pts") if devices else None
    networks = _networks(terminals) if place and settings["lends_networks"] else None
    gate = f"{place}/rootfs/gate" if place else f"{settings['folders']['rootfs']}/gate"
    hello = {
        "says": "ready",
        "cgroups": hierarchy.version if hierarchy else None,
        "groups": groups,
        "missing": missing,
        "view": place,
        "devices": devices,
        "networks": networks is not None,
    }
    return Cells(gate, hierarchy, networks, terminals), hierarchy, hello


def _networks(terminals: Terminals | None) -> Networks | None:
    """Return who makes the networks of cells; None if this root may make none."""
    try:
        networks = Networks(terminals)
        networks.take("trial").close()
    except OSError:
        return None
    return networks


def _serve(channel: socket.socket, wake: int, cells: Cells) -> None:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        calm_ms = _calm_ms(cells)
        for descriptor, _ in poll.poll(_LOOK_AGAIN_MS if cells.waiting() else calm_ms):
            if descriptor == wake:
                os.read(wake, 4096)
            elif not _obey(channel, cells):
                return
        cells.reap()
        for ending in cells.finished():
            protocol.send(channel, ending)


def _calm_ms(cells: Cells) -> float | None:
    """Do what has no hurry; return when there is more of it, if there is."""
    idle_s = cells.drop_idle_networks()
    if not cells.clear():
        return _CLEAR_MS
    return None if idle_s is None else idle_s * 1000 + 1


def _obey(channel: socket.socket, cells: Cells) -> bool:
    """Carry out one order; False when the server is gone."""
    try:
        received = protocol.receive(channel)
    except protocol.Torn as torn:
        protocol.send(channel, {"says": "failed", "id": torn.message.get("id"), "why": str(torn)})
        return True
    if received is None:
        return False
    order, descriptors = received
    try:
        if said := _carry_out(order, descriptors, cells):
            protocol.send(channel, said)
    except ConnectionError:
        raise  # nobody is there to be told
    except OSError as error:
        protocol.send(channel, {"says": "failed", "id": order["id"], "why": str(error)})
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def _carry_out(order: dict[str, Any], descriptors: tuple[int, ...], cells: Cells) -> dict[str, Any] | None:
    """Do what an order says; return what is to be answered at once, if anything is."""
    if order["do"] == "ask":
        return {"says": "alive", "id": None}
    if order["do"] == "kill":
        cells.kill(order["id"])
    elif order["do"] == "age":
        cells.age(order["id"])
    elif order["do"] == "hurry":
        cells.hurry(order["id"])
    else:
        cells.spawn(order, descriptors)
    return None


def _end(cells: Cells) -> None:
    deadline = time.monotonic() + _LAST_WORDS_S
    cells.kill_all()
    while len(cells) and time.monotonic() < deadline:
        cells.reap()
        for _ in cells.finished():
            pass  # nobody is there to be told
        time.sleep(_LOOK_AGAIN_MS / 1000)


def _sweep(memory: str) -> None:
    for base in _remembered(memory):
        cgroups.sweep(base)


def _remember(path: str, bases: list[str]) -> None:
    """Write down where our groups are: the next life may be started from another cgroup."""
    with open(path, "w") as file:
        file.write("\n".join(bases))


def _remembered(path: str) -> list[str]:
    try:
        with open(path) as file:
            return [line for line in file.read().splitlines() if "/petri-" in line]
    except FileNotFoundError:
        return []
