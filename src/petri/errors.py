"""Every way Petri says no. This docstring is the whole tree.

    PetriError
    ├── CallerError           the request cannot be honoured as asked
    │   ├── Invalid               the request itself makes no sense
    │   ├── InvalidField          well-formed, but one field cannot be: names it
    │   ├── Unauthorized          no key, or one nobody issued
    │   ├── Forbidden             a known caller who may not do this
    │   ├── OverQuota             the tenant has as much as it may; something must go first
    │   ├── NotFound              no such sandbox, run or file
    │   ├── Conflict              right request, wrong moment
    │   │   └── PathsConflict         both sides of a sync changed the same paths: names them
    │   ├── PreconditionFailed    `If-Match` names another version
    │   ├── BaseUnknown           a sync starts from what the server does not have
    │   ├── TooLarge              more bytes or files than allowed
    │   ├── BadRange              the file has no such bytes
    │   └── Busy                  as much is running as may; come back soon
    └── HostError             the request was fine, this host could not honour it
        ├── Unavailable           a layer, the ledger or the engine is out of reach
        ├── StorageFull           no space left where the workspaces are
        └── EngineFailed          the command never got to run

A command that exits 1, dies by a signal or runs out of time is not an error.
"""

from collections.abc import Sequence
from typing import ClassVar


def counted(number: int, noun: str) -> str:
    """Return how many there are, in words that agree: `1 file`, `2 files`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x')) else 's'}"


class PetriError(Exception):
    """Base of all. `message` is for the caller, `detail` only for our log."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, detail: str = "", field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.field = field
        """The part of the request that was wrong, where one part was."""


class CallerError(PetriError):
    """The caller can mend it by asking otherwise, or later."""


class Invalid(CallerError):
    """The request itself makes no sense."""

    code = "invalid_request"


class InvalidField(CallerError):
    """Well-formed, but `field` cannot be what it is."""

    code = "invalid_field"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message, field=field)


class Unauthorized(CallerError):
    """No key, or one nobody issued."""

    code = "unauthorized"


class Forbidden(CallerError):
    """A known caller who may not do this."""

    code = "forbidden"


class OverQuota(CallerError):
    """The tenant has as much as it may. Waiting does not help: something must go first."""

    code = "over_quota"


class NotFound(CallerError):
    """No such sandbox, run or file; also what is somebody else's."""

    code = "not_found"


class Conflict(CallerError):
    """Right request, wrong moment."""

    code = "conflict"


class PathsConflict(Conflict):
    """Both sides of a sync changed the same paths, each in its own way. Nothing was applied."""

    code = "paths_conflict"

    def __init__(
        self,
        message: str,
        *,
        detail: str = "",
        field: str | None = None,
        conflicts: Sequence[tuple[bytes, str]] = (),
    ) -> None:
        super().__init__(message, detail=detail, field=field)
        self.conflicts = tuple(conflicts)
        """Each path, and why."""


class PreconditionFailed(CallerError):
    """`If-Match` or `If-None-Match` names another version than the one there."""

    code = "precondition_failed"


class BaseUnknown(CallerError):
    """A sync starts from a tree, or needs a content, that the server does not have or has no more."""

    code = "base_unknown"


class TooLarge(CallerError):
    """More bytes or files than this server takes in one request."""

    code = "too_large"


class BadRange(CallerError):
    """The file has no such bytes."""

    code = "range_not_satisfiable"


class Busy(CallerError):
    """As much is running or waiting as may. Nothing was started."""

    code = "busy"
    retryable = True


class HostError(PetriError):
    """The request was fine; this host could not honour it."""

    retryable = True


class Unavailable(HostError):
    """A protective layer, the ledger or the engine is out of reach; says what would help."""

    code = "unavailable"


class StorageFull(HostError):
    """No space left on the disk, or in the sandbox's share of it. Nothing was written."""

    code = "storage_full"
    retryable = False


class EngineFailed(HostError):
    """The command never got to run, or the engine lost it."""

    code = "engine_failed"
