"""What went wrong, as the classes of `petri.errors`: one place, so that every call says no alike."""

from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from petri.errors import PetriError, Unavailable
from petri.sdk.codes import from_code, from_problem_json, no_server, not_ours
from petri.wire import Problem

T = TypeVar("T", bound=BaseModel)


def from_problem(problem: Problem) -> PetriError:
    """Return the error `problem` names; one this release does not know is a plain `PetriError`."""
    told = from_problem_json(problem.model_dump()) if problem.conflicts else None
    return told or from_code(problem.code, problem.detail, problem.field)


def from_answer(response: httpx.Response) -> PetriError:
    """Return what a refusal says. Its body must have been read."""
    try:
        return from_problem(Problem.model_validate_json(response.content))
    except ValidationError:
        said = f"{response.status_code} {response.reason_phrase}".strip()
        return not_ours(str(response.request.url), said)


def from_failure(failure: httpx.TransportError, url: str) -> PetriError:
    """Return a sentence for a conversation that broke, or never began."""
    if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout):
        return no_server(url, str(failure))
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
