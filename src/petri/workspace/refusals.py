"""What the kernel says about a path, as Petri says it: no errno, and never a path of the host."""

import errno
from collections.abc import Callable, Mapping
from types import TracebackType

from petri.errors import Conflict, Invalid, NotFound, PetriError, StorageFull, Unavailable
from petri.workspace.paths import quoted


def _full(_: str) -> PetriError:
    return StorageFull("no space is left where the workspaces are; delete what is not needed and try again")


def _missing(path: str) -> PetriError:
    if not path:
        return NotFound("the workspace is not there any more")
    return NotFound(f"there is no {quoted(path)} in the workspace")


def _leaves(path: str) -> PetriError:
    return Invalid(f"{quoted(path)} passes a link that leads out of the workspace or in a circle")


def _closed(path: str) -> PetriError:
    return Conflict(
        f"the permissions of {quoted(path)} or of its folder forbid this; let the sandbox chmod them first"
    )


def _special(path: str) -> PetriError:
    return Conflict(f"{quoted(path)} is not a regular file")


def _changing(path: str) -> PetriError:
    return Conflict(f"{quoted(path)} kept changing while it was used; try again")


SAID: Mapping[int, Callable[[str], PetriError]] = {
    errno.ENOENT: _missing,
    errno.ENOTDIR: _missing,
    errno.EXDEV: _leaves,
    errno.ELOOP: _leaves,
    errno.EACCES: _closed,
    errno.EPERM: _closed,
    errno.ENXIO: _special,
    errno.ENODEV: _special,
    errno.EAGAIN: _changing,
    errno.ETXTBSY: _changing,
    errno.EISDIR: _changing,
    errno.EEXIST: _changing,
    errno.ENOTEMPTY: _changing,
    errno.ESTALE: _changing,
    errno.ENAMETOOLONG: lambda path: Invalid(f"{quoted(path)} is too long for this host; use shorter names"),
    errno.ENOSPC: _full,
    errno.EDQUOT: _full,
}


def refusal(error: OSError, path: str) -> PetriError:
    """Return what the caller is told when using `path` ended in `error`."""
    said = SAID.get(error.errno or 0)
    if said is not None:
        return said(path)
    return Unavailable(
        "the disk that holds the workspaces could not be used; the server's log says why",
        detail=f"{errno.errorcode.get(error.errno or 0)}: {error.strerror}",
    )


class refusing:
    """Turn what the kernel says about `path` in here into what the caller is told.

    As a generator it would take three times as long, and each run has a dozen.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise refusal(error, self._path) from error
