"""One exchange between a folder and a sandbox: look, ask, write what came, remember. Under the folder's lock.

In this order, so that a crash anywhere leaves both sides whole and the next exchange right: the server
commits before it answers, and the folder is written before the agreement is remembered. Until then the old
agreement holds, and what both sides have in common by then is no conflict. What was sent is remembered as
well, until there is an answer: should there be none, and the folder change, the next exchange first finds out
what came of it. Else our own former version would be in conflict with the present one.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from petri import trees
from petri.errors import PetriError
from petri.sdk.codes import from_problem_json, not_ours
from petri.sdk.folder.answer import DeltaFailed, Reading, Receiving, Told
from petri.sdk.folder.contents import Contents, Restless
from petri.sdk.folder.line import Answer, Line, Sending
from petri.sdk.folder.memory import Memory
from petri.sdk.folder.placing import IGNORED, Kept, Placing
from petri.sdk.folder.request import (
    Held,
    Offer,
    Sent,
    Start,
    forgetting,
    forgotten_start,
    known_start,
    new_start,
)
from petri.sdk.folder.results import Moved, PathConflict, Progress, Skipped, Synced, as_text, moved
from petri.sdk.folder.scanning import Scan
from petri.sdk.folder.stage import Stage
from petri.sdk.folder.state import Forgotten, Peer, State
from petri.syncing import (
    MOST_DIGESTS,
    WORTH_SIGNING,
    End,
    Growing,
    Mode,
    Move,
    NewFile,
    Outgoing,
    Prefer,
    Signature,
    Step,
    but,
    decode_held,
    payload_length,
    sign,
    steps,
)
from petri.trees import EMPTY, Folder

CONTENT_TYPE = "application/vnd.petri.sync"
WORTH_ASKING = 2**20
"""Bytes. Before sending more, the server is asked what it has, of another sandbox or a broken request."""
LEVEL_OF_LITTLE = 6
LEVEL_OF_MUCH = 2
LEVEL_ON_SLOW_LINES = 3
"""Of compression: little is sent as small as may be, much as quickly as the line takes it."""


class Wish(NamedTuple):
    """What is asked for."""

    mode: Mode
    prefer: Prefer | None = None
    dry_run: bool = False
    progress: Progress | None = None
    touched: Iterable[bytes] | None = None
    """The only paths that can have changed here since the last exchange, where that is known."""
    if_changed: bool = False
    """Of a push: if nothing changed here since the last time, nobody is asked."""

    @property
    def writes(self) -> bool:
        """Whether the sandbox may change by it."""
        return self.mode != "pull" and not self.dry_run


class Trust(NamedTuple):
    """What can be built upon, after what went wrong so far."""

    base: bool = True
    """The server has what was agreed on."""
    deltas: bool = True
    """Deltas give what they should."""


class Exchange:
    """One folder, one sandbox, once. The state's lock is held."""

    def __init__(self, top: bytes, state: State, line: Line, sandbox: str) -> None:
        self._top = top
        self._state = state
        self._line = line
        self._sandbox = sandbox
        self._contents = Contents(top, state.signature)
        self._memory = Memory(state)
        self._scan = Scan(top, state.index, self._contents, state.beneath())

    def run(self, wish: Wish, trust: Trust) -> Synced:
        """Do it, and return what was done."""
        before = self._line.bytes_sent, self._line.bytes_received
        peer = self._peer(trust)
        local = self._look(wish.touched, EMPTY if peer is None else peer.agreed)
        if wish.if_changed and peer is not None and local == peer.agreed:
            return self._unchanged()
        start = forgetting(self._memory, self._start(peer, trust), local, self._scan.ignoring)
        offer = Offer(self._memory, self._contents, start, local, whole=not trust.deltas)
        if wish.writes and local != start.agreed:
            self._state.save_tried(self._line.url, self._sandbox, local)
        with Stage(self._top) as stage:
            told, went = self._ask(wish, trust, start, offer, local, stage)
            received = list(steps(self._memory.fetch, local, told.folder))
            kept = [] if wish.dry_run else self._write(told, local, stage)
        if not wish.dry_run:
            self._remember(peer, start, told, kept)
            self._state.forget_tried(self._line.url, self._sandbox)
            self._sign(received)
        conflicts = [*told.conflicts, *kept]
        return Synced(
            sandbox=self._sandbox,
            sent=moved(_but_left_alone(went, told.conflicts)),
            received=moved(_but_left_alone(received, kept)),
            conflicts=tuple(PathConflict(as_text(path), reason) for path, reason in conflicts),
            skipped=tuple(Skipped(as_text(path), reason) for path, reason in self._scan.skipped),
            bytes_sent=self._line.bytes_sent - before[0],
            bytes_received=self._line.bytes_received - before[1],
            tree=self._state.index.tree.hex(),
            sandbox_tree=str(told.said.get("sandbox_tree", "")),
            is_dry_run=wish.dry_run,
        )

    def _unchanged(self) -> Synced:
        if self._scan.is_new:
            self._state.save_index()
        tree = self._state.index.tree.hex()
        return Synced(self._sandbox, Moved(), Moved(), (), (), 0, 0, tree, sandbox_tree="")

    def _going(self, start: Start, offer: Offer, local: bytes) -> list[Step]:
        """Return what goes to the sandbox: what changed here."""
        is_told = start.tree == start.agreed
        return offer.steps if is_told else list(steps(self._memory.fetch, start.agreed, local))

    # ------------------------------------------------------------------------------------------- here

    def _peer(self, trust: Trust) -> Peer | None:
        peer = self._state.peer(self._line.url, self._sandbox)
        if peer is not None and not (self._has(peer.base) and self._has(peer.agreed)):
            peer = None
        tried = self._state.tried(self._line.url, self._sandbox)
        return peer if tried is None or not self._has(tried) else self._recalled(peer, tried, trust)

    def _recalled(self, peer: Peer | None, tried: bytes, trust: Trust) -> Peer:
        """Return what is agreed on by now, if the folder was `tried` when it was last told of in vain.

        What the sandbox has as the folder had it then is in common; the rest is as it was agreed on before.
        """
        start = self._start(peer, trust)
        offer = Offer(self._memory, self._contents, start, tried, whole=False)
        with Stage(self._top) as stage:
            told, _ = self._ask(Wish("pull", dry_run=True), trust, start, offer, tried, stage)
        apart = [change.path for change in trees.diff(self._memory.fetch, told.agreed, tried)]
        agreed = self._but(told.agreed, apart, start.agreed)
        self._state.keep(self._memory.new)
        recalled = Peer(agreed if peer is None else peer.base, agreed)
        self._state.save_peer(self._line.url, self._sandbox, recalled)
        self._state.forget_tried(self._line.url, self._sandbox)
        return recalled

    def _has(self, tree: bytes) -> bool:
        try:
            return tree == EMPTY or bool(self._memory.fetch(tree))
        except Forgotten:
            return False

    def _look(self, touched: Iterable[bytes] | None, agreed: bytes) -> bytes:
        """Return what the folder is now, without folders that have only ignored things in them."""
        tree = self._scan.run(touched)
        # At once: the index tells of folders by their addresses, and what fails below must not part the two.
        self._state.keep(self._scan.objects)
        self._memory.opened.update(self._scan.opened)
        hollow = [
            path
            for path in self._state.index.hollow()
            if not isinstance(trees.find(self._memory.fetch, agreed, path), Folder)
            and trees.find(self._memory.fetch, tree, path) is not None
        ]
        if not hollow:
            return tree
        growing = Growing(self._memory.fetch, tree)
        for path in hollow:
            growing.set(path, None)
            self._remove_hollowed(growing, path.rpartition(b"/")[0], agreed)
        return growing.tree(self._memory.put)

    def _remove_hollowed(self, growing: Growing, path: bytes, agreed: bytes) -> None:
        while path and not growing.inside(path):
            if isinstance(trees.find(self._memory.fetch, agreed, path), Folder):
                return
            growing.set(path, None)
            path = path.rpartition(b"/")[0]

    def _start(self, peer: Peer | None, trust: Trust) -> Start:
        if peer is not None:
            return (known_start if trust.base else forgotten_start)(self._memory, peer)
        other = self._state.other_base(self._line.url) if trust.base else None
        return new_start(other if other is not None and self._has(other) else None)

    def _write(self, told: Told, local: bytes, stage: Stage) -> list[Kept]:
        """Write what came to the folder, and return what was left as it is."""
        wanted = self._but(told.folder, told.unwanted, local)
        if wanted == local:
            return []
        placing = Placing(self._top, self._state.index, self._contents, stage, self._memory.fetch)
        placing.run(local, wanted)
        again = Scan(self._top, self._state.index, self._contents, self._state.beneath())
        again.run({*placing.touched, *(path for path, _ in placing.kept)})
        self._state.keep(again.objects)
        self._scan.is_new |= again.is_new
        return [self._explained(each) for each in placing.kept]

    def _explained(self, kept: Kept) -> Kept:
        """Say what is in the way, where that was there all along and nobody looks at it."""
        place = os.path.join(self._top, kept.path)
        is_folder = os.path.isdir(place) and not os.path.islink(place)
        is_ignored = os.path.lexists(place) and self._scan.ignoring.ignores(kept.path, is_folder=is_folder)
        return kept._replace(reason=IGNORED) if is_ignored else kept

    def _remember(self, peer: Peer | None, start: Start, told: Told, kept: list[Kept]) -> None:
        apart = [*told.unwanted, *(path for path, _ in kept)]
        new = Peer(told.agreed, self._but(told.agreed, apart, start.agreed))
        self._state.keep(self._memory.new)
        if self._scan.is_new:
            self._state.save_index()
        if new != peer:
            self._state.save_peer(self._line.url, self._sandbox, new)

    def _but(self, tree: bytes, paths: list[bytes], other: bytes) -> bytes:
        """Return `tree`, but with `paths` as `other` has them."""
        return but(self._memory.fetch, self._memory.put, tree, paths, other) if paths else tree

    def _sign(self, done: Iterable[Step]) -> None:
        """Remember the signatures of large files, for the day they change."""
        large = [step for step in done if isinstance(step, NewFile) and step.file.size >= WORTH_SIGNING]
        for step in large:
            if self._state.has_signature(step.file.digest):
                continue
            # One that has changed again, or is gone, is signed when it is next sent.
            with suppress(EOFError, FileNotFoundError):
                self._state.save_signature(step.file.digest, self._signature(step))
        if large:
            self._state.prune_signatures(self._state.index.places)

    def _signature(self, step: NewFile) -> Signature:
        if step.old is not None:
            delta = self._contents.deltas.get((step.old.digest, step.file.digest))
            if delta is not None:
                return delta.signature
        if (held := self._contents.held.get(step.file.digest)) is not None:
            return sign(lambda at, length: held[at : at + length], step.file.size)
        with self._contents.opened(step.path) as file:
            return sign(file.read, step.file.size)

    # ------------------------------------------------------------------------------------------ there

    def _ask(
        self, wish: Wish, trust: Trust, start: Start, offer: Offer, local: bytes, stage: Stage
    ) -> tuple[Told, list[Step]]:
        """Ask the server, and return what it told and what went to it."""
        if wish.writes:
            said = list(offer.records(self._held(offer, start)))
        else:
            said = list(offer.without_contents())
        sending = self._line.begin("POST", self._address(wish, trust), {"Content-Type": CONTENT_TYPE})
        self._send(sending, [*((record, ()) for record in start.records), *said, (End(local), ())], wish)
        # What follows is done while the server is at work.
        if wish.writes:
            self._sign(offer.new)
        self._contents.drop_held()
        went = self._going(start, offer, local) if wish.mode != "pull" else []
        answer = Answer(self._line)
        if wish.writes and _is_refusal(answer.status):
            self._state.forget_tried(self._line.url, self._sandbox)
        if answer.status in (400, 422) and offer.has_deltas:
            raise DeltaFailed from _refusal(answer, self._line.url)
        if answer.status != 200:
            raise _refusal(answer, self._line.url)
        receiving = Receiving(self._state.index, self._contents, stage, wish.progress)
        reading = Reading(self._memory, local, self._scan.ignoring)
        return reading.run(answer, None if wish.dry_run else receiving), went

    def _address(self, wish: Wish, trust: Trust) -> str:
        address = f"/v1/sandboxes/{self._sandbox}/sync?mode={wish.mode}"
        address += f"&prefer={wish.prefer}" if wish.prefer is not None else ""
        address += "&dry_run=true" if wish.dry_run else ""
        return address + ("" if trust.deltas else "&whole=true")

    def _send(self, sending: Sending, said: list[Sent], wish: Wish) -> None:
        total = sum(payload_length(record) for record, _ in said)
        level = LEVEL_OF_LITTLE
        if total > WORTH_ASKING:
            level = LEVEL_OF_MUCH if self._line.is_quick else LEVEL_ON_SLOW_LINES
        outgoing = Outgoing(sending.write, level=level, expected=total)
        counted = _Counted(total, wish.progress)
        try:
            for record, payload in said:
                outgoing.add(record, counted.pieces(payload))
            outgoing.end()
        except (Restless, FileNotFoundError):
            sending.give_up()
            raise
        sending.end()

    def _held(self, offer: Offer, start: Start) -> Held:
        """Return what the server has of what would be sent; without asking, if that is little."""
        wanted = offer.wanted()
        if not wanted or (start.is_held and sum(wanted.values()) < WORTH_ASKING):
            return Held()
        whole: set[bytes] = set()
        begun: dict[bytes, int] = {}
        digests = list(wanted)
        for at in range(0, len(digests), MOST_DIGESTS):
            asked = digests[at : at + MOST_DIGESTS]
            there, parts = decode_held(self._ask_for(asked), len(asked))
            whole.update(digest for digest, is_there in zip(asked, there, strict=True) if is_there)
            begun.update((asked[number], count) for number, count in parts.items())
        return Held(frozenset(whole), begun)

    def _ask_for(self, digests: list[bytes]) -> bytes:
        path = f"/v1/sandboxes/{self._sandbox}/sync/have"
        answer = self._line.call("POST", path, {"Content-Type": CONTENT_TYPE}, b"".join(digests))
        if answer.status != 200:
            raise _refusal(answer, self._line.url)
        return answer.read_all()


