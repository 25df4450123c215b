"""Waiting for work that cannot be called off: whoever is cancelled waits all the same."""

import asyncio
import gc
import threading
from contextlib import suppress

import pytest

from petri.threads import begun_in_thread, first_of, in_thread, settled


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_whoever_is_cancelled_again_and_again_waits_for_the_end() -> None:
    working: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(settled(working))
    for _ in range(3):
        await turns(2)
        waiting.cancel()
        await turns(3)
        assert not waiting.done(), "it left the work behind"

    working.set_result("done")

    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.long
async def test_work_that_failed_after_its_caller_was_cancelled_is_not_called_forgotten() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def leave_failing_work() -> None:
        working: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(settled(working))
        await turns(2)
        waiting.cancel()
        await turns(2)
        working.set_exception(ValueError("nobody is there to hear it"))
        with suppress(asyncio.CancelledError):
            await waiting

    await leave_failing_work()
    await turns(2)  # the loop itself holds on to the last task for one
    gc.collect()

    assert complaints == []


async def test_a_thread_is_over_before_its_cancelled_caller_is() -> None:
    go_on, over = threading.Event(), threading.Event()

    def work() -> None:
        assert go_on.wait(10)
        over.set()

    waiting = asyncio.ensure_future(in_thread(work))
    await turns(3)
    for _ in range(3):
        waiting.cancel()
        await turns(3)
    assert not waiting.done()
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert over.is_set()


async def test_what_work_returns_or_raises_is_its_caller_s() -> None:
    assert await in_thread(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0)

    begun = begun_in_thread(lambda: 1 / 0)
    await settled(begun)  # does not raise: it only waits
    with pytest.raises(ZeroDivisionError):
        begun.result()


async def test_whichever_comes_first_ends_the_wait_and_leaves_nothing_behind() -> None:
    loop = asyncio.get_running_loop()
    never, soon = loop.create_future(), loop.create_future()
    loop.call_later(0.01, soon.set_result, None)

    await first_of(never, soon, timeout_s=60)
    assert soon.done()
    await first_of(never, soon)  # one that is done is not waited for

    await first_of(never, timeout_s=0.01)
    assert not never.done()
    assert never.remove_done_callback(print) == len(never._callbacks or ()) == 0


async def test_who_gives_up_waiting_for_the_first_takes_no_other_along() -> None:
    one, other = (asyncio.get_running_loop().create_future() for _ in range(2))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await first_of(one, other)

    assert not (one.done() or other.done() or one._callbacks or other._callbacks)
