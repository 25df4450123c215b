"""A refusal's code, and the class of `petri.errors` it stands for. Light, since a sync must start quickly."""

import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from petri import errors
from petri.errors import InvalidField, PathsConflict, PetriError, Unavailable

BY_CODE: Mapping[str, type[PetriError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    # Only classes that name a code of their own: a branch of the tree inherits its parent's.
    if isinstance(kind, type) and issubclass(kind, PetriError) and "code" in vars(kind)
}
"""A class is found by its code in here, never by a name that came over the wire."""


def from_code(code: str, message: str, field: str | None) -> PetriError:
    """Return the error that `code` names; one this release does not know is a plain `PetriError`."""
    kind = BY_CODE.get(code, PetriError)
    if kind is InvalidField:
        return InvalidField(field or "", message)
    return kind(message, field=field)


def no_server(url: str, detail: str) -> PetriError:
    """Return the sentence for a server that is not there."""
    return Unavailable(
        f"no Petri server answers at {url}; start one with `make serve` or set PETRI_URL", detail=detail
    )


def not_ours(url: str, said: str) -> PetriError:
    """Return the sentence for an answer that Petri does not give; `said` begins with its status."""
    kind = Unavailable if said.startswith(("502", "503", "504")) else PetriError
    return kind(f"{url} answered {said}, and not as Petri does: is PETRI_URL right?")


def from_problem_json(told: Any) -> PetriError | None:
    """Return the error a problem names, if that is what `told` is."""
    if not isinstance(told, dict) or not isinstance(told.get("code"), str):
        return None
    message, field = str(told.get("detail", "")), told.get("field")
    if told["code"] == PathsConflict.code:
        return PathsConflict(message, conflicts=list(_conflicts(told.get("conflicts"))))
    return from_code(told["code"], message, field if isinstance(field, str) else None)


def _conflicts(told: Any) -> Iterator[tuple[bytes, str]]:
    for each in told if isinstance(told, list) else ():
        exact = each.get("path_base64")
        path = binascii.a2b_base64(exact) if exact else str(each.get("path", "")).encode()
        yield path, str(each.get("reason", ""))
