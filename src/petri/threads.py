"""Waiting for work that cannot be called off.

A thread goes on when the task that waits for it is cancelled, and so does a cell that is being killed.
Whoever then closes files or answers would do so under its feet. `in_thread` and `settled` wait for the end,
and only then give way; `first_of` is for those who wait for whatever comes first.

Imported by: every server room that waits. Imports: the standard library.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

_FILE_WORKERS, _OWN_WORKERS = 64, 16
_for_files = ThreadPoolExecutor(_FILE_WORKERS, thread_name_prefix="petri-files")
_for_ourselves = ThreadPoolExecutor(_OWN_WORKERS, thread_name_prefix="petri-own")
"""Two pools, since a caller decides how long work on files takes: the server's own never waits behind it."""

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` on a caller's files returns, done in a thread that nobody leaves behind."""
    return await _in(_for_files, partial(work, *args, **kwargs))


async def in_own_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns, done in a thread that no caller's files can keep us waiting for."""
    return await _in(_for_ourselves, partial(work, *args, **kwargs))


def begun_in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Return the future of `work` on a caller's files; who asked waits until it is `settled`."""
    return asyncio.get_running_loop().run_in_executor(_for_files, partial(work, *args, **kwargs))


def submitted(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Return the future of `work` on a caller's files, for those who are in a thread themselves."""
    return _for_files.submit(partial(work, *args, **kwargs))


async def _in(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    working = asyncio.get_running_loop().run_in_executor(pool, work)
    await settled(working)
    return working.result()


async def first_of(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    """Wait until one of `futures` has come to its end, or for so long.

    `asyncio.wait` does this too, for any number of anything: each run waits four times, for two or three.
    """
    for future in futures:
        if future.done():
            return
    loop = asyncio.get_running_loop()
    waiting = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiting.done():
            waiting.set_result(None)

    timer = None if timeout_s is None else loop.call_later(timeout_s, wake)
    for future in futures:
        future.add_done_callback(wake)
    try:
        await waiting
    finally:
        if timer is not None:
            timer.cancel()
        for future in futures:
            future.remove_done_callback(wake)


async def settled(future: asyncio.Future[Any]) -> None:
    """Wait until `future` has come to its end, well or not, however often somebody cancels the waiting."""
    interrupted: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await first_of(future)
        except asyncio.CancelledError as error:
            interrupted = error
    if interrupted is not None:
        if not future.cancelled():
            future.exception()  # looked at here, lest it be reported as forgotten
        raise interrupted
