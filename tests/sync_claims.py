"""What a push, a pull and a sync promise, path by path: told from three pictures, by none of Petri's code.

A picture is what one side holds: every path that takes part, with what is there. Of a folder in which all is
ignored nothing is claimed: it takes part if it did before.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

FOLDER, HOLLOW = "a folder", "a folder of ignored things"
ABSENT, UNKNOWN, CLASH = "nothing", "nobody knows", "a conflict"


class Content(NamedTuple):
    """A file."""

    data: bytes
    mode: int


class Target(NamedTuple):
    """A link."""

    leads_to: str


Thing = Content | Target | str
Picture = Mapping[str, Thing]
IsIgnored = Callable[[str, bool], bool]


def sifted(found: Mapping[str, Thing], is_ignored: IsIgnored) -> dict[str, Thing]:
    """Return a picture of what takes part in all that was found."""
    seen = {path: each for path, each in found.items() if not is_ignored(path, each == FOLDER)}
    leaves = [path for path, each in seen.items() if each != FOLDER]
    full = {above for path in found for above in around(path)}
    shown = {above for path in leaves for above in around(path)}
    empty = {path for path, each in seen.items() if each == FOLDER and path not in full}
    shown |= empty | {above for path in empty for above in around(path)}
    return {path: HOLLOW if each == FOLDER and path not in shown else each for path, each in seen.items()}


def pictured(top: Path) -> dict[str, Thing]:
    """Return all that is in a folder."""
    found: dict[str, Thing] = {}
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            place = Path(folder, name)
            path = place.relative_to(top).as_posix()
            if place.is_symlink():
                found[path] = Target(str(place.readlink()))
            elif place.is_dir():
                found[path] = FOLDER
            else:
                found[path] = Content(place.read_bytes(), place.stat().st_mode >> 6 & 7)
    return found


def met(base: Picture, here: Picture, there: Picture) -> dict[str, Thing]:
    """Return what every path is once both sides have come together; `CLASH` where nobody may decide."""
    return {
        path: _met(*(each.get(path, ABSENT) for each in (base, here, there)))
        for path in {*base, *here, *there}
    }


def _met(base: Thing, here: Thing, there: Thing) -> Thing:
    if HOLLOW in (here, there) or base == UNKNOWN:
        return UNKNOWN
    if here in (base, there):
        return there
    if there == base:
        return here
    if isinstance(base, Content) and isinstance(here, Content) and isinstance(there, Content):
        data = [each.data for each in (here, there) if each.data != base.data] or [base.data]
        mode = [each.mode for each in (here, there) if each.mode != base.mode] or [base.mode]
        return Content(data[0], mode[0]) if len({*data}) == 1 else CLASH
    return CLASH


def around(path: str) -> Iterable[str]:
    """Yield every folder around a path."""
    return (path[:at] for at, letter in enumerate(path) if letter == "/")


def is_in(path: str, others: Iterable[str]) -> bool:
    """Say whether a path is one of `others`, or in one of them."""
    return any((path + "/").startswith(other + "/") for other in others)


def is_apart(path: str, others: Iterable[str]) -> bool:
    """Say whether none of `others` is at a path, around it or in it."""
    return not is_in(path, others) and not any(is_in(other, [path]) for other in others)


def claim(side: Picture, wanted: Picture, conflicts: Iterable[str]) -> None:
    """Claim that a side is what is `wanted`, but for conflicts and for what nobody knows."""
    for path in {*side, *wanted}:
        is_now, should = side.get(path, ABSENT), wanted.get(path, ABSENT)
        if not is_apart(path, conflicts) or UNKNOWN in (is_now, should) or is_now == HOLLOW:
            continue
        if should == ABSENT and is_now == FOLDER and any(path in around(each) for each in wanted):
            continue
        assert is_now == should, f"{path!r} is {is_now!r:.80}, and should be {should!r:.80}"


def claim_untouched(before: Picture, after: Picture, conflicts: Iterable[str]) -> None:
    """Claim that what is in conflict is on a side as it was."""
    for path in {*before, *after}:
        if is_in(path, conflicts):
            assert before.get(path) == after.get(path), f"{path!r} is in conflict, and was changed"


def claim_told(wanted: Picture, conflicts: Iterable[str]) -> None:
    """Claim that every conflict there is was told."""
    for path, each in wanted.items():
        assert each != CLASH or not is_apart(path, conflicts), f"{path!r} is in conflict, and nobody said so"


def agreed_after(base: Picture, now: Picture, conflicts: Iterable[str]) -> dict[str, Thing]:
    """Return what is agreed on when `now` is, but for conflicts, which are as before."""
    agreed = {path: each for path, each in now.items() if not is_in(path, conflicts)}
    agreed |= {path: each for path, each in base.items() if is_in(path, conflicts)}
    for path in conflicts:
        agreed |= {above: UNKNOWN for above in around(path)}
    return {path: UNKNOWN if each == HOLLOW else each for path, each in agreed.items()}


def versions(*pictures: Picture) -> set[Thing]:
    """Return every version of a file or a link that somebody has."""
    return {each for picture in pictures for each in picture.values() if not isinstance(each, str)}
