"""Turns: one at a time in a sandbox, in the order they came, and nobody is forgotten."""

import asyncio
import contextlib
import itertools
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

    with pytest.raises(Busy, match=r"^something runs .* 1 run may wait .*PETRI_MAX_QUEUED_RUNS"):
        desk.take("sb", ALONE)
    with pytest.raises(Busy, match=r"^1 sandbox may run .*PETRI_MAX_RUNS.* 1 run may wait"):
        desk.take("other", ALONE)

    with first:
        pass
    assert second.is_now
    with second:
        pass
    assert desk.take("other", ALONE).is_now


def pass_through(turn: Turn) -> None:
    """Have a turn, and pass it on."""
    assert turn.is_now
    with turn:
        pass


async def test_whoever_finds_no_place_waits_for_one_and_those_who_came_first_have_it_first() -> None:
    desk = Desk(max_active=2, max_waiting=10)
    turns = [desk.take(sandbox, ALONE) for sandbox in ("a", "b", "c", "d")]
    assert [turn.is_now for turn in turns] == [True, True, False, False]
    assert (desk.running(), desk.waiting(), desk.is_busy("d")) == (2, 2, True)

    pass_through(turns[1])

    assert [turn.is_now for turn in turns[2:]] == [True, False]
    assert (desk.running(), desk.waiting()) == (2, 1)
    for turn in (turns[0], turns[2], turns[3]):
        pass_through(turn)
    assert (desk.running(), desk.waiting(), desk.is_busy("d")) == (0, 0, False)


async def test_a_long_line_in_one_sandbox_holds_up_no_other() -> None:
    desk = Desk(max_active=1, max_waiting=10)
    line = [desk.take("line", ALONE) for _ in range(3)]
    other, third = desk.take("other", ALONE), desk.take("third", ALONE)

    order = []
    waiting = {"line 1": line[1], "line 2": line[2], "other": other, "third": third}
    pass_through(line[0])
    while waiting:
        [name] = [name for name, turn in waiting.items() if turn.is_now]
        order.append(name)
        pass_through(waiting.pop(name))

    assert order == ["other", "third", "line 1", "line 2"]


async def test_whoever_gives_up_waiting_for_a_place_leaves_it_to_the_next() -> None:
    desk = Desk(max_active=1, max_waiting=10)
    first, second, third = (desk.take(sandbox, ALONE) for sandbox in ("a", "b", "c"))

    with second:  # it leaves before its turn
        pass
    assert (desk.running(), desk.waiting(), desk.is_busy("b"), third.is_now) == (1, 1, False, False)

    pass_through(first)
    pass_through(third)
    assert (desk.running(), desk.waiting()) == (0, 0)


async def test_of_those_who_wait_in_one_sandbox_one_that_gives_up_costs_the_others_nothing() -> None:
    desk = Desk(max_active=1, max_waiting=10)
    first, second, third = desk.take("a", ALONE), desk.take("b", ALONE), desk.take("b", ALONE)

    with second:
        pass
    pass_through(first)

    pass_through(third)
    assert not desk.is_busy("b")


async def test_whoever_wants_to_know_is_told_each_time_that_nothing_runs() -> None:
    desk, told = Desk(max_active=2, max_waiting=10), []
    desk.when_quiet(lambda: told.append(desk.running()))
    turns = [desk.take(sandbox, ALONE) for sandbox in ("a", "b", "a")]

    pass_through(turns[1])
    pass_through(turns[0])
    assert told == []  # one in `a` was called
    pass_through(turns[2])
    pass_through(desk.take("a", ALONE))

    assert told == [0, 0]


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


def grab(desk: Desk, tenant: str) -> tuple[int, int]:
    """Take all that a tenant may have; return how many run and how many wait."""
    share = Share(tenant, is_alone=False)
    with contextlib.suppress(Busy):
        for number in itertools.count():
            desk.take(f"{tenant}-{number}", share)
    return desk.running(tenant), desk.waiting(tenant)


async def test_a_tenant_who_comes_with_nothing_running_finds_a_place_however_greedy_others_are() -> None:
    desk = Desk(max_active=12, max_waiting=0)

    assert [grab(desk, tenant) for tenant in ("a", "b", "c", "d")] == [(6, 0), (3, 0), (2, 0), (1, 0)]


async def test_nor_can_it_take_all_the_room_there_is_to_wait() -> None:
    desk = Desk(max_active=2, max_waiting=12)

    assert grab(desk, "a") == (1, 6)
    with pytest.raises(Busy, match=r"tenant a has 6 runs waiting, and the room .* is kept for others"):
        desk.take("a-more", Share("a", is_alone=False))
    assert [grab(desk, tenant) for tenant in ("b", "c", "d")] == [(1, 3), (0, 2), (0, 1)]


async def test_a_free_place_goes_to_the_tenant_that_has_the_fewest_and_then_in_turn() -> None:
    desk = Desk(max_active=3, max_waiting=30)
    a, b, c = (Share(tenant, is_alone=True) for tenant in "abc")  # of places each could have all
    turns = [desk.take(f"a{number}", a) for number in range(6)]
    waiting = [desk.take(f"b{number}", b) for number in range(2)]
    waiting += [desk.take(f"c{number}", c) for number in range(2)]

    calls = []
    for turn in turns[:3]:
        pass_through(turn)
        calls.append((desk.running("a"), desk.running("b"), desk.running("c")))

    assert calls == [(2, 1, 0), (1, 1, 1), (1, 1, 1)]
    assert [turn.is_now for turn in waiting] == [True, False, True, False]
    assert [turn.is_now for turn in turns[3:]] == [True, False, False]


async def test_whoever_gives_up_waiting_does_not_cost_its_tenant_its_turn() -> None:
    desk = Desk(max_active=1, max_waiting=30)
    running = desk.take("a0", Share("a"))
    first, given_up = desk.take("b0", Share("b")), desk.take("b1", Share("b"))
    later = desk.take("c0", Share("c"))

    with given_up:
        pass
    pass_through(running)

    assert (first.is_now, later.is_now) == (True, False)


async def test_a_line_that_never_ends_leaves_places_too_once_its_tenant_is_no_longer_alone() -> None:
    desk = Desk(max_active=4, max_waiting=30)
    lines = {f"a{number}": [desk.take(f"a{number}", ALONE)] for number in range(4)}
    no_longer = replace(ALONE, is_alone=False)

    for _ in range(2):
        for sandbox, line in lines.items():
            line.append(desk.take(sandbox, no_longer))
        for line in lines.values():
            if line[0].is_now:
                pass_through(line.pop(0))

    assert (desk.running("acme"), desk.is_busy("a3")) == (2, True)
    assert desk.take("other", Share("other", is_alone=False)).is_now


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


async def test_whoever_waits_for_what_is_kept_for_others_has_it_when_they_hold_less() -> None:
    desk = Desk(max_active=4, max_waiting=9)
    greedy, modest = Share("greedy", is_alone=False), Share("modest", is_alone=False)
    held = [desk.take(f"g{number}", greedy) for number in range(2)]
    other = desk.take("m0", modest)
    waiting = desk.take("g2", greedy)
    assert not waiting.is_now

    pass_through(other)
    assert not waiting.is_now  # two are free, and it has as many
    pass_through(held[0])

    assert waiting.is_now


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
