"""Errors become HTTP here and nowhere else."""

import base64
import difflib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Scope

from petri import errors
from petri.errors import PetriError
from petri.wire import FIELDS, MEANT, PathConflict, Problem

_log = logging.getLogger("petri.api")

STATUS: Mapping[type[PetriError], int] = {
    errors.Invalid: 400,
    errors.InvalidField: 422,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.OverQuota: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.PathsConflict: 409,
    errors.PreconditionFailed: 412,
    errors.BaseUnknown: 412,
    errors.TooLarge: 413,
    errors.BadRange: 416,
    errors.Busy: 429,
    errors.Unavailable: 503,
    errors.StorageFull: 507,
    errors.EngineFailed: 503,
}
RETRY_AFTER_S = 1
_MEDIA = "application/problem+json"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_LONGEST_DETAIL = 1000
_LONGEST_FIELD = 200
_MOST_CONFLICTS = 1000
"""Named in one answer; a person looks at fewer."""

DOCUMENTED: dict[int | str, dict[str, Any]] = {
    code: {"description": what, "content": {_MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for code, what in (
        (
            "4XX",
            "The request cannot be honoured as asked; `code` and `detail` say why and what would be right.",
        ),
        ("5XX", "The request was fine, this host could not honour it."),
        (422, "A field cannot be what it is; `field` names it."),
    )
}
"""What every route may answer besides what it promises."""


def install(app: FastAPI) -> None:
    """Have every error of `app` answered as a problem."""
    app.add_exception_handler(PetriError, _on_petri_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(ClientDisconnect, _on_hang_up)
    app.add_exception_handler(Exception, _on_bug)


async def answer_logged(request: Request, error: PetriError | ClientDisconnect) -> JSONResponse:
    """Return `error` as the answer to a request, with a line in the log if there is something to tell."""
    return await (_on_petri_error if isinstance(error, PetriError) else _on_hang_up)(request, error)


def answer(error: PetriError) -> JSONResponse:
    """Return `error` as the answer to a request."""
    status = STATUS[type(error)]
    headers = _retry(status)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    told = problem(error)
    if isinstance(error, errors.PathsConflict):
        told.conflicts = [_conflict(path, reason) for path, reason in error.conflicts[:_MOST_CONFLICTS]]
    return _response(told, headers)


def bare_problem(status: int, code: str, detail: str) -> JSONResponse:
    """Return the answer to what is no request yet; `docs/errors.md` has these codes too."""
    return _problem(status, code, detail, None, _retry(status))


def bug() -> JSONResponse:
    """Return the answer when Petri itself failed; why is for the log alone."""
    return _problem(500, "bug", "Petri failed in a way it should not; the server's log has the details")


def _retry(status: int) -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else {}


def problem(error: PetriError) -> Problem:
    """Return `error` as it stands in an answer or an event."""
    return _body(STATUS[type(error)], error.code, error.message, error.field)


def _body(status: int, code: str, detail: str, field: str | None) -> Problem:
    return Problem(
        type=f"urn:petri:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_short(detail, _LONGEST_DETAIL),
        code=code,
        field=_short(field, _LONGEST_FIELD) if field else None,
    )


def _short(text: str, longest: int) -> str:
    """Return `text` fit for an answer: what it quotes of the request may be long, or no Unicode at all."""
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= longest else text[:longest] + "…"


def _problem(
    status: int, code: str, detail: str, field: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return _response(_body(status, code, detail, field), headers)


def _response(problem: Problem, headers: Mapping[str, str] | None) -> JSONResponse:
    return JSONResponse(problem.model_dump(exclude_none=True), problem.status, headers, _MEDIA)


def _conflict(path: bytes, reason: str) -> PathConflict:
    shown = path.decode(errors="replace")
    is_text = shown.encode() == path
    exact = None if is_text else base64.b64encode(path).decode()
    return PathConflict(path=shown, path_base64=exact, reason=_short(reason, _LONGEST_DETAIL))


async def _on_petri_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PetriError)
    if error.detail:
        _log.warning("%s: %s (%s)", error.code, error.message, error.detail)
    return answer(error)


async def _on_validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = _telling(error.errors())
    if first["type"] == "json_invalid":
        return answer(
            errors.Invalid(
                f"the body is not JSON: {_unlike_json(first['ctx']['error'])} at byte {first['loc'][-1]}"
            )
        )
    field = _field(first["loc"])
    if first["type"] == "extra_forbidden":
        return answer(
            errors.InvalidField(field, f"there is no field {field!r} here{_nearest(first['loc'][-1])}")
        )
    if first["type"] in ("model_type", "model_attributes_type"):
        what = f"{field}: this" if field else "the body"
        return answer(errors.InvalidField(field, f"{what} must be a JSON object, such as {{}}"))
    kind = str(first.get("ctx", {}).get("pattern", first["type"]))
    message = MEANT.get(kind) or _plainly(str(first["msg"]))
    return answer(errors.InvalidField(field, f"{field}: {message}" if field else message))


def _plainly(said: str) -> str:
    """Return what pydantic says of a value, without what only programmers need."""
    return said.removeprefix("Value error, ").replace(" after validation", "")


def _telling(found: Sequence[Any]) -> Any:
    """Return what is wrong with the first field that is: of what may be text or a list, in the list sent."""

    def told(each: Any) -> tuple[int, bool]:
        return len(each["loc"]), not each["type"].endswith("_type")

    place = found[0]["loc"][:2]  # where FastAPI found it, and the field
    return max((each for each in found if each["loc"][:2] == place), key=told)


def _unlike_json(said: str) -> str:
    """Return what a parser said, as a part of our sentence: some of its own end with an `at`."""
    return said.removesuffix(" at").removesuffix(" starting")


def _nearest(name: object) -> str:
    """Return a hint at the field that was probably meant, if one is near."""
    if name in FIELDS:  # of something else, and whoever asked has it right already
        return ""
    near = difflib.get_close_matches(str(name)[:80], FIELDS, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _problem(404, "not_found", "there is nothing at this address; /docs lists what there is")
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        detail = f"this address takes {allowed}, not {request.method[:20]!r}"
        return _problem(405, "method_not_allowed", detail, None, {"Allow": allowed})
    detail = str(error.detail) if error.__cause__ is None else _unread(error.__cause__)
    return _problem(error.status_code, "invalid_request", detail, None, error.headers)


def _unread(why: BaseException) -> str:
    """Return why a body could not be parsed, where FastAPI only says that it could not."""
    if isinstance(why, RecursionError):
        return "the body is not JSON that can be read: it is nested too deeply"
    if isinstance(why, UnicodeDecodeError):
        return f"the body is not JSON: it is no UTF-8 at byte {why.start}"
    return "the body is not JSON that can be read: a number in it has too many digits"


def _methods(request: Request) -> list[str]:
    """Return everything the address takes; Starlette tells only what its first route there does."""
    routes = request.app.routes
    asked = {method: {**request.scope, "method": method} for method in _METHODS}
    asked["HEAD"] = asked["GET"]  # see `head.py`
    return [name for name in _METHODS if any(each.matches(asked[name])[0] is Match.FULL for each in routes)]


@contextmanager
def breaking_off(scope: Scope) -> Iterator[None]:
    """Say in one line why an answer that has begun cannot go on; left unfinished, the front cuts it off."""
    try:
        yield
    except (PetriError, OSError) as error:
        _log.warning("%s %s broke off: %s", scope["method"], scope["path"], error)


async def _on_hang_up(request: Request, _: Exception) -> JSONResponse:
    _log.info("%s %s: the request did not come whole", request.method, request.scope["path"])
    return _problem(400, "invalid_request", "the request ends in the middle; nothing was done")


async def _on_bug(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed", request.method, request.scope["path"], exc_info=error)
    return bug()


def _field(place: tuple[Any, ...]) -> str:
    """Return where in the request something is wrong, without the part FastAPI calls it by, its first."""
    parts = [str(part) for part in place[1:]]
    return ".".join(part for part in parts if not part.startswith(("function-after[", "list[")))  # pydantic's