def _is_refusal(status: int) -> bool:
    """Say whether nothing came of a request. Of other failures nobody knows when they happened."""
    return 400 <= status < 500 or status in (503, 507)


def _but_left_alone(steps: Iterable[Step], left: Iterable[tuple[bytes, str]]) -> Iterable[Step]:
    """Return what was done of `steps`, if paths were left as they are on both sides."""
    stayed = {path for path, _ in left}
    if not stayed:
        return steps
    return (step for step in steps if (step.target if isinstance(step, Move) else step.path) not in stayed)


class _Counted:
    """Tells somebody how far sending is."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0

    def pieces(self, payload: Iterable[bytes]) -> Iterable[bytes]:
        return payload if self._progress is None else self._told(payload, self._progress)

    def _told(self, payload: Iterable[bytes], progress: Progress) -> Iterator[bytes]:
        for piece in payload:
            yield piece
            self._done += len(piece)
            progress(self._done, self._total)


def answer_json(answer: Answer, url: str) -> dict[str, Any]:
    """Return what an answer holds, or raise what it refuses."""
    if answer.status != 200:
        raise _refusal(answer, url)
    told = json.loads(answer.read_all())
    if not isinstance(told, dict):
        raise not_ours(url, "something else")
    return told


def _refusal(answer: Answer, url: str) -> PetriError:
    said = f"{answer.status} {answer.reason}".strip()
    with suppress(ValueError):
        error = from_problem_json(json.loads(answer.read_all()))
        if error is not None:
            return error
    return not_ours(url, said)
