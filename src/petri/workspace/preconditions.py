"""`If-Match` and `If-None-Match`: change a file only if it is still the one the caller saw."""

from petri.errors import Conflict, Invalid, NotFound, PreconditionFailed
from petri.workspace.digests import Digests
from petri.workspace.listing import look
from petri.workspace.paths import quoted
from petri.workspace.reading import open_file

_UNREADABLE = ""


def current_digest(workspace: int, path: str, digests: Digests) -> str | None:
    """Return the digest of what is at `path`: None if nothing, empty if it is not a readable file."""
    try:
        look(workspace, path)
    except NotFound:
        return None
    try:
        with open_file(workspace, path, digests) as file:
            return file.digest
    except (Conflict, Invalid, NotFound):
        return _UNREADABLE


def require(path: str, current: str | None, *, if_match: str | None, if_none_match: str | None) -> None:
    """Raise unless the version `current` is one that the caller agrees to replace."""
    if if_match is not None and not _names(if_match, current):
        there = "there is no such file" if current is None else "it has changed since"
        raise PreconditionFailed(f"{quoted(path)} is not the version that If-Match names: {there}")
    if if_none_match is not None and _names(if_none_match, current):
        raise PreconditionFailed(f"{quoted(path)} is there already, as If-None-Match forbids")


def _names(tags: str, current: str | None) -> bool:
    if current is None:
        return False
    return tags.strip() == "*" or current in {tag.strip().strip('"') for tag in tags.split(",")}
