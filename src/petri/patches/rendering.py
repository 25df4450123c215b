"""One change of a tree as text that `git apply` and `patch` understand."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from petri.patches.matching import Match, matches
from petri.trees import Entry, File, Folder, Link

_CONTEXT = 3
_NO_NEWLINE = b"\n\\ No newline at end of file\n"
_LINK_MODE = "120000"
_QUOTED = dict(zip(b'"\\\a\b\t\n\v\f\r', [b"\\" + bytes([each]) for each in b'"\\abtnvfr'], strict=True))

Read = Callable[[File], bytes | None]
"""Gives a file's content; nothing if it is too large to be shown, or not kept."""


class Patch(NamedTuple):
    """A change as text, and what it comes to."""

    text: str
    """Empty where there is no telling it by lines."""
    added: int = 0
    removed: int = 0
    remark: str | None = None
    """What the text leaves out, and why."""


def render(path: bytes, old: Entry | None, new: Entry | None, read: Read) -> Patch:
    """Return what turns `old` at `path` into `new`. A folder stands for itself alone, as an empty one."""
    if _is_same_kind(old, new):
        return _rendered(path, old, new, read)
    # What was a file and is a link: git, too, says that one is gone and the other new.
    gone, come = _rendered(path, old, None, read), _rendered(path, None, new, read)
    remarks = [remark for remark in (gone.remark, come.remark) if remark is not None]
    return Patch(gone.text + come.text, come.added, gone.removed, "; ".join(remarks) or None)


def _is_same_kind(old: Entry | None, new: Entry | None) -> bool:
    return old is None or new is None or type(old) is type(new)


def _rendered(path: bytes, old: Entry | None, new: Entry | None, read: Read) -> Patch:
    if isinstance(old, Folder) or isinstance(new, Folder):
        return Patch("", remark="an empty folder, which no patch can hold")
    before, after = _text(old, read), _text(new, read)
    if before is None or after is None:
        return Patch(_mode_alone(path, old, new), remark=f"not text: {_sizes(old, new)}")
    hunks, added, removed = _hunks(before, after)
    remark = None if hunks or _mode(old) != _mode(new) or not (old and new) else "only a permission changed"
    text = _head(path, old, new, has_hunks=bool(hunks)) + hunks
    return Patch("" if remark else text.decode(), added, removed, remark)


def _mode_alone(path: bytes, old: Entry | None, new: Entry | None) -> str:
    """Return the part of a change that can be told of a file that is not text: whether it may be run."""
    if old is None or new is None or _mode(old) == _mode(new):
        return ""
    return _head(path, old, new, has_hunks=False).decode()


def _sizes(old: Entry | None, new: Entry | None) -> str:
    return f"{_size(old)} before, {_size(new)} now"


def _size(entry: Entry | None) -> str:
    if not isinstance(entry, File):
        return "nothing"
    return "1 byte" if entry.size == 1 else f"{entry.size} bytes"


def _text(entry: Entry | None, read: Read) -> bytes | None:
    if isinstance(entry, Link):
        return entry.target if _is_text(entry.target) else None
    content = read(entry) if isinstance(entry, File) else b""
    return content if content is not None and _is_text(content) else None


def _is_text(content: bytes) -> bool:
    if b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _mode(entry: Entry | None) -> str:
    if isinstance(entry, File):
        return "100755" if entry.mode & 1 else "100644"
    return _LINK_MODE


def _head(path: bytes, old: Entry | None, new: Entry | None, *, has_hunks: bool) -> bytes:
    ours, theirs = _quoted(b"a/" + path), _quoted(b"b/" + path)
    lines = [b"diff --git %s %s" % (ours, theirs)]
    if old is None:
        lines.append(f"new file mode {_mode(new)}".encode())
    elif new is None:
        lines.append(f"deleted file mode {_mode(old)}".encode())
    elif _mode(old) != _mode(new):
        lines += [f"old mode {_mode(old)}".encode(), f"new mode {_mode(new)}".encode()]
    if has_hunks:
        # A name with a space ends in a tab, as git has it: else `patch` takes what follows for a date.
        end = b"\t" if b" " in path else b""
        lines.append(b"--- " + (b"/dev/null" if old is None else ours + end))
        lines.append(b"+++ " + (b"/dev/null" if new is None else theirs + end))
    return b"\n".join(lines) + b"\n"


def _quoted(path: bytes) -> bytes:
    """Return a path as git writes it: as it is, or in quotes with what is odd escaped."""
    if all(0x20 <= byte < 0x7F and byte not in _QUOTED for byte in path):
        return path
    escaped = (
        _QUOTED.get(byte) or (bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte) for byte in path
    )
    return b'"' + b"".join(escaped) + b'"'


class _Edit(NamedTuple):
    """Lines of the one text that lines of the other stand in place of."""

    old: int
    old_end: int
    new: int
    new_end: int


def _hunks(before: bytes, after: bytes) -> tuple[bytes, int, int]:
    """Return the hunks that turn one text into the other, and how many lines they add and remove."""
    old, new = _lines(before), _lines(after)
    edits = list(_edits(old, new))
    text = b"".join(_hunk(old, new, group) for group in _grouped(edits))
    added = sum(edit.new_end - edit.new for edit in edits)
    return text, added, sum(edit.old_end - edit.old for edit in edits)


def _lines(text: bytes) -> list[bytes]:
    """Return a text's lines with their ends; only the last may have none. Nothing but a newline ends one."""
    *lines, last = text.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _edits(old: list[bytes], new: list[bytes]) -> Iterator[_Edit]:
    at = other = 0
    for match in (*matches(old, new), Match(len(old), len(new), 0)):
        if (at, other) != match[:2]:
            yield _Edit(at, match.old, other, match.new)
        at, other = match.old + match.lines, match.new + match.lines


def _grouped(edits: list[_Edit]) -> Iterator[list[_Edit]]:
    """Yield the edits that share a hunk: those whose contexts would touch."""
    group: list[_Edit] = []
    for edit in edits:
        if group and edit.old - group[-1].old_end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _hunk(old: list[bytes], new: list[bytes], group: list[_Edit]) -> bytes:
    first, last = group[0], group[-1]
    lead = min(_CONTEXT, first.old)
    trail = min(_CONTEXT, len(old) - last.old_end)
    begin, end = first.old - lead, last.old_end + trail
    other, other_end = first.new - lead, last.new_end + trail
    parts = [b"@@ -%s +%s @@\n" % (_range(begin, end), _range(other, other_end))]
    at = begin
    for edit in group:
        parts += _marked(b" ", old[at : edit.old])
        parts += _marked(b"-", old[edit.old : edit.old_end])
        parts += _marked(b"+", new[edit.new : edit.new_end])
        at = edit.old_end
    return b"".join([*parts, *_marked(b" ", old[at:end])])


def _range(begin: int, end: int) -> bytes:
    """Return a range of lines as hunks name it; one of no lines is named by the line before it."""
    lines = end - begin
    if lines == 1:
        return b"%d" % (begin + 1)
    return b"%d,%d" % (begin + 1 if lines else begin, lines)


def _marked(mark: bytes, lines: list[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield mark + (line if line.endswith(b"\n") else line + _NO_NEWLINE)
