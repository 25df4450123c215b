"""One pack: a file that only grows until it is sealed, and never changes after."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from petri.errors import Unavailable
from petri.store.disk import read_at, sync_folder, write_at
from petri.store.layout import PACK_MAGIC, Body, sealed
from petri.store.manifest import Dead


class Pack:
    """A pack on disk. Its numbers are guarded by the shelf it stands on; `sync` by the pack itself."""

    def __init__(self, folder: Path, number: int, end: int) -> None:
        self.number = number
        self.path = folder / f"{number:08}.pack"
        self.end = end
        """How many bytes of it count."""
        self.dead = Dead()
        """Copies of objects in it that are no longer used."""
        self.pins = 0
        """Batches that sessions have written here and not yet committed. What is in them is in no table."""
        self.users = 0
        """Who is reading or writing right now."""
        self._descriptor = -1
        self.is_spoilt = False
        """Nothing more may be written here: the disk has failed it."""
        self._synced = 0
        self._syncing = threading.Lock()

    @staticmethod
    def create(folder: Path, number: int) -> "Pack":
        """Make an empty pack whose name is on the disk."""
        pack = Pack(folder, number, len(PACK_MAGIC))
        pack._descriptor = os.open(pack.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_at(pack._descriptor, PACK_MAGIC, 0)
            sync_folder(folder)
        except OSError:
            pack.close()
            with suppress(OSError):
                pack.path.unlink()
            raise
        return pack

    @property
    def is_open(self) -> bool:
        """Say if it holds a descriptor."""
        return self._descriptor >= 0

    def open(self) -> int:
        """Return a descriptor for it, the same until `close`."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDWR)
        return self._descriptor

    def close(self) -> None:
        """Give the descriptor back. Closing twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def unlink(self) -> None:
        """Have no such pack. Whoever has it open can read on."""
        index_path(self.path).unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def append(self, body: Body) -> "Span":
        """Write a batch behind the last. One at a time, says the shelf.

        If the disk refuses, the pack is as it was.
        """
        at = self.end
        batch = sealed(body, self._synced)
        try:
            write_at(self.open(), batch, at)
        except OSError:
            self.cut(at)
            raise
        self.end = at + len(batch)
        return Span(self, at, self.end)

    def cut(self, end: int) -> None:
        """Have nothing behind `end`. One at a time with `append`, says the shelf."""
        with self._syncing:  # else a sync that is under way would vouch for what comes there next
            self.end = end
            self._synced = min(self._synced, end)
            try:
                os.ftruncate(self.open(), end)
            except OSError:
                self.is_spoilt = True

    def sync(self, end: int) -> None:
        """Have all up to `end` on the disk. Whoever waits here for another's sync is often done with it."""
        with self._syncing:
            if self.is_spoilt and self._synced < end:
                raise Unavailable("the disk has lost what was written to the store just now; try again")
            if self._synced < end:
                reached = self.end
                try:
                    os.fdatasync(self.open())
                except OSError:
                    # The kernel reports a lost write once and then calls the page clean: never ask again.
                    self.is_spoilt = True
                    raise
                self._synced = reached

    def read(self, length: int, offset: int) -> bytes:
        """Return `length` bytes from `offset` on; fewer if the file has been damaged."""
        return read_at(self.open(), length, offset)


class Span(NamedTuple):
    """Where a batch is."""

    pack: Pack
    at: int
    end: int


def index_path(pack: Path) -> Path:
    """Return where the index of a pack is."""
    return pack.with_suffix(".index")
