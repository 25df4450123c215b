"""A sandbox in use comes from memory, and nobody can tell but by how long that takes."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from petri.errors import Conflict, NotFound, Unavailable
from petri.ledger import Back, Ending, Ledger
from petri.ledger.remembered import Remembered
from petri.model import Addition, Event, Run, RunEvent, Sandbox, new_id
from tests.ledgers import put_ledger
from tests.test_ledger import NOW, a_run, a_sandbox

TREE, OTHER = "12" * 32, "34" * 32


@pytest.fixture(params=["file", "memory"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(put_ledger(tmp_path) if request.param == "file" else "sqlite://")
    yield ledger
    await ledger.close()


@pytest.fixture
async def sandbox(ledger: Ledger) -> Sandbox:
    return await ledger.advance(await ledger.add_sandbox(a_sandbox()), Event.CREATED)


async def in_use(ledger: Ledger, sandbox: Sandbox) -> Sandbox:
    return await ledger.sandbox_in_use(sandbox.id, sandbox.tenant)


async def run_something(ledger: Ledger, sandbox: Sandbox, tree: str | None = None) -> None:
    run = await ledger.add_run(a_run(sandbox), start=True)
    await ledger.advance_run(run, RunEvent.ENDED, at=NOW + 9, ending=Ending(tree=tree))


async def test_a_sandbox_in_use_is_read_once_whatever_runs_in_it(ledger: Ledger, sandbox: Sandbox) -> None:
    await run_something(ledger, sandbox, TREE)
    first = await in_use(ledger, sandbox)

    await run_something(ledger, sandbox, TREE)

    assert await in_use(ledger, sandbox) is first
    assert (await ledger.sandbox(sandbox.id, sandbox.tenant)).last_active_at == NOW + 9


async def _became(ledger: Ledger, sandbox: Sandbox) -> None:
    await ledger.begin_becoming(sandbox.id, OTHER, "files.restore", back=Back(TREE))
    await ledger.end_becoming(sandbox.id, OTHER)


async def _gave_up(ledger: Ledger, sandbox: Sandbox) -> None:
    await in_use(ledger, sandbox)
    await ledger.begin_becoming(sandbox.id, OTHER, "files.restore", back=Back(TREE, added=()))
    await in_use(ledger, sandbox)
    await ledger.give_up_becoming(sandbox.id, OTHER, TREE, "no")


async def _on_trial(ledger: Ledger, sandbox: Sandbox) -> None:
    run = a_run(sandbox, keep="never", tree_before=TREE)
    await ledger.add_run(run, start=True)


async def _added(ledger: Ledger, sandbox: Sandbox) -> None:
    run: Run = await ledger.add_run(a_run(sandbox, environment="de" * 32), start=True)
    await ledger.set_added(run, [Addition("python", "six", "six", f"{run.id} pip install six")])


_CHANGES: dict[str, Callable[[Ledger, Sandbox], Awaitable[object]]] = {
    "advanced": lambda ledger, sandbox: ledger.advance(sandbox, Event.DELETE),
    "amended": lambda ledger, sandbox: ledger.amend(sandbox, {"limits": {"processes": 7}, "name": "x"}),
    "a shorter life": lambda ledger, sandbox: ledger.amend(sandbox, {"ttl_s": 9.0}),
    "other files after a run": lambda ledger, sandbox: run_something(ledger, sandbox, OTHER),
    "other files": lambda ledger, sandbox: ledger.set_tree(sandbox.id, OTHER),
    "to become": lambda ledger, sandbox: ledger.begin_becoming(sandbox.id, OTHER, "files.restore"),
    "became": _became,
    "gave up": _gave_up,
    "on trial": _on_trial,
    "packages": _added,
    "written": lambda ledger, sandbox: ledger.note(sandbox.id, "files.written", {"tree": OTHER}, at=NOW),
}


@pytest.mark.parametrize("change", _CHANGES)
async def test_whoever_was_told_of_a_change_is_not_shown_what_was_before(
    ledger: Ledger, sandbox: Sandbox, change: str
) -> None:
    before = await in_use(ledger, sandbox)

    await _CHANGES[change](ledger, sandbox)
    shown = await in_use(ledger, sandbox)

    assert shown is not before
    assert shown == await ledger.sandbox(sandbox.id, sandbox.tenant)


async def test_what_is_remembered_for_its_tenant_is_not_there_for_another(
    ledger: Ledger, sandbox: Sandbox
) -> None:
    await in_use(ledger, sandbox)

    with pytest.raises(NotFound):
        await ledger.sandbox_in_use(sandbox.id, "other")


async def test_a_sandbox_that_could_not_be_changed_is_remembered_again(
    ledger: Ledger, sandbox: Sandbox
) -> None:
    await ledger.add_sandbox(a_sandbox(name="taken"))
    with pytest.raises(Conflict):
        await ledger.amend(sandbox, {"ttl_s": 9.0, "name": "taken"})
    await ledger.amend(sandbox, {"ttl_s": 8.0})
    with pytest.raises(Conflict):
        await ledger.amend(sandbox, {"ttl_s": 9.0, "name": "taken"})

    assert await in_use(ledger, sandbox) is await in_use(ledger, sandbox)
    assert (await in_use(ledger, sandbox)).ttl_s == 8.0


async def test_a_sandbox_with_much_in_it_is_not_kept_in_memory(ledger: Ledger) -> None:
    large = await ledger.add_sandbox(a_sandbox(env={"LARGE": "x" * 5_000}))

    assert await in_use(ledger, large) is not await in_use(ledger, large)


async def test_a_closed_ledger_remembers_nothing(ledger: Ledger, sandbox: Sandbox) -> None:
    await in_use(ledger, sandbox)
    await ledger.close()

    with pytest.raises(Unavailable):
        await in_use(ledger, sandbox)


async def test_only_so_many_are_remembered() -> None:
    remembered, many = Remembered(), [a_sandbox() for _ in range(300)]
    reads: list[str] = []

    async def read(sandbox_id: str, _: str) -> Sandbox:
        reads.append(sandbox_id)
        return next(each for each in many if each.id == sandbox_id)

    for each in (*many, many[-1], many[0]):
        await remembered.or_read(each.id, each.tenant, read)

    assert reads == [*(each.id for each in many), many[0].id]


@pytest.mark.parametrize("by_then", ["under way", "over"])
async def test_what_changes_while_it_is_read_is_not_remembered(by_then: str) -> None:
    remembered, sandbox = Remembered(), a_sandbox()
    shown: list[Sandbox] = []

    async def read(_: str, __: str) -> Sandbox:
        """What was there before a change that another thread makes while this is on its way."""
        changing = threading.Thread(target=remembered.change, args=(sandbox.id, sandbox.tenant))
        changing.start()
        changing.join()
        if by_then == "over":
            remembered.settle()
        shown.append(replace(sandbox, name=f"read-{len(shown)}"))
        return shown[-1]

    for _ in range(2):
        await remembered.or_read(sandbox.id, sandbox.tenant, read)
    remembered.settle()
    last = await remembered.or_read(sandbox.id, sandbox.tenant, read)

    assert last.name == "read-2"


async def test_what_others_change_does_not_matter_for_long() -> None:
    remembered, sandbox = Remembered(), a_sandbox()

    async def read(_: str, __: str) -> Sandbox:
        return replace(sandbox)

    remembered.change(new_id("sb"), sandbox.tenant)
    remembered.settle()
    first = await remembered.or_read(sandbox.id, sandbox.tenant, read)

    assert await remembered.or_read(sandbox.id, sandbox.tenant, read) is first
