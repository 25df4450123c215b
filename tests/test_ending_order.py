"""What comes first when a run begins and when it ends, and what nobody is told before it is so."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import Request

from petri.api.exec import _answer
from petri.engine import Leash, Output, Place
from petri.ledger import Ledger
from petri.model import Command, Outcome, Run
from petri.operations import Host, history
from petri.operations.command import Ask
from petri.operations.exec import begin, end_on_record, outcome_of
from tests.hosts import CALLER, PlayedEngine, new_sandbox, open_host, until

PRINT = Ask(command=["fake", "print", "said"])
SLEEP = Ask(command=["fake", "sleep", "60"])


class SlowlyGoneEngine(PlayedEngine):
    """Its commands end at once, and their cells when they may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()

    async def exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
        outcome = await super().exec(place, command, output, leash)
        if leash.quiet is not None:
            leash.quiet.set_result(outcome)
            await self.may_go.wait()
        return outcome


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[tuple[Host, SlowlyGoneEngine]]:
    engine = SlowlyGoneEngine()
    async with open_host(tmp_path, engine=engine) as host:
        yield host, engine
        engine.may_go.set()


def a_request() -> Request:
    return Request({"type": "http", "headers": []})


async def test_an_end_is_known_before_the_cell_is_gone_and_answered_when_it_is(
    slow: tuple[Host, SlowlyGoneEngine],
) -> None:
    host, engine = slow
    live = await begin(host, CALLER, (await new_sandbox(host)).id, PRINT)
    known = await end_on_record(live)
    answering = asyncio.ensure_future(_answer(host, a_request(), live))
    await asyncio.sleep(0.05)

    assert (known.state.value, live.ended.done(), answering.done()) == ("done", False, False)
    engine.may_go.set()
    assert (await answering).status_code == 200
    assert await outcome_of(live) == known


async def test_an_answer_that_fails_is_not_given_before_the_cell_is_gone_either(
    slow: tuple[Host, SlowlyGoneEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(*_: object) -> history.Told:
        raise OSError("what it wrote cannot be read")

    host, engine = slow
    monkeypatch.setattr(history, "tell", tell)
    live = await begin(host, CALLER, (await new_sandbox(host)).id, PRINT)
    answering = asyncio.ensure_future(_answer(host, a_request(), live))
    await end_on_record(live)
    await asyncio.sleep(0.05)

    assert not answering.done()
    engine.may_go.set()
    with pytest.raises(OSError, match="cannot be read"):
        await answering
    assert live.ended.done()


class Order:
    """What the ledger and the engine were asked for, one after the other."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ledger(self) -> type[Ledger]:
        order = self

        class ToldLedger(Ledger):
            async def add_run(self, run: Run, *, start: bool) -> Run:
                order.asked.append("ledger")
                return await super().add_run(run, start=start)

        return ToldLedger

    def engine(self) -> PlayedEngine:
        order = self

        class ToldEngine(PlayedEngine):
            async def exec(self, place: Place, command: Command, output: Output, leash: Leash) -> Outcome:
                order.asked.append("engine")
                return await super().exec(place, command, output, leash)

        return ToldEngine()


async def test_alone_a_run_asks_the_disk_first_and_beside_others_the_engine(tmp_path: Path) -> None:
    order = Order()
    async with open_host(tmp_path, engine=order.engine(), ledgers=order.ledger()) as host:
        first, second = await new_sandbox(host), await new_sandbox(host)
        for sandbox in (
            first,
            second,
        ):  # whose files are kept from then on: there is nothing else to do before
            await outcome_of(await begin(host, CALLER, sandbox.id, PRINT))
        order.asked.clear()

        sleeping = await begin(host, CALLER, first.id, SLEEP)
        alone, order.asked = order.asked, []
        await outcome_of(await begin(host, CALLER, second.id, PRINT))

        assert alone == ["ledger", "engine"]
        assert order.asked == ["engine", "ledger"]
        await until_cancelled(host, sleeping.run.id)


async def until_cancelled(host: Host, run_id: str) -> None:
    async def is_over() -> bool:
        return run_id not in host.live

    host.live[run_id].leash.cancelled.set_result(None)
    await until(is_over)
