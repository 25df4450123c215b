"""Which lines of two texts belong together, found in bounded time.

Lines that each text has exactly once are the anchors: the longest run of them that is in the same order on
both sides holds the texts together (patience diff), and between two anchors the same is done again. Where
there are none, the fewest changes are searched for (Myers). Whoever writes the texts may be hostile, so there
is a budget; what it does not reach counts as replaced, which is never wrong, only longer than need be.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from math import isqrt
from typing import NamedTuple

_BUDGET = 2_000_000
"""Lines looked at in all: about a second."""
_MOST_EDITS = 400
"""How far Myers' search goes; it costs the square of this, which comes out of the budget."""


class Match(NamedTuple):
    """So many lines from `old` on are those from `new` on."""

    old: int
    new: int
    lines: int


class _Section(NamedTuple):
    old: int
    old_end: int
    new: int
    new_end: int


def matches(old: Sequence[bytes], new: Sequence[bytes]) -> list[Match]:
    """Return what the two have in common, in order; no two matches touch."""
    found: list[Match] = []
    budget = _BUDGET
    waiting = [_Section(0, len(old), 0, len(new))]
    while waiting:
        section, ends = _trimmed(old, new, waiting.pop())
        found += ends
        budget -= 1 + section.old_end - section.old + section.new_end - section.new
        if budget < 0 or section.old == section.old_end or section.new == section.new_end:
            continue
        anchors = _anchors(old, new, section)
        if anchors:
            waiting += _between(section, anchors)
            found += (Match(at, other, 1) for at, other in anchors)
        else:
            matched, looked_at = _fewest_edits(old, new, section, min(_MOST_EDITS, isqrt(budget)))
            found += matched
            budget -= looked_at
    return list(_joined(sorted(found)))


def _trimmed(old: Sequence[bytes], new: Sequence[bytes], section: _Section) -> tuple[_Section, list[Match]]:
    """Return a section without the lines that are the same at both its ends, and those."""
    begin, old_end, other, new_end = section
    while begin < old_end and other < new_end and old[begin] == new[other]:
        begin, other = begin + 1, other + 1
    head = Match(section.old, section.new, begin - section.old)
    while begin < old_end and other < new_end and old[old_end - 1] == new[new_end - 1]:
        old_end, new_end = old_end - 1, new_end - 1
    tail = Match(old_end, new_end, section.old_end - old_end)
    ends = [match for match in (head, tail) if match.lines]
    return _Section(begin, old_end, other, new_end), ends


def _anchors(old: Sequence[bytes], new: Sequence[bytes], section: _Section) -> list[tuple[int, int]]:
    """Return the longest list of pairs, rising on both sides, of lines that are there once on each."""
    theirs = _once(new, section.new, section.new_end)
    ours = _once(old, section.old, section.old_end)
    pairs = [(at, theirs[line]) for line, at in ours.items() if line in theirs]
    return _rising(pairs)


def _once(lines: Sequence[bytes], begin: int, end: int) -> dict[bytes, int]:
    counted = Counter(lines[begin:end])
    return {lines[at]: at for at in range(begin, end) if counted[lines[at]] == 1}


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest rising subsequence by the second of each; the first ones rise already."""
    tops: list[int] = []
    piles: list[int] = []
    """Of each length, the pair that such a sequence ends with at the lowest."""
    before: list[int] = []
    for number, (_, value) in enumerate(pairs):
        pile = bisect_left(tops, value)
        before.append(piles[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [value]
        piles[pile : pile + 1] = [number]
    chosen = []
    number = piles[-1] if piles else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]


def _between(section: _Section, anchors: list[tuple[int, int]]) -> Iterator[_Section]:
    at, other = section.old, section.new
    for next_at, next_other in (*anchors, (section.old_end, section.new_end)):
        yield _Section(at, next_at, other, next_other)
        at, other = next_at + 1, next_other + 1


def _fewest_edits(
    old: Sequence[bytes], new: Sequence[bytes], section: _Section, most: int
) -> tuple[list[Match], int]:
    """Return the matches of a shortest edit script, none at all if it takes more than `most` edits.

    With them, how many lines were looked at.
    """
    ours, theirs = old[section.old : section.old_end], new[section.new : section.new_end]
    reach: dict[int, int] = {1: 0}
    trace: list[dict[int, int]] = []
    looked_at = 0
    for edits in range(min(len(ours) + len(theirs), most) + 1):
        trace.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            begin = at = _furthest(reach, diagonal, edits)
            while at < len(ours) and at - diagonal < len(theirs) and ours[at] == theirs[at - diagonal]:
                at += 1
            reach[diagonal] = at
            looked_at += 1 + at - begin
            if at >= len(ours) and at - diagonal >= len(theirs):
                return _traced(trace, section, len(ours), len(theirs)), looked_at
    return [], looked_at


def _furthest(reach: dict[int, int], diagonal: int, edits: int) -> int:
    """Return how far one more edit leads on a diagonal: a line of theirs put in, or one of ours left out."""
    if diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]):
        return reach[diagonal + 1]
    return reach[diagonal - 1] + 1


def _traced(trace: list[dict[int, int]], section: _Section, at: int, other: int) -> list[Match]:
    found = []
    for edits in range(len(trace) - 1, -1, -1):
        reach, diagonal = trace[edits], at - other
        begin = _furthest(reach, diagonal, edits)
        if at > begin:
            found.append(Match(section.old + begin, section.new + begin - diagonal, at - begin))
        down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
        at, other = (begin, begin - diagonal - 1) if down else (begin - 1, begin - diagonal)
    return found


def _joined(found: list[Match]) -> Iterator[Match]:
    last: Match | None = None
    for match in found:
        if last is not None and (last.old + last.lines, last.new + last.lines) == match[:2]:
            last = Match(last.old, last.new, last.lines + match.lines)
            continue
        if last is not None:
            yield last
        last = match
    if last is not None:
        yield last
