"""What a server says to a sync: read, checked, and its contents put on the stage."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from petri.errors import Invalid, PetriError
from petri.sdk.folder.contents import Contents
from petri.sdk.folder.index import Index
from petri.sdk.folder.memory import Memory
from petri.sdk.folder.results import Progress
from petri.sdk.folder.stage import Stage
from petri.syncing import (
    Agreed,
    Base,
    ChangedFile,
    Clash,
    End,
    Growing,
    Ignoring,
    Incoming,
    KnownFile,
    MakeFolder,
    MakeLink,
    Move,
    Record,
    Said,
    Source,
    WholeFile,
    rebuild,
)

MOST_BYTES = 2**46
"""More than any disk here holds: what is too much, the disk says."""


class Told(NamedTuple):
    """The answer to a sync."""

    said: dict[str, Any]
    folder: bytes
    """What the folder is to be."""
    agreed: bytes
    """What both sides agree on, once it is."""
    conflicts: list[tuple[bytes, str]]
    unwanted: list[bytes]
    """Paths that the server speaks of though the rules here ignore them."""


class DeltaFailed(Exception):
    """A delta does not give what it should, or starts from a content that is not there."""


class Reading:
    """Reads one answer, to a request that ended with the tree `local`."""

    def __init__(self, memory: Memory, local: bytes, ignoring: Ignoring) -> None:
        self._memory = memory
        self._local = local
        self._ignoring = ignoring
        self._growing = Growing(memory.fetch, local)
        self._agreed: bytes | None = None
        self._end: bytes | None = None
        self._said: dict[str, Any] | None = None
        self._conflicts: list[tuple[bytes, str]] = []
        self._unwanted: list[bytes] = []

    def run(self, source: Source, receive: "Receiving | None") -> Told:
        """Return what was told; `receive` gets every content that is wanted, nobody if none is."""
        incoming = Incoming(source, most_bytes=MOST_BYTES)
        for record in incoming:
            if self._said is None and not isinstance(record, Said):
                raise PetriError("the server's answer does not begin as one")
            self._take(record)
            if receive is not None and isinstance(record, Said):
                receive.expect(self._said)
            if receive is not None and isinstance(record, WholeFile | ChangedFile):
                receive(record, incoming.payload() if record.path not in self._unwanted else None)
        assert self._end is not None
        assert self._said is not None
        agreed = self._end if self._agreed is None else self._agreed
        return Told(self._said, self._end, agreed, self._conflicts, self._unwanted)

    def _take(self, record: Record) -> None:
        if isinstance(record, Said):
            self._said = _object(record.json)
        elif isinstance(record, Clash):
            self._conflicts.append((record.path, record.reason.decode(errors="replace")))
        elif isinstance(record, Base):
            _must_be(record.tree, self._local)
            self._growing = Growing(self._memory.fetch, self._local)
        elif isinstance(record, Agreed):
            self._agreed = self._made(record.tree)
        elif isinstance(record, End):
            self._end = self._made(record.tree)
        else:
            self._growing.apply(record)
            path = _new_path(record)
            if path is not None and self._is_unwanted(path):
                self._unwanted.append(path)

    def _made(self, said: bytes) -> bytes:
        made = self._growing.tree(self._memory.put)
        _must_be(made, said)
        return made

    def _is_unwanted(self, path: bytes) -> bool:
        return self._ignoring.ignores(path, is_folder=self._growing.inside(path) is not None)


class Receiving:
    """Puts contents on the stage as they arrive."""

    def __init__(self, index: Index, contents: Contents, stage: Stage, progress: Progress | None) -> None:
        self._index = index
        self._contents = contents
        self._stage = stage
        self._progress = progress
        self._places: dict[bytes, bytes] | None = None
        self._done = 0
        self._total: int | None = None

    def expect(self, said: Mapping[str, Any] | None) -> None:
        """Take from what the server says first how much is to come."""
        total = (said or {}).get("bytes")
        self._total = total if isinstance(total, int) else None

    def __call__(self, record: WholeFile | ChangedFile, payload: Iterable[bytes] | None) -> None:
        if payload is None or self._stage.has(record.digest):
            self._done += record.size
        elif isinstance(record, WholeFile):
            self._stage.receive(record.digest, record.size, self._counted(payload))
        else:
            self._rebuild(record, payload)

    def _rebuild(self, record: ChangedFile, payload: Iterable[bytes]) -> None:
        if self._places is None:
            self._places = self._index.places()
        path = self._places.get(record.old)
        if path is None:
            raise DeltaFailed(os.fsdecode(record.path))
        try:
            with self._contents.opened(path) as old:
                pieces = rebuild(payload, old.read, record.size)
                self._stage.receive(record.digest, record.size, self._counted(pieces))
        except (Invalid, FileNotFoundError) as error:
            raise DeltaFailed(os.fsdecode(record.path)) from error

    def _counted(self, content: Iterable[bytes]) -> Iterator[bytes]:
        for piece in content:
            self._done += len(piece)
            if self._progress is not None:
                self._progress(self._done, self._total)
            yield piece


def _object(text: bytes) -> dict[str, Any]:
    told = json.loads(text)
    if not isinstance(told, dict):
        raise PetriError("the server's answer does not begin as one")
    return told


def _must_be(found: bytes, said: bytes) -> None:
    if found != said:
        raise PetriError("the server's answer does not add up; sync again, and report it if it happens again")


def _new_path(record: Record) -> bytes | None:
    """Return where a record puts something."""
    if isinstance(record, Move):
        return record.target
    if isinstance(record, MakeFolder | MakeLink | WholeFile | KnownFile | ChangedFile):
        return record.path
    return None
