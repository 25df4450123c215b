"""What went wrong, as the classes of `petri.errors`: one place, so that every call says no alike."""

from collections.abc import Mapping
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from petri import errors
from petri.errors import InvalidField, PetriError, Unavailable
from petri.wire import Problem

T = TypeVar("T", bound=BaseModel)

BY_CODE: Mapping[str, type[PetriError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    # Only classes that name a code of their own: a branch of the tree inherits its parent's.
    if isinstance(kind, type) and issubclass(kind, PetriError) and "code" in vars(kind)
}
"""A class is found by its code in here, never by a name that came over the wire."""


def from_problem(problem: Problem) -> PetriError:
    """Return the error `problem` names; one this release does not know is a plain `PetriError`."""
    kind = BY_CODE.get(problem.code, PetriError)
    if kind is InvalidField:
        return InvalidField(problem.field or "", problem.detail)
    return kind(problem.detail, field=problem.field)


def from_answer(response: httpx.Response) -> PetriError:
    """Return what a refusal says. Its body must have been read."""
    try:
        return from_problem(Problem.model_validate_json(response.content))
    except ValidationError:
        return _not_ours(response)


def from_failure(failure: httpx.TransportError, url: str) -> PetriError:
    """Return a sentence for a conversation that broke, or never began."""
    if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout):
        return Unavailable(
            f"no Petri server answers at {url}; start one with `make serve` or set PETRI_URL",
            detail=str(failure),
        )
    if isinstance(failure, httpx.TimeoutException):
        return Unavailable(f"the server at {url} fell silent", detail=repr(failure))
    return Unavailable(f"the connection to {url} broke before the answer was whole", detail=repr(failure))


def understood(content: bytes, kind: type[T], url: str) -> T:
    """Return `content` as `kind`, or raise a sentence if whoever answers there does not speak Petri."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise PetriError(
            f"what {url} answered is not Petri's: is PETRI_URL right?", detail=str(error)
        ) from None


def _not_ours(response: httpx.Response) -> PetriError:
    said = f"{response.status_code} {response.reason_phrase}".strip()
    kind = Unavailable if response.status_code in (502, 503, 504) else PetriError
    return kind(f"{response.request.url} answered {said}, and not as Petri does: is PETRI_URL right?")
