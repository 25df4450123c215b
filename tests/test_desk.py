"""Turns: one at a time in a sandbox, in the order they came, and nobody is forgotten."""

import asyncio
from dataclasses import replace

import pytest

from petri.errors import Busy
from petri.operations.desk import Desk, Share, Turn

ALONE = Share("acme")


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

    turns = [desk.take("sb", ALONE) for _ in range(5)]
    assert [turn.is_now for turn in turns] == [True, False, False, False, False]
    assert (desk.running(), desk.waiting()) == (1, 4)
    await asyncio.gather(*(run(number, turn) for number, turn in enumerate(turns)))

    assert order == [0, 1, 2, 3, 4]
    assert (desk.running(), desk.waiting(), desk.is_busy("sb")) == (0, 0, False)


async def test_nothing_is_done_ahead_for_a_line_while_others_fill_the_processors() -> None:
    desk = Desk(max_active=10, max_waiting=10)
    turns = [desk.take(sandbox, ALONE) for sandbox in ("line", "line", "other", "third")]

    assert not desk.may_work_ahead("line", processors=2)
    assert desk.may_work_ahead("line", processors=3)
    assert desk.may_work_ahead("other", processors=2)
    assert desk.may_work_ahead("at rest", processors=2)
    for turn in turns:
        with turn:
            pass
    assert desk.may_work_ahead("line", processors=2)


async def test_more_than_may_wait_are_turned_away_at_once() -> None:
    desk = Desk(max_active=1, max_waiting=1)
    first, second = desk.take("sb", ALONE), desk.take("sb", ALONE)

    with pytest.raises(Busy, match=r"^1 run may wait .*PETRI_MAX_QUEUED_RUNS"):
        desk.take("sb", ALONE)
    with pytest.raises(Busy, match=r"^1 sandbox may run .*PETRI_MAX_RUNS"):
        desk.take("other", ALONE)

    with first:
        pass
    assert second.is_now
    with second:
        pass
    assert desk.take("other", ALONE).is_now


async def test_whoever_gives_up_waiting_holds_up_nobody() -> None:
    desk = Desk(max_active=1, max_waiting=3)
    first, second, third = (desk.take("sb", ALONE) for _ in range(3))
    gone = never()
    gone.set_result(None)

    with second:
        await second.come(unless=gone)
        assert not second.is_now
    assert desk.waiting() == 1

    with first:
        pass
    assert third.is_now


async def test_whoever_gives_up_waiting_calls_nobody_while_another_runs() -> None:
    desk = Desk(max_active=1, max_waiting=3)
    first, second, third = (desk.take("sb", ALONE) for _ in range(3))

    with third:  # it leaves before its turn
        pass

    assert not second.is_now, "two would run at once"
    assert desk.waiting() == 1
    with first:
        pass
    assert second.is_now


async def test_whoever_is_called_and_gives_up_at_that_moment_passes_it_on() -> None:
    desk = Desk(max_active=1, max_waiting=3)
    first, second, third = (desk.take("sb", ALONE) for _ in range(3))

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

    with pytest.raises(RuntimeError), desk.take("sb", ALONE):
        raise RuntimeError

    assert not desk.is_busy("sb")


# ----------------------------------------------------------------------------------------------- tenants


async def test_a_tenant_s_quota_counts_what_runs_and_what_waits() -> None:
    desk = Desk(max_active=9, max_waiting=9)
    acme = Share("acme", most_runs=3)
    turns = [desk.take("a", acme), desk.take("a", acme), desk.take("b", acme)]

    with pytest.raises(Busy, match="acme has 3 runs running or waiting, and its quota `runs` is 3"):
        desk.take("c", acme)
    with pytest.raises(Busy, match="quota `runs`"):
        desk.take("a", acme)
    assert desk.take("other", Share("other", most_runs=1)).is_now
    assert (desk.running("acme"), desk.waiting("acme"), desk.runs("acme")) == (2, 1, 3)
    assert (desk.running(), desk.waiting()) == (3, 1)

    with turns[0]:
        pass
    assert desk.take("c", acme).is_now


async def test_whoever_is_refused_has_taken_nothing() -> None:
    desk = Desk(max_active=1, max_waiting=0)
    first = desk.take("a", ALONE)

    for sandbox in ("a", "b"):
        with pytest.raises(Busy):
            desk.take(sandbox, ALONE)
    with first:
        pass

    assert (desk.runs("acme"), desk.running("acme"), desk.waiting("acme")) == (0, 0, 0)


async def test_a_tenant_who_comes_with_nothing_running_finds_a_place_however_greedy_others_are() -> None:
    desk = Desk(max_active=12, max_waiting=9)

    def grab(tenant: str) -> int:
        share, held = Share(tenant, is_alone=False), 0
        while True:
            try:
                desk.take(f"{tenant}-{held}", share)
            except Busy:
                return held
            held += 1

    assert [grab(tenant) for tenant in ("a", "b", "c", "d")] == [6, 3, 2, 1]


async def test_a_tenant_alone_may_have_every_place() -> None:
    desk = Desk(max_active=3, max_waiting=0)

    for number in range(3):
        desk.take(f"sb-{number}", ALONE)

    with pytest.raises(Busy, match="PETRI_MAX_RUNS"):
        desk.take("sb-3", ALONE)


async def test_a_place_given_back_goes_to_whoever_holds_less() -> None:
    desk = Desk(max_active=4, max_waiting=0)
    greedy, modest = Share("greedy", is_alone=False), Share("modest", is_alone=False)
    held = [desk.take(f"g{number}", greedy) for number in range(2)]
    desk.take("m0", modest)

    with pytest.raises(Busy, match="kept for others"):
        desk.take("g2", greedy)
    with held[0]:
        pass
    assert desk.take("m1", modest).is_now
    with pytest.raises(Busy, match="kept for others"):
        desk.take("g3", greedy)


async def test_whoever_is_turned_away_for_others_is_not_told_how_many_they_run() -> None:
    said = []
    for others in (2, 3):
        desk = Desk(max_active=6, max_waiting=0)
        greedy, modest = Share("greedy", is_alone=False), Share("modest", is_alone=False)
        for number in range(2):
            desk.take(f"g{number}", greedy)
        for number in range(others):
            desk.take(f"m{number}", replace(modest, tenant=f"m{number}"))
        with pytest.raises(Busy) as caught:
            desk.take("g2", greedy)
        said.append(caught.value.message)

    assert said[0] == said[1]
