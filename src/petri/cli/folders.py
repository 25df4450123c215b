"""Folders and sandboxes on a terminal: what moved which way, and what is in conflict. Loads little."""

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from petri.cli.plain import plain
from petri.cli.progress import Bar
from petri.errors import PathsConflict, PetriError, counted
from petri.sdk import Mirror, Mode, Moved, PathConflict, Prefer, Synced, Wish, as_text

IN_CONFLICT = 1
"""What a sync exits with when paths are left for somebody to decide."""
_SHOWN = 20
"""Paths that are named; of more it is said how many."""


class Asked(NamedTuple):
    """What a command line asks for."""

    mode: Mode
    folder: str
    sandbox: str
    prefer: Prefer | None = None
    dry_run: bool = False
    as_json: bool = False


def exchange(asked: Asked) -> int:
    """Push, pull or sync, print what moved, and return what to exit with."""
    with Mirror(asked.folder, asked.sandbox) as mirror, Bar() as bar:
        try:
            done = mirror.exchange(Wish(asked.mode, asked.prefer, asked.dry_run, bar))
        except PathsConflict as error:
            bar.close()
            _refuse(asked, error)
            return IN_CONFLICT
    tell(done, as_json=asked.as_json)
    return IN_CONFLICT if done.conflicts else 0


def watch(folder: str, sandbox: str, prefer: Prefer | None, *, as_json: bool) -> None:
    """Keep both in step until Ctrl-C, and print each time something moved."""
    from petri.sdk import Watching  # on use: the other three are quicker without

    trouble = _Trouble()
    with Mirror(folder, sandbox, retries=0) as mirror, Bar() as bar:
        watching = Watching(mirror, prefer, bar, trouble)
        _say(f"watching {folder}: saves go to {sandbox}, what runs write comes back; Ctrl-C ends it")
        while (done := watching.next()) is not None:
            bar.close()
            trouble.over()
            tell(done, as_json=as_json)
            sys.stdout.flush()


def tell(done: Synced, *, as_json: bool) -> None:
    """Print what an exchange did."""
    if as_json:
        print(json.dumps(as_data(done)))
        return
    for line in _lines(done):
        print(line)
    for skipped in done.skipped:
        _say(f"skipped {skipped.path}: {skipped.reason}")


def as_data(done: Synced) -> dict[str, Any]:
    """Return an exchange as JSON has it. Names that are no text are written as Python escapes them."""
    return {
        "sandbox": done.sandbox,
        "sent": _moved(done.sent),
        "received": _moved(done.received),
        "conflicts": _conflicts(done.conflicts),
        "skipped": [{"path": _text(each.path), "reason": each.reason} for each in done.skipped],
        "bytes_sent": done.bytes_sent,
        "bytes_received": done.bytes_received,
        "tree": done.tree,
        "sandbox_tree": done.sandbox_tree,
        "dry_run": done.is_dry_run,
    }


class _Trouble:
    """Says once that something is wrong, and once that it is over."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, error: PetriError) -> None:
        if error.message != self._said:
            self._said = error.message
            _say(f"{error.message}; trying again")

    def over(self) -> None:
        """Have the next trouble said, whatever it is."""
        self._said = ""


def _refuse(asked: Asked, error: PathsConflict) -> None:
    conflicts = tuple(PathConflict(as_text(path), reason) for path, reason in error.conflicts)
    if asked.as_json:
        print(json.dumps({"conflicts": _conflicts(conflicts)}))
        return
    for line in _some(f"! {each.path}: {each.reason}" for each in conflicts):
        print(line)
    _say("nothing was sent; sync to see both sides, or push with --prefer local to keep theirs beside ours")


def _lines(done: Synced) -> Iterator[str]:
    yield from _some(_moves("↑", done.sent))
    yield from _some(_moves("↓", done.received))
    yield from _some(f"! {each.path}: {each.reason}" for each in done.conflicts)
    would = "would be " if done.is_dry_run else ""
    moved = f"{_count(done.sent)} {would}sent, {_count(done.received)} {would}received"
    yield f"{moved} ({counted(done.bytes_sent, 'byte')} up, {done.bytes_received} down)"


def _moves(arrow: str, moved: Moved) -> Iterator[str]:
    for mark, paths in (("+", moved.added), ("~", moved.modified), ("-", moved.deleted)):
        for path in paths:
            yield f"{arrow} {mark} {path}"
    for source, target in moved.renamed:
        yield f"{arrow} {source} → {target}"


def _some(lines: Iterator[str]) -> Iterator[str]:
    left = 0
    for number, line in enumerate(lines):
        if number < _SHOWN:
            yield plain(line)
        else:
            left += 1
    if left:
        yield f"  … and {left} more"


def _count(moved: Moved) -> int:
    return sum(map(len, moved))


def _moved(moved: Moved) -> dict[str, Any]:
    return {
        "added": [_text(path) for path in moved.added],
        "modified": [_text(path) for path in moved.modified],
        "deleted": [_text(path) for path in moved.deleted],
        "renamed": [[_text(source), _text(target)] for source, target in moved.renamed],
    }


def _conflicts(conflicts: tuple[PathConflict, ...]) -> list[dict[str, str]]:
    return [{"path": _text(each.path), "reason": each.reason} for each in conflicts]


def _text(path: str) -> str:
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _say(sentence: str) -> None:
    sys.stderr.write(f"petri: {plain(sentence)}\n")
    sys.stderr.flush()
