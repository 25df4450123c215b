"""`If-Match` and `If-None-Match`: change a file only if it is still the one the caller saw."""

from dataclasses import dataclass

from petri.errors import Conflict, Invalid, NotFound, PreconditionFailed
from petri.workspace.digests import Digests
from petri.workspace.errand import Errand
from petri.workspace.listing import look
from petri.workspace.paths import quoted
from petri.workspace.reading import open_file
from petri.workspace.versions import Version, names_a_digest

_UNREADABLE = Version(None, "", is_weak=True)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a caller demands of the version that is there, as the headers have it."""

    if_match: str | None = None
    if_none_match: str | None = None

    def __bool__(self) -> bool:
        return self.if_match is not None or self.if_none_match is not None

    @property
    def name_a_digest(self) -> bool:
        """Whether they can only be judged by hashing what is there."""
        return names_a_digest(self.if_match, self.if_none_match)

    def require(self, path: str, current: Version | None) -> None:
        """Raise unless the version `current` is one that the caller agrees to replace."""
        if self.if_match is not None and not (current and current.is_named(self.if_match, surely=True)):
            there = "there is no such file" if current is None else "it has changed since"
            raise PreconditionFailed(f"{quoted(path)} is not the version that If-Match names: {there}")
        if self.if_none_match is not None and current and current.is_named(self.if_none_match, surely=False):
            raise PreconditionFailed(f"{quoted(path)} is there already, as If-None-Match forbids")


def current_version(
    workspace: int, path: str, digests: Digests, conditions: Conditions, errand: Errand
) -> Version | None:
    """Return the version of what is at `path`, with the digest if `conditions` name one; None if nothing."""
    try:
        look(workspace, path)
    except NotFound:
        return None
    try:
        with open_file(workspace, path, digests, errand) as file:
            if conditions.name_a_digest:
                file.hash(errand)
            return file.version
    except (Conflict, Invalid, NotFound):
        return _UNREADABLE
