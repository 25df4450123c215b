"""Misspellings: which famous name is one slip of the fingers away."""

from collections.abc import Iterator, Mapping

SHORTEST = 5
"""Short names are close to each other by nature: `six` is no misspelling of `sox`."""
SHORTEST_SWAPPED = 4
"""But `tqmd` is one of `tqdm`: the letters are the same."""
MOST_CHARACTERS = 60
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-_./"


def meant(name: str, famous: Mapping[str, int]) -> str | None:
    """Return the most used famous name that is one edit from `name`, or None if there is none.

    An edit is a character left out, put in, taken for another, or two that changed places.
    """
    lowered = name.lower()
    if lowered != name and lowered in famous:
        return lowered
    if not SHORTEST_SWAPPED <= len(lowered) <= MOST_CHARACTERS:
        return None
    edits = _swaps(lowered) if len(lowered) < SHORTEST else _one_edit_from(lowered)
    near = {each for each in edits if each in famous and len(each) >= SHORTEST - 1}
    return min(near - {name}, key=lambda each: (famous[each], each), default=None)


def _swaps(name: str) -> Iterator[str]:
    for at in range(len(name) - 1):
        yield name[:at] + name[at + 1] + name[at] + name[at + 2 :]


def _one_edit_from(name: str) -> Iterator[str]:
    yield from _swaps(name)
    for at in range(len(name) + 1):
        start, end = name[:at], name[at:]
        if end:
            yield start + end[1:]
        for letter in _LETTERS:
            yield start + letter + end
            if end:
                yield start + letter + end[1:]
