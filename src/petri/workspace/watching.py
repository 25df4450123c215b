"""Who watches a workspace knows which folders changed, and need not look through the others.

One inotify for all workspaces, a watch on each of their folders. The kernel queues an event in the same
call that makes the change, so once a cell is dead everything it did is in the queue. What is not: bytes
written through a descriptor that is still open, which is why this is asked only when nothing runs.

A write is told to the folder it was made through. A second name for a file, made, written through and taken
away again before anybody looked, would leave the folder of the first none the wiser. So a name that came and
went unseen is reason enough to look everywhere.

A queue that ran over, folders too many to watch, a host that allows no watches: then the answer is "anything
may have changed", and the whole workspace is looked through.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

from petri.workspace.beneath import beneath

_libc = ctypes.CDLL(None, use_errno=True)

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_ONLYDIR, _ISDIR = 0x0100_0000, 0x4000_0000
_MASK = _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _MODIFY | _ONLYDIR
_HEAD = struct.Struct("iIII")
_READ_BYTES = 1 << 18
_LOST = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES)
MOST_FOLDERS = 50_000
"""Watched in all; each costs the kernel about a kilobyte."""


class Watches:
    """The folders that are watched, of every workspace. Used from one thread."""

    def __init__(self) -> None:
        self._fd = -1
        """Opened with the first watch. Negative on a host that allows none: then nothing is ever watched."""
        self._by_watch: dict[int, tuple[str, bytes]] = {}
        self._by_folder: dict[str, dict[bytes, int]] = {}
        self._dirty: dict[str, set[bytes]] = {}
        self._came: dict[str, set[tuple[bytes, bytes]]] = {}
        """Names that are new since somebody asked, by folder."""
        self._unsure: set[str] = set()
        self._moved: dict[str, set[bytes]] = {}
        """Folders that are elsewhere by now, while events are gone through."""

    def close(self) -> None:
        """Watch nothing any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._by_watch, self._by_folder, self._dirty, self._came = {}, {}, {}, {}

    def is_watching(self, sandbox_id: str) -> bool:
        """Say whether a whole workspace is watched."""
        return sandbox_id in self._by_folder

    def watch(self, sandbox_id: str, top: int, folders: Iterable[bytes]) -> set[bytes]:
        """Watch the folders of a workspace, all of them, or none if one cannot be.

        Returns those that were not watched before: what happened there until now, nobody saw.
        """
        fresh: set[bytes] = set()
        if self._fd < 0:
            self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            return fresh
        watched = self._by_folder.setdefault(sandbox_id, {})
        self._dirty.setdefault(sandbox_id, set())
        for folder in folders:
            if folder not in watched:
                fresh.add(folder)
                if not self._add(sandbox_id, top, folder):
                    self.forget(sandbox_id)
                    return set()
        return fresh

    def forget(self, sandbox_id: str) -> None:
        """Stop watching a workspace."""
        for watch in self._by_folder.pop(sandbox_id, {}).values():
            self._by_watch.pop(watch, None)
            _libc.inotify_rm_watch(self._fd, watch)
        for told in (self._dirty, self._came):
            told.pop(sandbox_id, None)
        self._unsure.discard(sandbox_id)

    def dirty(self, sandbox_id: str) -> set[bytes] | None:
        """Return the folders that changed since this was last asked; None: anything may have."""
        self._drain()
        if sandbox_id not in self._by_folder:
            return None
        dirty, self._dirty[sandbox_id] = self._dirty[sandbox_id], set()
        self._came.pop(sandbox_id, None)
        if sandbox_id in self._unsure:
            self._unsure.discard(sandbox_id)
            return None
        return dirty

    def _add(self, sandbox_id: str, top: int, folder: bytes) -> bool:
        if len(self._by_watch) >= MOST_FOLDERS:
            return False
        try:
            with beneath(top, os.fsdecode(folder), os.O_PATH | os.O_DIRECTORY, follow=False) as fd:
                watch = _libc.inotify_add_watch(self._fd, b"/proc/self/fd/%d" % fd, _MASK)
        except OSError as error:
            if error.errno in _LOST:  # gone already: its parent's event says so
                return True
            raise
        if watch < 0:
            return False
        self._by_watch[watch] = (sandbox_id, folder)
        self._by_folder[sandbox_id][folder] = watch
        return True

    def _drain(self) -> None:
        while self._fd >= 0:
            try:
                events = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return
            position = 0
            while position < len(events):
                watch, mask, _, length = _HEAD.unpack_from(events, position)
                position += _HEAD.size
                name = events[position : position + length].rstrip(b"\0")
                position += length
                self._take(watch, mask, name)
            self._unwatch_moved()

    def _take(self, watch: int, mask: int, name: bytes) -> None:
        if mask & _OVERFLOW:
            for sandbox_id in list(self._by_folder):
                self.forget(sandbox_id)
            return
        where = self._by_watch.get(watch)
        if where is None:
            return
        sandbox_id, folder = where
        self._dirty[sandbox_id].add(folder)
        self._note_name(sandbox_id, (folder, name), mask)
        if mask & _IGNORED:  # the folder is gone, and its watch with it
            self._by_watch.pop(watch, None)
            self._by_folder[sandbox_id].pop(folder, None)
        elif mask & _MOVED_FROM and mask & _ISDIR:
            self._moved.setdefault(sandbox_id, set()).add(folder + b"/" + name if folder else name)

    def _note_name(self, sandbox_id: str, name: tuple[bytes, bytes], mask: int) -> None:
        came = self._came.setdefault(sandbox_id, set())
        if mask & (_DELETE | _MOVED_TO) and name in came:
            self._unsure.add(sandbox_id)
        if mask & (_CREATE | _MOVED_TO):
            came.add(name)

    def _unwatch_moved(self) -> None:
        """Forget folders that moved, with all below: a watch goes along, but would tell the old path.

        All at once: a program can move thousands in a moment, and may have tens of thousands.
        """
        for sandbox_id, moved in self._moved.items():
            watched = self._by_folder.get(sandbox_id, {})
            for folder in [each for each in watched if _is_within(each, moved)]:
                watch = watched.pop(folder)
                self._by_watch.pop(watch, None)
                _libc.inotify_rm_watch(self._fd, watch)
        self._moved.clear()


def _is_within(folder: bytes, moved: set[bytes]) -> bool:
    """Say whether a folder is one of `moved`, or lies below one."""
    while folder:
        if folder in moved:
            return True
        folder = folder.rpartition(b"/")[0]
    return False
