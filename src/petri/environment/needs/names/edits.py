"""Misspellings: which famous name is one slip of the fingers away."""

from collections.abc import Iterator, Mapping

SHORTEST = 5
"""Short names are close to each other by nature: `six` is no misspelling of `sox`."""
MOST_CHARACTERS = 60
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-_./"


def meant(name: str, famous: Mapping[str, int]) -> str | None:
    """Return the most used famous name that is one edit from `name`, or None if there is none.

    An edit is a character left out, put in, taken for another, or two that changed places.
    """
    lowered = name.lower()
    if lowered != name and lowered in famous:
        return lowered
    if not SHORTEST <= len(lowered) <= MOST_CHARACTERS:
        return None
    near = {each for each in _one_edit_from(lowered) if each in famous and len(each) >= SHORTEST - 1}
    return min(near - {name}, key=lambda each: (famous[each], each), default=None)


def _one_edit_from(name: str) -> Iterator[str]:
    for at in range(len(name) + 1):
        start, end = name[:at], name[at:]
        if end:
            yield start + end[1:]
        if len(end) > 1:
            yield start + end[1] + end[0] + end[2:]
        for letter in _LETTERS:
            yield start + letter + end
            if end:
                yield start + letter + end[1:]
