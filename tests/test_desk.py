"""Turns: one at a time in a sandbox, in the order they came, and nobody is forgotten."""

import asyncio

import pytest

from petri.errors import Busy
from petri.operations.desk import Desk, Turn


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_the_first_need_not_wait_and_the_next_wait_in_order() -> None:
    desk = Desk(max_active=1, max_waiting=10)
    order: list[int] = []

    async def run(number: int, turn: Turn) -> None:
        with turn:
            await turn.come(unless=never())
            order.append(number)
            assert turn.is_now
            await asyncio.sleep(0)

    turns = [desk.take("sb") for _ in range(5)]
    assert [turn.is_now for turn in turns] == [True, False, False, False, False]
    assert (desk.running, desk.waiting) == (1, 4)
    await asyncio.gather(*(run(number, turn) for number, turn in enumerate(turns)))

    assert order == [0, 1, 2, 3, 4]
    assert (desk.running, desk.waiting, desk.is_busy("sb")) == (0, 0, False)


async def test_more_than_may_wait_are_turned_away_at_once() -> None:
    desk = Desk(max_active=1, max_waiting=1)
    first, second = desk.take("sb"), desk.take("sb")

    with pytest.raises(Busy, match="PETRI_MAX_QUEUED_RUNS"):
        desk.take("sb")
    with pytest.raises(Busy, match="PETRI_MAX_RUNS"):
        desk.take("other")

    with first:
        pass
    assert second.is_now
    with second:
        pass
    assert desk.take("other").is_now


async def test_whoever_gives_up_waiting_holds_up_nobody() -> None:
    desk = Desk(max_active=1, max_waiting=3)
    first, second, third = (desk.take("sb") for _ in range(3))
    gone = never()
    gone.set_result(None)

    with second:
        await second.come(unless=gone)
        assert not second.is_now
    assert desk.waiting == 1

    with first:
        pass
    assert third.is_now


async def test_whoever_is_called_and_gives_up_at_that_moment_passes_it_on() -> None:
    desk = Desk(max_active=1, max_waiting=3)
    first, second, third = (desk.take("sb") for _ in range(3))

    with first:
        pass
    assert second.is_now
    with second:  # called, but leaves without having run
        pass

    assert third.is_now
    with third:
        pass
    assert not desk.is_busy("sb")


async def test_a_turn_is_passed_on_whatever_happens_in_it() -> None:
    desk = Desk(max_active=1, max_waiting=1)

    with pytest.raises(RuntimeError), desk.take("sb"):
        raise RuntimeError

    assert not desk.is_busy("sb")
