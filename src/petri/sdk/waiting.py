"""The few things that are done differently with and without an event loop.

`scripts/generate-sdk` turns the name of each first one into that of the second.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def async_pause(seconds: float) -> None:
    """Wait, and let others go on."""
    await asyncio.sleep(seconds)


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `function` returns. It may block on a disk, which the loop must not."""
    return await asyncio.to_thread(function, *args, **kwargs)


def in_place(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `function` returns."""
    return function(*args, **kwargs)


async def async_together(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return what each of `calls` comes to, all made at the same time; the first that fails ends the rest."""
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(_made(call)) for call in calls]
    return [each.result() for each in made]


async def _made(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return what each of `calls` comes to, all made at the same time.

    Whoever is interrupted, or told that one failed, does not wait for the others.
    """
    pool = ThreadPoolExecutor(max(len(calls), 1), thread_name_prefix="petri-sdk")
    try:
        made = [pool.submit(call) for call in calls]
        return [each.result() for each in made]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


async def async_flow(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield `chunks`, each read from the disk outside the loop."""
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def flow(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Return `chunks`."""
    return chunks
