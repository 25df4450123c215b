"""One pattern of an ignore file, as git reads it: git's wildmatch and the shortcuts around it, on bytes.

A pattern becomes a regular expression in which a star with more behind it takes the first place that fits
and never gives it back. For these patterns the first place is as good as any later one, so nothing is lost,
and no pattern takes exponential time.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

_SPECIAL = re.compile(rb"[*?\[\\]")
_NEVER = b"(?!)"
_SLASH, _STAR, _BACKSLASH, _MINUS, _OPEN, _CLOSE = b"/*\\-[]"

_LOWER, _UPPER, _DIGITS = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
_CLASSES = {
    b"alnum": _LOWER + _UPPER + _DIGITS,
    b"alpha": _LOWER + _UPPER,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, (*range(32), 127))),
    b"digit": _DIGITS,
    b"graph": "".join(map(chr, range(33, 127))),
    b"lower": _LOWER,
    b"print": "".join(map(chr, range(32, 127))),
    b"punct": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    b"space": " \t\n\r",
    b"upper": _UPPER,
    b"xdigit": _DIGITS + "abcdefABCDEF",
}


class Pattern(NamedTuple):
    """One line of an ignore file. It is about names if it has no slash but at its end, else about paths."""

    includes: bool
    """It begins with `!`: what it is about is not ignored."""
    folders_only: bool
    names: bool
    literal: bytes
    """What it is about begins with this, and is just this if there is no `glob`."""
    glob: bytes
    """From the first special character on. git treats this part as if nothing preceded it."""

    @property
    def suffix(self) -> bytes | None:
        """What names end with, if that is all the pattern says: `*.pyc`."""
        if not self.names or self.literal or self.glob[:1] != b"*" or _SPECIAL.search(self.glob, 1):
            return None
        return self.glob[1:]

    def regex(self) -> bytes:
        """Return the expression that a whole name, or a whole path, must match."""
        *groups, last = _groups(self.glob)
        # A group that another `**` follows takes the first folder that fits, and keeps it.
        return re.escape(self.literal) + b"".join(b"(?>" + group + b")" for group in groups) + last


def parse(content: bytes) -> Iterator[Pattern]:
    """Yield the patterns of an ignore file, in order."""
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        text = _trimmed(line.removesuffix(b"\r").partition(b"\0")[0])
        if not text.startswith(b"#") and (found := _pattern(text)) is not None:
            yield found


def _pattern(text: bytes) -> Pattern | None:
    includes = text.startswith(b"!")
    text = text[1:] if includes else text
    folders_only = text.endswith(b"/")
    text = text[:-1] if folders_only else text
    names = b"/" not in text
    text = text.removeprefix(b"/")
    if not text:
        return None
    special = _SPECIAL.search(text)
    literal = len(text) if special is None else special.start()
    return Pattern(includes, folders_only, names, text[:literal], text[literal:])


def _trimmed(line: bytes) -> bytes:
    """Return `line` without the spaces at its end, but for one behind a backslash."""
    end = None
    at = 0
    while at < len(line):
        if line[at] != ord(" "):
            end = None
        elif end is None:
            end = at
        at += 2 if line[at] == _BACKSLASH else 1
    return line[:end]


def _groups(glob: bytes) -> Iterator[bytes]:
    """Yield the expression in parts: each begins with a `**` that stands for folders, but for the first."""
    runs = [b""]
    """What precedes the first star of this group, then each star with what follows it."""
    at = 0
    while at < len(glob):
        if glob[at] != _STAR:
            one, at = _one(glob, at)
            runs[-1] += one
            continue
        begin = at
        while glob[at : at + 1] == b"*":
            at += 1
        if at - begin == 1 or not _is_alone(glob, begin, at):
            runs.append(b"[^/]*?")
        else:
            yield _joined(runs)
            deep, at = _deep(glob, at)
            runs = [deep]
    yield _joined(runs)


def _joined(runs: list[bytes]) -> bytes:
    first, *stars = runs
    if not stars:
        return first
    return first + b"".join(b"(?>" + run + b")" for run in stars[:-1]) + stars[-1]


def _is_alone(glob: bytes, begin: int, end: int) -> bool:
    """Say whether the stars in between are all of a name."""
    precedes = begin == 0 or glob[begin - 1] == _SLASH
    return precedes and (end == len(glob) or glob[end] == _SLASH or glob[end : end + 2] == b"\\/")


def _deep(glob: bytes, at: int) -> tuple[bytes, int]:
    """Return what a `**` that ends at `at` matches, with the slash behind it, and where the glob goes on."""
    if at == len(glob):
        return b".*", at
    if glob[at] == _SLASH:
        return b"(?:.*?/)??", at + 1
    return b".*?/", at + 2


def _one(glob: bytes, at: int) -> tuple[bytes, int]:
    """Return what one thing that is no star matches, and where the glob goes on."""
    if glob[at] == ord("?"):
        return b"[^/]", at + 1
    if glob[at] == _OPEN:
        return _bracket(glob, at + 1)
    if glob[at] == _BACKSLASH:
        escaped = glob[at + 1 : at + 2]
        return re.escape(escaped) or _NEVER, at + 2
    return re.escape(glob[at : at + 1]), at + 1


def _bracket(glob: bytes, at: int) -> tuple[bytes, int]:
    """Return what the bracket expression that opened before `at` matches, and where it ends."""
    negated = glob[at : at + 1] in (b"!", b"^")
    at += negated
    first = at
    members: set[int] = set()
    before = 0
    try:
        while glob[at] != _CLOSE or at == first:
            before, at = _member(glob, at, before, members)
    except IndexError:
        return _NEVER, len(glob)  # it is not closed
    found = (set(range(256)) - members if negated else members) - {_SLASH}
    return b"[" + b"".join(_ranges(sorted(found))) + b"]" if found else _NEVER, at + 1


def _ranges(members: list[int]) -> Iterator[bytes]:
    """Yield bytes as ranges: one by one, a file of `[!x]` would be a thousand times as long as it is."""
    for _, run in groupby(enumerate(members), lambda each: each[1] - each[0]):
        inside = [member for _, member in run]
        yield b"\\x%02x-\\x%02x" % (inside[0], inside[-1])


def _member(glob: bytes, at: int, before: int, members: set[int]) -> tuple[int, int]:
    """Add one member; return what a range might begin with, and where the bracket goes on."""
    byte = glob[at]
    if byte == _BACKSLASH:
        members.add(glob[at + 1])
        return glob[at + 1], at + 2
    if byte == _MINUS and before and glob[at + 1] != _CLOSE:
        at += 2 if glob[at + 1] == _BACKSLASH else 1
        members.update(range(before, glob[at] + 1))
        return 0, at + 1
    if byte == _OPEN and glob[at + 1] == ord(":"):
        return _class(glob, at, members)
    members.add(byte)
    return byte, at + 1


def _class(glob: bytes, at: int, members: set[int]) -> tuple[int, int]:
    """Add a class such as `[:alpha:]`, or the bracket that seemed to begin one."""
    end = glob.find(b"]", at + 2)
    if end < 0:
        raise IndexError
    if end == at + 2 or glob[end - 1] != ord(":"):
        members.add(_OPEN)
        return _OPEN, at + 1
    name = glob[at + 2 : end - 1]
    if name not in _CLASSES:
        raise IndexError
    members.update(map(ord, _CLASSES[name]))
    return 0, end + 1
