"""What the server says to a sync: what becomes of the folder, with the contents that it lacks.

Contents are read from the store while the answer is sent, so whatever runs in the sandbox meanwhile, the
answer is about one tree.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from petri import trees
from petri.errors import NotFound, TooLarge
from petri.operations.sync_objects import Objects
from petri.store import Store
from petri.syncing import (
    WORTH_SIGNING,
    Agreed,
    Base,
    ChangedFile,
    Clash,
    End,
    KnownFile,
    NewFile,
    Record,
    Said,
    Settled,
    Step,
    WholeFile,
    compare,
    compressed,
    sign,
    steps,
)
from petri.trees import Fetch, File

WORTH_LOOKING_UP = 64 << 10
"""Bytes. From here on, it is worth finding out what the folder has elsewhere."""
MUCH = 1 << 20
"""Bytes. From here on, time counts more than how small they become."""
LEVEL_OF_LITTLE, LEVEL_OF_MUCH = 6, 1

_Sent = tuple[Record, Iterable[bytes]]


class Telling(NamedTuple):
    """How an answer is given."""

    with_contents: bool
    deltas: bool
    at_hand: frozenset[bytes]
    """Contents that the folder has somewhere, and need not be sent."""


def at_hand(
    fetch: Fetch, folder: bytes, wanted: bytes, has: Callable[[set[bytes]], set[bytes]]
) -> frozenset[bytes]:
    """Return which contents of `wanted` the client has in its folder, if that is worth finding out.

    `has` says which ones are in the store. `TooLarge` for what is in neither: a file too large to be kept.
    """
    new = {step.file.digest: step for step in steps(fetch, folder, wanted) if isinstance(step, NewFile)}
    missing = new.keys() - has(set(new))
    if not missing and sum(step.file.size for step in new.values()) < WORTH_LOOKING_UP:
        return frozenset()
    theirs = {each.digest for _, each in trees.walk(fetch, folder) if isinstance(each, File)}
    for digest in missing - theirs:
        raise TooLarge(f"{new[digest].path!r} is too large to be synced; name it in .petriignore")
    return frozenset(theirs & new.keys())


class Answer:
    """One answer, to a client whose folder is the tree `folder`."""

    def __init__(
        self, store: Store, tenant: str, objects: Objects, folder: bytes, settled: Settled, telling: Telling
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._fetch = objects.fetch
        self._folder = folder
        self._settled = settled
        self._telling = telling
        self._down = list(steps(self._fetch, folder, settled.folder))
        new = {step.file.digest: step.file.size for step in self._down if isinstance(step, NewFile)}
        self._lacking = new.keys() - telling.at_hand if telling.with_contents else set()
        """Contents that the folder lacks, and that were not sent yet."""
        self._new_bytes = sum(new[digest] for digest in self._lacking)

    def stream(self) -> Iterator[bytes]:
        """Yield the answer as it goes over the line."""
        level = LEVEL_OF_MUCH if self._new_bytes >= MUCH else LEVEL_OF_LITTLE
        return compressed(self._said(), level=level, expected=self._new_bytes)

    def _said(self) -> Iterator[_Sent]:
        settled = self._settled
        said: dict[str, str | int] = {"sandbox_tree": settled.sandbox.hex()}
        if self._new_bytes:
            said["bytes"] = self._new_bytes
        yield Said(json.dumps(said).encode()), ()
        for path, reason in settled.conflicts:
            yield Clash(path, reason.encode(errors="replace")), ()
        if settled.agreed != settled.folder:
            for step in steps(self._fetch, self._folder, settled.agreed):
                yield _without_content(step), ()
            yield Agreed(settled.agreed), ()
            yield Base(self._folder), ()
        for step in self._down:
            yield self._step(step)
        yield End(settled.folder), ()

    def _step(self, step: Step) -> _Sent:
        if not isinstance(step, NewFile) or step.file.digest not in self._lacking:
            return _without_content(step), ()
        path, (digest, size, mode), old = step
        self._lacking.discard(digest)
        if old is not None and size >= WORTH_SIGNING and self._telling.deltas:
            changed = self._changed(path, step.file, old)
            if changed is not None:
                return changed
        return WholeFile(path, mode, size, digest, 0), self._store.open_blob(self._tenant, digest)

    def _changed(self, path: bytes, file: File, old: File) -> _Sent | None:
        """Return a large file as what changed in it, if that is much less."""
        try:
            before = self._store.open_at(self._tenant, old.digest)
        except NotFound:
            return None
        after = self._store.open_at(self._tenant, file.digest)
        delta = compare(sign(before.read, before.size), after.read, file.size)
        if delta.fresh_bytes >= file.size // 2:
            return None
        length = delta.payload_length()
        record = ChangedFile(path, file.mode, file.size, file.digest, old.digest, length)
        return record, delta.payload(after.read)


def _without_content(step: Step) -> Record:
    if not isinstance(step, NewFile):
        return step
    return KnownFile(step.path, step.file.mode, step.file.size, step.file.digest)
