"""What every handler is given: the host, the caller, and the odd parts of a request.

All of them are `async` though none waits: FastAPI would run a plain function in a thread, at every request.
"""

import os
from typing import Annotated
from urllib.parse import parse_qs, unquote_to_bytes

from fastapi import Depends, Path, Query, Request
from starlette.convertors import Convertor, register_url_convertor

from petri.operations import Caller, Host

_METADATA = "metadata."


async def _host(request: Request) -> Host:
    host: Host = request.app.state.host
    return host


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _metadata(request: Request) -> dict[str, str]:
    pairs = request.query_params.multi_items()
    return {name.removeprefix(_METADATA): value for name, value in pairs if name.startswith(_METADATA)}


class _AnyPath(Convertor[str]):
    """Any rest of an address. Starlette's own `path` stops at a newline, which a file's name may hold."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", _AnyPath())


async def _file_path(
    request: Request, path: Annotated[str, Path(description="A file's path in the workspace.")]
) -> str:
    """Return the path behind `/files/`, byte for byte: names need not be UTF-8."""
    _, _, raw = request.scope["raw_path"].partition(b"/files/")
    return os.fsdecode(unquote_to_bytes(raw))


async def _listed_path(
    request: Request,
    path: Annotated[str, Query(max_length=4096, description="A folder; default: the top.")] = "",
) -> str:
    """Return the query's `path`, byte for byte."""
    query: bytes = request.scope["query_string"]
    return parse_qs(query.decode("latin-1"), errors="surrogateescape").get("path", [""])[-1]


Limit = Annotated[int, Query(ge=1, le=200)]
Cursor = Annotated[str | None, Query(max_length=200)]
HostOf = Annotated[Host, Depends(_host)]
CallerOf = Annotated[Caller, Depends(_caller)]
MetadataOf = Annotated[dict[str, str], Depends(_metadata)]
FilePath = Annotated[str, Depends(_file_path)]
ListedPath = Annotated[str, Depends(_listed_path)]
