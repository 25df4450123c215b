"""Store: the content of trees on this host's disk, a tenant's apart from any other's.

An object is a blob or a folder object, named by its BLAKE3, written once and never changed. Each tenant has
packs of its own, and nothing is shared or told across tenants: a digest is no way to a stranger's file.

    with store.write("acme") as writing:           # a session
        digest = writing.put_file(descriptor, size)
        tree = writing.put_folder(encode({b"main.py": File(digest, size, 6)}))
        writing.commit()                           # on the disk, and visible, from here on
    entries = store.get_folder("acme", tree)
    for part in store.open_blob("acme", digest): ...

What is committed survives a crash and a power cut; what is not is garbage that no one sees. Whatever `has`
says is there, whatever a session put or found, and all that it refers to, stays for the grace period of
`gc`, in which whoever asked writes down the tree that needs it. Being a folder object here does not mean that
what is in the folder is: put children first, or commit them together, and only too large files are missing.

Everything here is synchronous, meant for threads, and safe to use from many. One process at a time.

    layout.py, packs.py            packs: batches of objects, one behind the other
    table.py, contents.py          where each object is, in memory and beside the packs
    loading.py, manifest.py        what there is at a start, after a crash too
    shelf.py                       one tenant's objects, and who is using which
    writing.py, reading.py         objects in and out
    cutting.py, packing.py         in pieces, compressed
    sweep.py, check.py             garbage collection, and whether all is as it should be
    disk.py                        fsync and friends

Imported by: `operations`, `app`. Imports: `petri.trees`, `petri.errors`.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from petri.errors import Unavailable
from petri.store.check import Finding, check, places
from petri.store.disk import make_folder, on_disk
from petri.store.layout import LIST, Piece, pieces_of
from petri.store.packing import unpack
from petri.store.reading import Opened, Run, parts, size, verified, whole
from petri.store.shelf import Shelf
from petri.store.sweep import NOTHING_SPARE, Spare, Swept, missing, sweep
from petri.store.writing import Writing, checked
from petri.trees import EMPTY, Entry, Fetch, address, decode

__all__ = ["Opened", "Run", "Spare", "Store", "Swept", "Usage", "Writing"]

_PACK_BYTES = 256 << 20


class Usage(NamedTuple):
    """What a tenant's objects take."""

    objects: int
    """Pieces of large ones count by themselves."""
    stored_bytes: int
    """On the disk, with what is no longer used and not yet freed."""


class _Tenant:
    """A tenant's shelf, once somebody wants it, and how many are using it."""

    def __init__(self) -> None:
        self.users = 0
        self.idle_since = 0.0
        self.shelf: Shelf | None = None
        self.loading = threading.Lock()


