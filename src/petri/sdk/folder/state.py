"""What is remembered of a folder between two syncs. Lost or torn, it costs time and questions, never a file.

    $XDG_STATE_HOME/petri/sync/<folder>/       the name is made of the folder's real path
        lock                                   held while a sync looks at the folder or writes to it
        folder                                 that path, for people
        index                                  see `index.py`
        objects                                folder objects, one behind the other, of the trees named below
        peers/<server and sandbox>             the trees last agreed on with one sandbox
        tried/<server and sandbox>             what one sandbox is told to be, until there is an answer
        signatures/<digest>                    see `petri.syncing.delta`

Everything but `objects` appears by rename. What a sandbox is told later is derived from here, so a peer is
written last: until then, the next sync starts from where this one did.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from blake3 import blake3

from petri.errors import Conflict, PetriError
from petri.sdk.folder.index import Index
from petri.syncing import Signature
from petri.trees import EMPTY, Fetch, Folder, FolderObject, address, decode

LOCK_S = 30.0
"""How long to wait for another sync of the same folder."""
_POLL_S = 0.05
_MOST_SIGNATURES = 4096
_WORTH_PACKING = 2**22

_DIGEST_BYTES = 32
_LENGTH_BYTES = 4


class Forgotten(Exception):
    """A folder object is not remembered. Nobody lost a file by that."""


class Peer(NamedTuple):
    """What was last agreed on with one sandbox."""

    base: bytes
    """A tree that the server has."""
    agreed: bytes
    """What both sides have in common: `base`, but for paths that are in conflict."""


class State:
    """What is remembered of the folder whose real path is `top`."""

    def __init__(self, top: bytes, home: str) -> None:
        self._top = top
        self._home = os.fsencode(home)
        self._folder = self._home + b"/sync/" + _name(top)
        self._objects: dict[bytes, bytes] | None = None
        self._objects_end = 0
        self._loaded_from: tuple[int, ...] | None = None
        self._saved = b""
        self.index = Index()

    @contextmanager
    def locked(self, wait_s: float = LOCK_S) -> Iterator[None]:
        """Hold the folder's lock; `Conflict` if somebody else does not let go of it."""
        self._make()
        fd = os.open(self._folder + b"/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock(fd, wait_s)
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d" % os.getpid(), 0)
            self._load()
            yield
            self._loaded_from = self._identity()
        finally:
            os.close(fd)

    def beneath(self) -> bytes | None:
        """Return where in the folder itself all this is kept, should it be there."""
        place = os.path.realpath(self._home)
        return (
            place[len(self._top) :].lstrip(b"/") if place.startswith(self._top.rstrip(b"/") + b"/") else None
        )

    def fetch(self, wanted: bytes) -> FolderObject:
        """Return a folder object that is kept; raises `Forgotten` if it is not."""
        encoded = self._kept().get(wanted)
        if encoded is None or address(encoded) != wanted:
            raise Forgotten(wanted.hex())
        return decode(encoded)

    def keep(self, objects: Mapping[bytes, bytes]) -> None:
        """Remember folder objects."""
        kept = self._kept()
        new = {wanted: encoded for wanted, encoded in objects.items() if wanted not in kept}
        if not new:
            return
        with open(self._folder + b"/objects", "ab") as file:
            file.truncate(self._objects_end)  # behind a torn one, nothing would be found
            file.write(_framed(new))
            self._objects_end = file.tell()
        kept.update(new)

    def save_index(self) -> None:
        """Remember how the folder was found to be."""
        self._saved = self.index.to_bytes()
        self._replace(b"index", self._saved)

    def peer(self, url: str, sandbox: str) -> Peer | None:
        """Return what was agreed on with a sandbox, if that is remembered, whole."""
        return self._read_peer(self._folder + b"/peers/" + _peer_name(url, sandbox), url)

    def other_base(self, url: str) -> bytes | None:
        """Return a tree that a server has of this folder, from any of its sandboxes; the latest."""
        with suppress(OSError), os.scandir(self._folder + b"/peers") as entries:
            for entry in sorted(entries, key=lambda entry: -entry.stat().st_mtime_ns):
                if (peer := self._read_peer(entry.path, url)) is not None:
                    return peer.base
        return None

    def save_peer(self, url: str, sandbox: str, peer: Peer) -> None:
        """Remember what was agreed on. Its trees' folder objects must be kept by now."""
        told = {"url": url, "sandbox": sandbox, "base": peer.base.hex(), "agreed": peer.agreed.hex()}
        self._replace(b"peers/" + _peer_name(url, sandbox), json.dumps(told).encode())
        if self._objects_end > _WORTH_PACKING:
            self._pack()

    def tried(self, url: str, sandbox: str) -> bytes | None:
        """Return what a sandbox was last told to be, if it is not known what came of it."""
        tree = _content(self._tried(url, sandbox))
        return tree if len(tree) == _DIGEST_BYTES else None

    def save_tried(self, url: str, sandbox: str, tree: bytes) -> None:
        """Remember what a sandbox is being told to be, if there is room."""
        with suppress(OSError), open(self._tried(url, sandbox), "wb") as file:
            file.write(tree)

    def forget_tried(self, url: str, sandbox: str) -> None:
        """Forget what a sandbox was told to be: it is known what came of it."""
        with suppress(FileNotFoundError):
            os.unlink(self._tried(url, sandbox))

    def _tried(self, url: str, sandbox: str) -> bytes:
        return self._folder + b"/tried/" + _peer_name(url, sandbox)

    def forget(self, url: str, sandbox: str) -> None:
        """Forget what was agreed on with a sandbox, and how the folder was found to be."""
        peer = _peer_name(url, sandbox)
        for name in (b"/peers/" + peer, b"/tried/" + peer, b"/index"):
            with suppress(FileNotFoundError):
                os.unlink(self._folder + name)
        self.index = Index()
        self._loaded_from = None

    def signature(self, digest: bytes) -> Signature | None:
        """Return the signature of a content, if it is remembered."""
        with suppress(OSError), open(self._signature_path(digest), "rb") as file:
            return Signature.from_bytes(file.read())
        return None

    def has_signature(self, digest: bytes) -> bool:
        """Say whether the signature of a content is remembered."""
        return os.access(self._signature_path(digest), os.F_OK)

    def save_signature(self, digest: bytes, signature: Signature) -> None:
        """Remember the signature of a content."""
        self._replace(b"signatures/" + digest.hex().encode(), signature.to_bytes())

    def prune_signatures(self, wanted: Callable[[], Iterable[bytes]]) -> None:
        """Forget the signatures of contents that are not wanted, once there are many."""
        names = os.listdir(self._folder + b"/signatures")
        if len(names) <= _MOST_SIGNATURES:
            return
        kept = {digest.hex().encode() for digest in wanted()}
        for name in set(names) - kept:
            with suppress(FileNotFoundError):
                os.unlink(self._folder + b"/signatures/" + name)

    def _make(self) -> None:
        try:
            for name in (b"", b"/peers", b"/tried", b"/signatures"):
                os.makedirs(self._folder + name, 0o700, exist_ok=True)
        except OSError as error:
            raise PetriError(
                f"nothing can be remembered in {os.fsdecode(self._folder)}: {error.strerror}; "
                "set XDG_STATE_HOME to a folder that can be written to"
            ) from None

    def _lock(self, fd: int, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = os.pread(fd, 20, 0).decode(errors="replace")
                    raise Conflict(
                        f"{os.fsdecode(self._top)} is being synced by another process ({holder}); "
                        "wait for it, or end it"
                    ) from None
                time.sleep(_POLL_S)
            else:
                return

    def _load(self) -> None:
        """Read what is there, unless it is what we left there."""
        identity = self._identity()
        if self._loaded_from is not None and identity == self._loaded_from:
            if self._saved:  # as it was written, it is looked through in a fraction of the time
                self.index, self._saved = Index.from_bytes(self._saved), b""
            return
        self._objects = None
        self.index = Index.from_bytes(_content(self._folder + b"/index"))
        if not self.index.folders:
            self._replace(b"folder", self._top + b"\n")

    def _identity(self) -> tuple[int, ...]:
        found: list[int] = []
        for name in (b"/index", b"/objects"):
            with suppress(FileNotFoundError):
                status = os.stat(self._folder + name)
                found += (status.st_ino, status.st_mtime_ns, status.st_size)
        return tuple(found)

    def _kept(self) -> dict[bytes, bytes]:
        if self._objects is None:
            self._objects, self._objects_end = _unframed(_content(self._folder + b"/objects"))
        return self._objects

    def _read_peer(self, path: bytes, url: str) -> Peer | None:
        try:
            told = json.loads(_content(path))
            peer = Peer(bytes.fromhex(told["base"]), bytes.fromhex(told["agreed"]))
            is_ours = told["url"] == url
        except (ValueError, KeyError, TypeError):
            return None
        return peer if is_ours and len(peer.base) == len(peer.agreed) == _DIGEST_BYTES else None

    def _replace(self, name: bytes, content: bytes) -> None:
        path = self._folder + b"/" + name
        with open(path + b".new", "wb") as file:
            file.write(content)
        os.replace(path + b".new", path)

    def _pack(self) -> None:
        """Leave folder objects out that no tree in here has, once they are most of the file."""
        trees = {self.index.tree}
        for name in os.listdir(self._folder + b"/peers"):
            with suppress(ValueError, KeyError):
                told = json.loads(_content(self._folder + b"/peers/" + name))
                trees |= {bytes.fromhex(told["base"]), bytes.fromhex(told["agreed"])}
        for name in os.listdir(self._folder + b"/tried"):
            trees |= {_content(self._folder + b"/tried/" + name)} & self._kept().keys()
        kept = self._kept()
        live = {wanted: kept[wanted] for wanted in _reachable(self.fetch, trees)}
        content = _framed(live)
        if len(content) * 2 < self._objects_end:
            self._replace(b"objects", content)
            self._objects, self._objects_end = live, len(content)

    def _signature_path(self, digest: bytes) -> bytes:
        return self._folder + b"/signatures/" + digest.hex().encode()


def _name(top: bytes) -> bytes:
    return blake3(top).hexdigest(16).encode()


def _peer_name(url: str, sandbox: str) -> bytes:
    return blake3(f"{url}\0{sandbox}".encode()).hexdigest(16).encode()


def _content(path: bytes) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _framed(objects: Mapping[bytes, bytes]) -> bytes:
    return b"".join(
        wanted + len(encoded).to_bytes(_LENGTH_BYTES, "little") + encoded
        for wanted, encoded in objects.items()
    )


def _unframed(content: bytes) -> tuple[dict[bytes, bytes], int]:
    """Return the objects in a file, and where the last whole one ends."""
    objects: dict[bytes, bytes] = {}
    at = 0
    while True:
        begin = at + _DIGEST_BYTES + _LENGTH_BYTES
        end = begin + int.from_bytes(content[begin - _LENGTH_BYTES : begin], "little")
        if begin > len(content) or end > len(content):
            return objects, at
        objects[content[at : at + _DIGEST_BYTES]] = content[begin:end]
        at = end


def _reachable(fetch: Fetch, trees: Iterable[bytes]) -> set[bytes]:
    """Return the folder objects that `trees` are made of, as far as they are to be had."""
    found: set[bytes] = set()
    waiting = list(trees)
    while waiting:
        wanted = waiting.pop()
        if wanted in found or wanted == EMPTY:
            continue
        with suppress(Forgotten):
            inside = fetch(wanted).values()
            found.add(wanted)
            waiting += [entry.address for entry in inside if isinstance(entry, Folder)]
    return found
