"""Waiting for work that cannot be called off.

A thread goes on when the task that waits for it is cancelled, and so does a cell that is being killed.
Whoever then closes files or answers would do so under its feet. These two wait for the end, and only then
give way.

Imported by: every server room that waits. Imports: the standard library.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns, done in a worker thread that nobody leaves behind."""
    working = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
    await settled(working)
    return working.result()


async def settled(future: asyncio.Future[Any]) -> None:
    """Wait until `future` has come to its end, well or not, however often somebody cancels the waiting."""
    interrupted: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            interrupted = error
    if interrupted is not None:
        if not future.cancelled():
            future.exception()  # looked at here, lest it be reported as forgotten
        raise interrupted