class Store:
    """Every tenant's objects under one root."""

    def __init__(
        self, root: Path, *, clock: Callable[[], float] | None = None, pack_bytes: int = _PACK_BYTES
    ) -> None:
        """Take the store in `root`; `Unavailable` if another process has it.

        `clock` tells the seconds since 1970, and does not jump.
        """
        began = time.time() - time.monotonic()
        self._root = root
        self._clock = clock or (lambda: began + time.monotonic())
        self._pack_bytes = pack_bytes
        self._tenants: dict[str, _Tenant] = {}
        self._guard = threading.Lock()
        with on_disk():
            make_folder(root)
            self._lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise Unavailable(f"another process uses the store in {root}; end it first") from None

    def close(self) -> None:
        """Let another process have it. Nobody may be using it; closing twice is fine."""
        with self._guard:
            for tenant in self._tenants.values():
                if tenant.shelf is not None:
                    tenant.shelf.close()
            self._tenants.clear()
            if self._lock >= 0:
                os.close(self._lock)
            self._lock = -1

    def release(self, idle_s: float) -> None:
        """Forget where the objects of tenants are that nobody asked for in `idle_s`: they are found again.

        To be longer than the grace period of `gc`, since who counts on what is forgotten too.
        """
        with self._guard:
            long_ago = time.monotonic() - idle_s
            for name, tenant in list(self._tenants.items()):
                if not tenant.users and tenant.idle_since <= long_ago:
                    del self._tenants[name]
                    if tenant.shelf is not None:
                        tenant.shelf.close()

    @contextmanager
    def write(self, tenant: str) -> Iterator[Writing]:
        """Begin a session that puts objects into the tenant's store."""
        with self._shelf(tenant) as shelf, Writing(shelf) as writing:
            yield writing

    def has(self, tenant: str, digests: Iterable[bytes]) -> set[bytes]:
        """Return which of these objects the tenant has; they stay for the grace period of `gc`."""
        digests = [checked(digest) for digest in digests]
        with self._shelf(tenant) as shelf:
            return shelf.has(digests)

    def size(self, tenant: str, digest: bytes) -> int:
        """Return how many bytes an object has."""
        with self._shelf(tenant) as shelf:
            return size(shelf, checked(digest))

    def get(self, tenant: str, digest: bytes) -> bytes:
        """Return a whole object, verified. For folder objects; a blob may be larger than memory."""
        with self._shelf(tenant) as shelf:
            return whole(shelf, checked(digest))

    def get_folder(self, tenant: str, wanted: bytes) -> dict[bytes, Entry]:
        """Return the folder object at an address, verified; the empty one is always there."""
        return {} if wanted == EMPTY else decode(self.get(tenant, wanted))

    def fetch(self, tenant: str) -> Fetch:
        """Return `get_folder` for one tenant, as `petri.trees` wants it."""
        return partial(self.get_folder, tenant)

    def open_blob(self, tenant: str, digest: bytes, *, verify: bool = False) -> Iterator[bytes]:
        """Return the content of an object, part by part; `NotFound` at once if it is not there.

        With `verify`, `Unavailable` comes in place of the end if the content is not what it was. An object
        that is in no tree can be read for the grace period of `gc`.
        """
        with self._shelf(tenant) as shelf:
            shelf.touch(checked(digest))
            place, stored = shelf.read(digest)
            pieces = [piece.digest for piece in pieces_of(stored)] if place.form == LIST else []
            shelf.has(pieces)
        content = self._in_pieces(tenant, pieces) if pieces else iter([unpack(digest, place, stored)])
        return verified(digest, place, content) if verify else content

    def _in_pieces(self, tenant: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:  # the shelf is not held meanwhile: nobody knows when the next is asked for
            yield self._piece(tenant, piece)

    def open_at(self, tenant: str, digest: bytes) -> Opened:
        """Return a content of which any part can be read, not verified; `NotFound` if it is not there.

        As with `open_blob`, one that is in no tree can be read for the grace period of `gc`.
        """
        with self._shelf(tenant) as shelf:
            shelf.touch(checked(digest))
            place, stored = shelf.read(digest)
            if place.form != LIST:
                content = unpack(digest, place, stored)
                return Opened(lambda _: content, [Piece(len(content), digest)])
            pieces = pieces_of(stored)
            shelf.has(piece.digest for piece in pieces)
        return Opened(partial(self._piece, tenant), pieces)

    def _piece(self, tenant: str, digest: bytes) -> bytes:
        with self._shelf(tenant) as shelf:
            return b"".join(parts(shelf, digest))

    def fsck(self, tenant: str, *, deep: bool) -> list[str]:
        """Return what is wrong with the tenant's objects, in words; nothing if all is well.

        `deep` reads every object and verifies it, else only what says where objects are is read.
        """
        return [each.words for each in self.findings(tenant, deep=deep)]

    def findings(self, tenant: str, *, deep: bool) -> list[Finding]:
        """Return the same, each with the object that it is about."""
        with self._shelf(tenant) as shelf:
            return list(check(shelf, deep=deep))

    def places(self, tenant: str, tree: bytes, objects: Collection[bytes]) -> list[bytes]:
        """Return the paths in `tree` that are one of `objects`; what cannot be read is passed over."""
        return sorted(places(lambda folder: self.get_folder(tenant, folder), tree, objects))

    def missing(self, tenant: str, trees: Iterable[bytes]) -> list[bytes]:
        """Return the objects that `trees` need and the tenant's store does not have."""
        with self._shelf(tenant) as shelf:
            return missing(shelf, (checked(tree) for tree in trees))

    def gc(self, tenant: str, roots: Iterable[bytes], grace_s: float, spare: Spare = NOTHING_SPARE) -> Swept:
        """Drop what none of the trees `roots` needs and nobody put, found or asked for in `grace_s`.

        What the trees of `spare` need stays too, as far as it fits.

        Others go on reading and writing. The grace period is longer than it takes from a commit to the tree
        being a root, and from gathering the roots to this call; not than the sweep itself takes.
        `Unavailable` if a folder object that is needed is damaged; nothing is dropped then.
        """
        with self._shelf(tenant) as shelf:
            return sweep(shelf, (checked(root) for root in roots), grace_s, spare)

    def usage(self, tenant: str) -> Usage:
        """Return what the tenant's objects take."""
        with self._shelf(tenant) as shelf, shelf.guard:
            return Usage(len(shelf.table), sum(pack.end for pack in shelf.packs.values()))

    def disk_bytes(self, tenant: str | None = None) -> int:
        """Return what the files of a tenant's store take, or everybody's. Loads nothing."""
        folders = self._root.glob("*/") if tenant is None else [self._root / _folder_of(tenant)]
        with on_disk():
            return sum(_size(path) for folder in folders if folder.is_dir() for path in folder.iterdir())

    @contextmanager
    def _shelf(self, name: str) -> Iterator[Shelf]:
        """Have a tenant's objects loaded while they are used."""
        folder = _folder_of(name)
        with self._guard:
            if self._lock < 0:
                raise Unavailable("the store is closed")
            tenant = self._tenants.setdefault(folder, _Tenant())
            tenant.users += 1
        try:
            with tenant.loading:
                if tenant.shelf is None:
                    tenant.shelf = Shelf(self._root / folder, self._pack_bytes, self._clock)
            yield tenant.shelf
        finally:
            with self._guard:
                tenant.users -= 1
                tenant.idle_since = time.monotonic()


def _folder_of(tenant: str) -> str:
    """Return the name of a tenant's folder: hashed, for whoever chose the tenant's name, it is no path."""
    return address(tenant.encode("utf-8", "surrogatepass")).hex()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # swept just now
        return 0
