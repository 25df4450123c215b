"""What is asked of a server in a sync: where to start from, what changed here, and what is sent along."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from blake3 import blake3

from petri import trees
from petri.sdk.folder.contents import Contents, Restless
from petri.sdk.folder.memory import Memory
from petri.sdk.folder.state import Peer
from petri.syncing import (
    NOTHING,
    Agreed,
    Base,
    ChangedFile,
    Delete,
    Delta,
    Growing,
    Ignoring,
    KnownFile,
    NewFile,
    Record,
    Step,
    WholeFile,
    steps,
)
from petri.trees import EMPTY, File, Folder

WORTH_LOOKING_UP = 4096
"""Bytes. To say that the server has a smaller file from elsewhere saves less than finding out costs."""


class Start(NamedTuple):
    """Where a request starts from."""

    records: list[Record]
    """What tells the server so."""
    tree: bytes
    """What the changes are told against."""
    agreed: bytes
    """What both sides last agreed on, but for what is ignored by now."""
    is_held: bool = True
    """Whether the server has the contents of `tree`."""


def known_start(memory: Memory, peer: Peer) -> Start:
    """Start from what was agreed on, which the server has, or something close to it."""
    records: list[Record] = [Base(peer.base)]
    if peer.agreed != peer.base:
        records += (*_without_contents(steps(memory.fetch, peer.base, peer.agreed)), Agreed(peer.agreed))
    return Start(records, peer.agreed, peer.agreed)


def forgotten_start(memory: Memory, peer: Peer) -> Start:
    """Start from what was agreed on, and tell it from nothing: the server does not have it any more."""
    told = _without_contents(steps(memory.fetch, EMPTY, peer.agreed))
    return Start([Base(NOTHING), *told, Agreed(peer.agreed)], peer.agreed, peer.agreed, is_held=False)


def new_start(other: bytes | None) -> Start:
    """Start where nothing was agreed on; `other` is a tree that the server has from another sandbox."""
    if other is None:
        return Start([Base(NOTHING)], EMPTY, EMPTY)
    return Start([Base(NOTHING), Agreed(EMPTY), Base(other)], other, EMPTY)


def forgetting(memory: Memory, start: Start, local: bytes, ignoring: Ignoring) -> Start:
    """Return `start` without what is ignored by now: that is not deleted, only not spoken of any more."""
    if start.tree != start.agreed:
        return start
    gone = [
        path
        for path, old, new in trees.diff(memory.fetch, start.agreed, local)
        if new is None and ignoring.ignores(path, is_folder=isinstance(old, Folder))
    ]
    if not gone:
        return start
    growing = Growing(memory.fetch, start.agreed)
    for path in gone:
        growing.set(path, None)
    agreed = growing.tree(memory.put)
    said = [each for each in start.records if not isinstance(each, Agreed)]
    return Start([*said, *(Delete(path) for path in gone), Agreed(agreed)], agreed, agreed, start.is_held)


class Held(NamedTuple):
    """What the server has of the contents that are new here."""

    whole: frozenset[bytes] = frozenset()
    begun: Mapping[bytes, int] = {}
    """Of these, so many bytes, from a request that broke."""


Sent = tuple[Record, Iterable[bytes]]
"""One record, and its payload, which is read when it is sent."""


class Offer:
    """The changes that are told, and how the content of each file is sent."""

    def __init__(
        self, memory: Memory, contents: Contents, start: Start, local: bytes, *, whole: bool
    ) -> None:
        self._contents = contents
        self._deltas = contents.deltas if start.is_held and not whole else {}
        self.steps = list(steps(memory.fetch, start.tree, local))
        self.new = [step for step in self.steps if isinstance(step, NewFile)]
        """The files that are new or changed."""
        is_worth_it = start.is_held and _is_worth_looking_up(self.new)
        self._there = _digests(memory, start.tree) if is_worth_it else frozenset()
        self.has_deltas = any(self._delta(step) is not None for step in self.new)

    def wanted(self) -> dict[bytes, int]:
        """Return the contents that would be sent whole, with their sizes."""
        return {
            step.file.digest: step.file.size
            for step in self.new
            if step.file.digest not in self._there and self._delta(step) is None
        }

    def records(self, held: Held) -> Iterator[Sent]:
        """Yield what to send to a server that has what `held` says."""
        there = {*self._there, *held.whole}
        for step in self.steps:
            if not isinstance(step, NewFile):
                yield step, ()
            elif step.file.digest in there:
                yield _known(step), ()
            else:
                there.add(step.file.digest)
                yield self._file(step, held.begun)

    def without_contents(self) -> Iterator[Sent]:
        """Yield what to say, with nothing sent along."""
        return ((record, ()) for record in _without_contents(self.steps))

    def _file(self, step: NewFile, begun: Mapping[bytes, int]) -> Sent:
        path, (digest, size, mode), old = step
        delta = self._delta(step)
        if delta is not None and old is not None:
            record = ChangedFile(path, mode, size, digest, old.digest, delta.payload_length())
            return record, self._delta_payload(path, delta)
        offset = begun.get(digest, 0)
        offset = offset if offset < size else 0
        return WholeFile(path, mode, size, digest, offset), self._content(path, step.file, offset)

    def _delta(self, step: NewFile) -> Delta | None:
        if step.old is None:
            return None
        delta = self._deltas.get((step.old.digest, step.file.digest))
        return delta if delta is not None and delta.fresh_bytes < step.file.size // 2 else None

    def _delta_payload(self, path: bytes, delta: Delta) -> Iterator[bytes]:
        with self._contents.opened(path) as file:
            try:
                yield from delta.payload(file.read)
            except EOFError:
                raise Restless(f"{os.fsdecode(path)} became shorter while it was sent") from None

    def _content(self, path: bytes, file: File, offset: int) -> Iterator[bytes]:
        if (held := self._contents.held.get(file.digest)) is not None:
            yield held[offset:]
            return
        whole = blake3()
        for piece in self._contents.pieces(path, file.size, offset):
            whole.update(piece)
            yield piece
        # Of a part, the server will tell.
        if not offset and whole.digest() != file.digest:
            raise Restless(f"{os.fsdecode(path)} changed while it was sent")


def _is_worth_looking_up(new: list[NewFile]) -> bool:
    return len(new) > 64 or any(step.old is None and step.file.size >= WORTH_LOOKING_UP for step in new)


def _digests(memory: Memory, tree: bytes) -> frozenset[bytes]:
    return frozenset(entry.digest for _, entry in trees.walk(memory.fetch, tree) if isinstance(entry, File))


def _without_contents(told: Iterable[Step]) -> Iterator[Record]:
    return (_known(step) if isinstance(step, NewFile) else step for step in told)


def _known(step: NewFile) -> KnownFile:
    return KnownFile(step.path, step.file.mode, step.file.size, step.file.digest)
