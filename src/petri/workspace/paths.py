"""Paths as callers write them, made plain or refused with what would be right.

A string check is never what keeps us inside: `beneath` is. This file gives bad requests a good
answer, keeps new names printable, and gives one name to one file.
"""

import re

from petri.errors import Invalid

MAX_PATH_BYTES = 4096
"""Linux takes no longer path in one call (PATH_MAX)."""
MAX_NAME_BYTES = 255
"""The longest name of every common file system (NAME_MAX)."""
_SHOWN = 200

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNDECODABLE = re.compile(r"[\udc80-\udcff]")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\")


def clean(path: str, *, new: bool, empty: bool = False) -> str:
    """Return `path` relative to the workspace, without empty or `.` parts.

    `new` names must also be printable UTF-8; what sandboxed code made may be any bytes, which
    arrive and leave as surrogate escapes. `empty`: the workspace itself will do.
    """
    path = _one_spelling(path)
    if "\0" in path:
        raise Invalid(f"{quoted(path)} contains a NUL byte; no file name can")
    if path.startswith("/"):
        raise Invalid(f"{quoted(path)} is absolute; give it relative to the workspace, as 'pkg/main.py'")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Invalid(f"{quoted(path)} contains '..'; name the file from the top of the workspace")
    _refuse_long(path, parts)
    if new:
        _refuse_unprintable(path)
    if not parts and not empty:
        raise Invalid("the path is empty; name a file, such as 'main.py'")
    return "/".join(parts)


def clean_member(into: str, name: str) -> str:
    """Return where the archive's member `name` goes: like a new path, and no Windows path either."""
    said = f"the archive's member {quoted(name)} cannot be unpacked"
    if _WINDOWS.match(name) or ".." in name.split("\\"):
        raise Invalid(f"{said}: it looks like a Windows path; archive names use '/' and are relative")
    try:
        return clean(join(into, clean(name, new=True, empty=True)), new=True, empty=True)
    except Invalid as refused:
        raise Invalid(f"{said}: {refused.message}") from None


def clean_target(path: str, target: str) -> str:
    """Return where a new link at `path` points, if that is inside the workspace."""
    target = _one_spelling(target)
    if not target or _CONTROL.search(target) or _UNDECODABLE.search(target):
        raise Invalid(f"the link {quoted(path)} needs a target of printable UTF-8")
    said = f"the link {quoted(path)} → {quoted(target)}"
    if target.startswith("/"):
        raise Invalid(f"{said} is absolute; point it at something by a relative path")
    if len(as_bytes(target)) >= MAX_PATH_BYTES:
        raise Invalid(f"{said} has a target longer than {MAX_PATH_BYTES - 1} bytes")
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            raise Invalid(f"{said} leaves the workspace")
    return target


def quoted(path: str) -> str:
    """Return `path` as it may be shown: in quotes, odd characters escaped, not endless."""
    if not path:
        return "the workspace"
    return repr(path if len(path) <= _SHOWN else path[:_SHOWN] + "…")


def join(folder: str, name: str) -> str:
    """Return the path of `name` in `folder`, which may be the workspace itself."""
    return f"{folder}/{name}" if folder and name else folder or name


def split(path: str) -> tuple[str, str]:
    """Return the folder that `path` is in, and its name there."""
    folder, _, name = path.rpartition("/")
    return folder, name


def fits(path: str) -> bool:
    """Say whether the kernel would take `path` in one call."""
    return len(path) < MAX_PATH_BYTES and len(as_bytes(path)) < MAX_PATH_BYTES


def as_bytes(path: str) -> bytes:
    """Return the bytes the kernel knows `path` by."""
    return path.encode("utf-8", "surrogateescape")


def _one_spelling(path: str) -> str:
    # Escapes that together are valid UTF-8 would be a second spelling of the same bytes.
    try:
        return as_bytes(path).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Invalid(f"{quoted(path)} contains half a surrogate pair; send names as UTF-8") from None


def _refuse_long(path: str, parts: list[str]) -> None:
    if len(as_bytes(path)) > MAX_PATH_BYTES:
        raise Invalid(f"{quoted(path)} is longer than {MAX_PATH_BYTES} bytes; use fewer or shorter folders")
    for part in parts:
        if len(as_bytes(part)) > MAX_NAME_BYTES:
            raise Invalid(f"the name {quoted(part)} is longer than {MAX_NAME_BYTES} bytes; use a shorter one")


def _refuse_unprintable(path: str) -> None:
    if _CONTROL.search(path):
        raise Invalid(f"{quoted(path)} contains a control character; use printable ones")
    if _UNDECODABLE.search(path):
        raise Invalid(f"{quoted(path)} is not UTF-8; send names as UTF-8")
