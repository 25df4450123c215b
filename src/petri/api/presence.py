"""Work for a client who may go away meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import Request

T = TypeVar("T")


async def while_there(request: Request, call_off: Callable[[], None], work: Awaitable[T]) -> T:
    """Return what `work` comes to, and have it called off should the client hang up before.

    To be used once the body has been read, or where none is wanted: what comes meanwhile is thrown away.
    """
    leaving = asyncio.ensure_future(_left(request))
    leaving.add_done_callback(lambda left: None if left.cancelled() else call_off())
    try:
        return await work
    finally:
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
