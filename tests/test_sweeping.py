"""What somebody may go back to stays, within a budget; all else goes, after its grace period."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from petri.errors import NotFound
from petri.model import Asker, Peer, Run, Sandbox
from petri.operations import Host, Remembering
from petri.operations.amend import amend
from petri.operations.destroy import destroy
from petri.operations.keeping import keep
from petri.operations.restore import Wish, restore, undo
from petri.operations.snapshots import delete, take
from petri.operations.sweeping import Sweeper, sweep
from petri.store import Store
from tests.hosts import CALLER, new_sandbox, open_host
from tests.test_becoming import held, put, run
from tests.test_store import Clock, noise

GRACE_S = 3600.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def host(tmp_path: Path, clock: Clock) -> AsyncIterator[Host]:
    async with open_host(tmp_path) as opened:
        opened.store.close()
        opened.store = Store(tmp_path / "store", clock=clock)
        remember(opened, undo_runs=2)
        yield opened
        opened.store.close()


def remember(host: Host, **changes: float) -> None:
    remembering = replace(Remembering(grace_s=GRACE_S), **changes)  # type: ignore[arg-type]
    host.policy = replace(host.policy, remembering=remembering)


async def step(host: Host, sandbox: Sandbox, content: bytes) -> Run:
    """Have a run that is seen to change the one file of a sandbox."""
    (host.workspaces.folder(sandbox.id) / "a").write_bytes(content)
    ended = await run(host, sandbox, "exit", "0")
    await keep(host, sandbox)
    assert isinstance(ended, Run)
    return ended


async def swept(host: Host, clock: Clock) -> None:
    clock.now += GRACE_S + 1
    await sweep(host, "default")
    assert host.store.fsck("default", deep=True) == []


async def test_the_last_runs_can_be_gone_back_to_and_the_older_ones_no_more(host: Host, clock: Clock) -> None:
    sandbox = await new_sandbox(host)
    runs = [await step(host, sandbox, b"%d" % number) for number in range(4)]

    await swept(host, clock)

    await restore(host, CALLER, sandbox.id, Wish(run=runs[3].id))
    assert held(host, sandbox) == {"a": b"3"}
    await restore(host, CALLER, sandbox.id, Wish(run=runs[2].id))
    assert held(host, sandbox) == {"a": b"2"}
    with pytest.raises(NotFound, match="PETRI_UNDO_RUNS"):
        await restore(host, CALLER, sandbox.id, Wish(run=runs[0].id))
    assert held(host, sandbox) == {"a": b"2"}


@pytest.mark.long
async def test_the_budget_lets_the_oldest_go_first(host: Host, clock: Clock) -> None:
    sandbox = await new_sandbox(host)
    for seed in range(4):
        (host.workspaces.folder(sandbox.id) / "a").write_bytes(noise(100_000, seed))
        tree = await keep(host, sandbox)
        ended = await run(host, sandbox, "exit", "0")
        assert ended.tree_before == tree  # type: ignore[attr-defined]
    runs = (await host.ledger.runs(sandbox.id, limit=9, cursor=None)).items
    remember(host, undo_runs=9, undo_bytes=150_000)

    await swept(host, clock)

    trees = [bytes.fromhex(each.tree_before or "") for each in runs]
    kept = host.store.has("default", trees)
    assert trees[0] in kept, "it is what the files are"
    assert trees[1] in kept
    assert not {trees[2], trees[3]} & kept


@pytest.mark.long
async def test_a_snapshot_stays_until_it_is_deleted_even_without_its_sandbox(
    host: Host, clock: Clock
) -> None:
    sandbox = await new_sandbox(host)
    await put(host, sandbox, "a", b"precious")
    taken = await take(host, CALLER, sandbox.id, None, Asker())
    await destroy(host, CALLER, sandbox.id)

    await swept(host, clock)
    child = await new_sandbox(host, from_snapshot=taken.id)
    await destroy(host, CALLER, child.id)
    assert host.store.missing("default", [bytes.fromhex(taken.tree)]) == []

    await delete(host, CALLER, taken.id)
    await swept(host, clock)
    assert host.store.usage("default").objects == 0


@pytest.mark.long
async def test_what_is_seen_as_a_frozen_peer_stays_as_long_as_it_may_be_seen(
    host: Host, clock: Clock
) -> None:
    writer = await new_sandbox(host)
    await put(host, writer, "a", b"frozen")
    frozen = await keep(host, writer)
    reader = await new_sandbox(host, peers=(Peer(writer.id, "/peers/writer", frozen),))
    await destroy(host, CALLER, writer.id)

    await swept(host, clock)
    assert host.store.missing("default", [bytes.fromhex(frozen)]) == []

    await amend(host, CALLER, reader.id, {"peers": ()})
    await swept(host, clock)
    assert host.store.usage("default").objects == 0


@pytest.mark.long
async def test_what_an_undo_left_behind_can_be_had_again(host: Host, clock: Clock) -> None:
    sandbox = await new_sandbox(host)
    (host.workspaces.folder(sandbox.id) / "a").write_bytes(b"before")
    await keep(host, sandbox)
    await put(host, sandbox, "a", b"uploaded, in no run")
    done = await restore(host, CALLER, sandbox.id, Wish(tree=await keep(host, sandbox)))
    first = await step(host, sandbox, b"ran")
    await put(host, sandbox, "b", b"in no run either")
    assert first.tree_before is not None

    done = await restore(host, CALLER, sandbox.id, Wish(run=first.id))
    await swept(host, clock)
    await restore(host, CALLER, sandbox.id, Wish(tree=done.was))

    assert held(host, sandbox)["b"] == b"in no run either"


async def test_nothing_is_swept_before_its_time(host: Host) -> None:
    sandbox = await new_sandbox(host)
    await put(host, sandbox, "a", b"gone soon")
    tree = await keep(host, sandbox)
    await destroy(host, CALLER, sandbox.id)

    await sweep(host, "default")

    assert host.store.has("default", [bytes.fromhex(tree)])


@pytest.mark.long
async def test_whoever_is_swept_clean_is_left_alone_until_something_changes(
    host: Host, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(host, grace_s=0.0)
    sandbox = await new_sandbox(host)
    await put(host, sandbox, "a", b"a")
    await keep(host, sandbox)
    sweeper, times = Sweeper(host), 0
    original = host.store.gc

    def counting(*args: object) -> object:
        nonlocal times
        times += 1
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(host.store, "gc", counting)
    for _ in range(4):
        clock.now += 10
        await sweeper.sweep_all()
    quiet = times
    await put(host, sandbox, "a", b"b")
    await keep(host, sandbox)
    await sweeper.sweep_all()

    assert quiet in (1, 2)
    assert times == quiet + 1


async def test_undo_says_when_what_it_would_go_back_to_is_gone(host: Host, clock: Clock) -> None:
    remember(host, undo_runs=0)
    sandbox = await new_sandbox(host)
    (host.workspaces.folder(sandbox.id) / "a").write_bytes(b"before")
    ended = await step(host, sandbox, b"before")
    (host.workspaces.folder(sandbox.id) / "a").write_bytes(b"after")
    await keep(host, sandbox)
    await host.ledger.set_tree(sandbox.id, host.keeper.kept[sandbox.id])
    await swept(host, clock)

    with pytest.raises(NotFound, match="not kept any more"):
        await restore(host, CALLER, sandbox.id, Wish(run=ended.id))
    with pytest.raises(Exception, match="no run"):
        await undo(host, CALLER, sandbox.id)
