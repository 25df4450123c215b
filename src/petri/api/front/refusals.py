"""How the front says no: a problem like every other, then the line is closed."""

import re
from collections.abc import Iterable
from http import HTTPStatus

from petri.api.hardening import HARDENED
from petri.api.problems import bare_problem
from petri.errors import Invalid, Unavailable

_BREAK = re.compile(rb"[\r\n\0]")
"""What would end a header, or all of them."""
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
Headers = Iterable[tuple[bytes, bytes]]


class Refused(Exception):
    """A request that goes no further than this."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


def nonsense(detail: str) -> Refused:
    """Return the refusal of what is not HTTP, or not what HTTP allows."""
    return Refused(400, Invalid.code, detail)


def too_slow(detail: str) -> Refused:
    """Return the refusal of a request that takes too long to arrive."""
    return Refused(408, "request_timeout", detail)


def turned_away(most: int) -> Refused:
    """Return the refusal of one connection more than there may be."""
    detail = f"{most} connections are open, which is as many as may be (PETRI_MAX_CONNECTIONS); try again"
    return Refused(503, Unavailable.code, detail)


def head_of(status: int, headers: Headers) -> bytes:
    """Return status line and headers as they are sent."""
    lines = [b"HTTP/1.1 %d %s\r\n" % (status, _PHRASES.get(status, "").encode())]
    for name, value in headers:
        if _BREAK.search(name) or _BREAK.search(value):
            raise ValueError(f"{name!r}: {value!r} cannot be a header")
        lines.append(b"%s: %s\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)


def answer_to(refused: Refused, default_headers: Headers) -> bytes:
    """Return a refusal as it is sent."""
    problem = bare_problem(refused.status, refused.code, refused.detail)
    headers = (*default_headers, *problem.raw_headers, *HARDENED, (b"connection", b"close"))
    return head_of(refused.status, headers) + bytes(problem.body)
