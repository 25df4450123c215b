"""Benches: so much long work on files at one time, in one sandbox and in all."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from petri.errors import Busy
from petri.operations.benches import MAY_WAIT, Benches


async def test_two_at_a_time_in_a_sandbox_and_the_third_is_told_to_come_back() -> None:
    benches = Benches(each=2, all_of_them=10)
    async with benches.bench("sb", "archiving"), benches.bench("sb", "archiving"):
        with pytest.raises(Busy, match="archiving goes on 2 times"):
            async with benches.bench("sb", "archiving"):
                pass
        async with benches.bench("sb", "unpacking"), benches.bench("other", "archiving"):
            pass

    async with asyncio.timeout(5), benches.bench("sb", "archiving"):
        pass


async def test_hashing_waits_for_a_bench_and_only_so_many_may() -> None:
    benches = Benches(each=1, all_of_them=1000)
    order: list[int] = []

    async def hash_one(number: int) -> None:
        async with benches.bench("sb", "hashing"):
            order.append(number)
            await asyncio.sleep(0)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for number in range(1 + MAY_WAIT["hashing"]):
            group.create_task(hash_one(number))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await hash_one(-1)

    assert order == list(range(1 + MAY_WAIT["hashing"]))


async def test_whoever_gives_up_waiting_takes_no_bench_with_it() -> None:
    benches = Benches(each=1, all_of_them=10)
    async with benches.bench("sb", "hashing"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), benches.bench("sb", "hashing"):
                pass

    async with asyncio.timeout(5), benches.bench("sb", "hashing"):
        pass


async def test_all_sandboxes_together_do_not_take_every_thread() -> None:
    benches = Benches(each=2, all_of_them=3)
    async with AsyncExitStack() as held:
        for number in range(3):
            await held.enter_async_context(benches.bench(f"sb-{number}", "hashing"))
        with pytest.raises(Busy, match="3 long pieces of work"):
            async with benches.bench("sb-4", "hashing"):
                pass

    async with benches.bench("sb-4", "hashing"):
        pass
