"""Files that are to become another tree do, whatever happens; and what a run starts from is kept."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from petri.errors import Conflict, NotFound, StorageFull
from petri.ledger import Back
from petri.model import Addition, Asker, Sandbox
from petri.operations import Host, files, reap, snapshots
from petri.operations.becoming import become, settled_files
from petri.operations.command import Ask
from petri.operations.create import Origin
from petri.operations.destroy import destroy
from petri.operations.exec import begin, outcome_of
from petri.operations.keeping import keep
from petri.operations.reap import Reaper, recover
from petri.operations.restore import Wish, restore, undo
from petri.threads import in_thread
from petri.trees import File, encode
from petri.workspace import Bounds, Intake, Workspaces
from tests.hosts import CALLER, new_sandbox, open_host, state_of, until


class SlowWorkspaces(Workspaces):
    """Workspaces that become another tree only once they may, or fail to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, Bounds(2**30, 1000), reserve_bytes=0)
        self.may_become = threading.Event()
        self.may_become.set()
        self.is_full = False
        self.attempts = 0

    def become(self, *args: object, **kwargs: object) -> None:
        self.attempts += 1
        assert self.may_become.wait(20)
        if self.is_full:
            raise StorageFull("no space is left")
        super().become(*args, **kwargs)  # type: ignore[arg-type]


@pytest.fixture
def workspaces(tmp_path: Path) -> SlowWorkspaces:
    return SlowWorkspaces(tmp_path / "workspaces")


@pytest.fixture
async def host(tmp_path: Path, workspaces: SlowWorkspaces) -> AsyncIterator[Host]:
    async with open_host(tmp_path, workspaces=workspaces) as opened:
        yield opened


async def put(host: Host, sandbox: Sandbox, path: str, content: bytes) -> None:
    def stage(intake: Intake) -> None:
        staged = intake.file(path)
        staged.write(content)
        staged.close()

    async with files.receive(host, sandbox) as intake:
        await in_thread(stage, intake)
        await files.commit(host, sandbox, intake)


async def run(host: Host, sandbox: Sandbox, *words: str) -> object:
    return await outcome_of(await begin(host, CALLER, sandbox.id, Ask(command=["fake", *words])))


async def now(host: Host, sandbox: Sandbox) -> Sandbox:
    return await host.ledger.sandbox(sandbox.id, sandbox.tenant)


def held(host: Host, sandbox: Sandbox) -> dict[str, bytes]:
    top = host.workspaces.folder(sandbox.id)
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


async def kinds(host: Host, sandbox: Sandbox) -> list[str]:
    return [row.kind for row in (await host.ledger.events(sandbox.id, limit=100, cursor=None)).items]


async def test_the_tree_before_a_run_is_kept_before_its_command_starts(host: Host) -> None:
    sandbox = await new_sandbox(host)
    (host.workspaces.folder(sandbox.id) / "unseen").write_bytes(b"by nobody's upload")

    live = await begin(host, CALLER, sandbox.id, Ask(command=["fake", "sleep", "30"]))
    tree = live.run.tree_before

    assert tree is not None
    assert host.store.has("default", [bytes.fromhex(tree)])
    live.leash.cancelled.set_result(None)
    await outcome_of(live)


async def test_a_run_whose_tree_cannot_be_kept_does_not_start(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await new_sandbox(host)
    (host.workspaces.folder(sandbox.id) / "a").write_bytes(b"a")

    def full(*_: object) -> bytes:
        raise StorageFull("no space is left where the store is")

    monkeypatch.setattr(host.workspaces, "keep", full)

    with pytest.raises(StorageFull):
        await run(host, sandbox, "print", "never")

    assert (await host.ledger.runs(sandbox.id, limit=9, cursor=None)).items == []


async def test_what_an_upload_brings_is_kept_soon_and_its_tree_on_record(host: Host) -> None:
    sandbox = await new_sandbox(host)
    await put(host, sandbox, "large", bytes(3 << 20))  # too much for a quick look

    async def is_kept() -> bool:
        tree = (await now(host, sandbox)).tree
        return tree is not None and bool(host.store.has("default", [bytes.fromhex(tree)]))

    await until(is_kept)


async def test_what_is_gone_after_its_run_is_not_kept(host: Host) -> None:
    sandbox = await new_sandbox(host, lifetime="ephemeral")
    await put(host, sandbox, "a", b"a")

    await run(host, sandbox, "exit", "0")

    assert host.store.usage("default").objects == 0


async def test_files_become_a_tree_and_the_history_says_so(host: Host) -> None:
    sandbox = await new_sandbox(host)
    await put(host, sandbox, "a", b"one")
    first = await keep(host, sandbox)
    await put(host, sandbox, "a", b"two")
    second = await keep(host, sandbox)

    await become(host, sandbox, first, "files.restore", {"run": "run-x"}, Back(second))

    assert held(host, sandbox) == {"a": b"one"}
    found = await now(host, sandbox)
    assert (found.tree, found.becoming) == (first, None)
    rows = (await host.ledger.events(sandbox.id, limit=100, cursor=None)).items[-2:]
    assert [row.kind for row in rows] == ["files.restore", "files.settled"]
    assert rows[0].detail == {"run": "run-x", "tree": first}


async def test_whoever_uses_the_files_meanwhile_waits_and_finds_the_new_ones(
    host: Host, workspaces: SlowWorkspaces
) -> None:
    sandbox = await new_sandbox(host)
    await put(host, sandbox, "a", b"one")
    first = await keep(host, sandbox)
    await put(host, sandbox, "b", b"two")
    second = await keep(host, sandbox)
    workspaces.may_become.clear()
    becoming = asyncio.ensure_future(become(host, sandbox, first, "files.restore", {}, Back(second)))
    await asyncio.sleep(0)
    errand = host.workspaces.errand()
    looking = asyncio.ensure_future(files.look(host, CALLER, sandbox.id, "", errand, recursive=True))
    running = asyncio.ensure_future(run(host, sandbox, "exit", "0"))
    writing = asyncio.ensure_future(put(host, sandbox, "c", b"three"))
    await asyncio.wait((looking, running, writing), timeout=0.2)

    assert not (looking.done() or running.done() or writing.done())
    workspaces.may_become.set()
    await becoming
    await asyncio.gather(running, writing)
    assert "b" not in {entry.path for entry in (await looking).entries}
    assert held(host, sandbox) == {"a": b"one", "c": b"three"}


async def test_a_second_wish_for_the_same_files_is_refused_while_the_first_goes_on(
    host: Host, workspaces: SlowWorkspaces
) -> None:
    sandbox = await new_sandbox(host)
    tree = await keep(host, sandbox)
    workspaces.may_become.clear()
    becoming = asyncio.ensure_future(become(host, sandbox, tree, "files.restore", {}, Back(tree)))
    await asyncio.sleep(0)

    with pytest.raises(Conflict, match="already"):
        await become(host, sandbox, tree, "files.restore", {}, Back(tree))

    workspaces.may_become.set()
    await becoming


async def test_what_fails_before_anything_changed_leaves_nothing_to_be_done(
    host: Host, workspaces: SlowWorkspaces
) -> None:
    sandbox = await new_sandbox(host)
    await put(host, sandbox, "a", b"one")
    first = await keep(host, sandbox)
    await put(host, sandbox, "a", b"two")
    second = await keep(host, sandbox)
    workspaces.is_full = True

    with pytest.raises(StorageFull):
        await become(host, sandbox, first, "files.restore", {}, Back(second))

    found = await now(host, sandbox)
    assert (found.tree, found.becoming) == (second, None)
    assert (await kinds(host, sandbox))[-2:] == ["files.restore", "files.unchanged"]
    assert await run(host, sandbox, "exit", "0")
    assert held(host, sandbox) == {"a": b"two"}


async def test_a_snapshot_that_could_not_be_restored_leaves_the_packages_that_runs_asked_for(
    host: Host, workspaces: SlowWorkspaces
) -> None:
    sandbox = await new_sandbox(host)
    ran = await run(host, sandbox, "exit", "0")
    mine = Addition("python", "six", "six", f"{ran.id} pip install six")  # type: ignore[attr-defined]
    await snapshots.take(host, CALLER, sandbox.id, "without", Asker())
    await host.ledger.set_added(ran, (mine,))  # type: ignore[arg-type]
    await put(host, sandbox, "a", b"since then")
    workspaces.is_full = True

    with pytest.raises(StorageFull):
        await restore(host, CALLER, sandbox.id, Wish(snapshot="without"))

    assert (await now(host, sandbox)).added == (mine,)
    workspaces.is_full = False
    await restore(host, CALLER, sandbox.id, Wish(snapshot="without"))
    assert (await now(host, sandbox)).added == ()


@pytest.mark.long
async def test_a_run_that_could_not_be_gone_to_again_stays_undone(
    host: Host, workspaces: SlowWorkspaces
) -> None:
    sandbox = await new_sandbox(host)
    ran = await run(host, sandbox, "write", "/workspace/a", "one")
    await undo(host, CALLER, sandbox.id)
    undone = await host.ledger.run(ran.id, "default")  # type: ignore[attr-defined]
    workspaces.is_full = True

    with pytest.raises(StorageFull):
        await restore(host, CALLER, sandbox.id, Wish(run=undone.id, side="after"))

    assert undone.undone_at is not None
    assert (await host.ledger.run(undone.id, "default")).undone_at == undone.undone_at
    assert held(host, sandbox) == {}


async def test_a_tree_that_is_not_kept_is_told_of(host: Host) -> None:
    sandbox = await new_sandbox(host)
    was = await keep(host, sandbox)

    with pytest.raises(NotFound, match="PETRI_UNDO_RUNS"):
        await become(host, sandbox, "00" * 32, "files.restore", {}, Back(was))


async def test_a_sandbox_with_an_origin_is_there_at_once_and_its_files_behind(
    host: Host, workspaces: SlowWorkspaces
) -> None:
    parent = await new_sandbox(host)
    await put(host, parent, "a", b"one")
    tree = await keep(host, parent)
    workspaces.may_become.clear()

    child = await new_sandbox(host, origin=Origin(tree, sandbox=parent.id))

    assert (child.tree, child.first_tree, child.forked_from) == (tree, tree, parent.id)
    assert held(host, child) == {}
    workspaces.may_become.set()
    await settled_files(host, child)
    assert held(host, child) == {"a": b"one"}
    assert (await now(host, child)).becoming is None


async def test_after_a_crash_the_next_life_does_what_was_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reap, "_LOOK_S", 0.01)
    async with open_host(tmp_path) as crashed:
        sandbox = await new_sandbox(crashed)
        await put(crashed, sandbox, "a", b"one")
        first = await keep(crashed, sandbox)
        await put(crashed, sandbox, "a", b"two")
        await keep(crashed, sandbox)
        await crashed.ledger.begin_becoming(sandbox.id, first, "files.restore")
    async with open_host(tmp_path) as host:
        reaping = asyncio.ensure_future(Reaper(host, await recover(host)).run())

        async def is_settled() -> bool:
            return (await now(host, sandbox)).becoming is None

        await until(is_settled)
        assert held(host, sandbox) == {"a": b"one"}
        reaping.cancel()
        await asyncio.wait((reaping,))


async def test_after_a_crash_the_first_to_use_the_files_need_not_wait_for_the_reaper(
    tmp_path: Path,
) -> None:
    async with open_host(tmp_path) as crashed:
        sandbox = await new_sandbox(crashed)
        await put(crashed, sandbox, "a", b"one")
        first = await keep(crashed, sandbox)
        await put(crashed, sandbox, "a", b"two")
        await crashed.ledger.begin_becoming(sandbox.id, first, "files.restore")
    async with open_host(tmp_path) as host:
        await recover(host)

        ended = await run(host, sandbox, "exit", "0")

        assert ended.tree_before == first  # type: ignore[attr-defined]
        assert held(host, sandbox) == {"a": b"one"}


async def test_a_sandbox_that_is_deleted_while_its_files_come_stays_deleted(
    host: Host, workspaces: SlowWorkspaces
) -> None:
    parent = await new_sandbox(host)
    await put(host, parent, "a", b"one")
    tree = await keep(host, parent)
    workspaces.may_become.clear()
    child = await new_sandbox(host, origin=Origin(tree, sandbox=parent.id))
    deleting = asyncio.ensure_future(destroy(host, CALLER, child.id))

    async def is_going() -> bool:
        return await state_of(host, child) == "deleting"

    await until(is_going)
    workspaces.may_become.set()
    await deleting

    assert await state_of(host, child) == "deleted"
    assert not host.workspaces.folder(child.id).exists()
    assert child.id not in host.becomings.due


async def bricked(host: Host) -> Sandbox:
    """Return a sandbox whose files are to become a tree of which the store lacks a content."""
    with host.store.write("default") as writing:
        tree = writing.put_folder(encode({b"lost": File(bytes(32), 4, 6)}))
        writing.commit()
    return await new_sandbox(host, origin=Origin(tree.hex()))


async def test_files_that_cannot_be_what_they_are_to_be_are_a_conflict_with_a_way_out(host: Host) -> None:
    sandbox = await bricked(host)

    for _ in range(2):
        with pytest.raises(Conflict, match=r"is not kept.*restore them"):
            await run(host, sandbox, "exit", "0")


async def test_restoring_something_else_is_the_way_out(host: Host) -> None:
    other = await new_sandbox(host)
    await put(host, other, "a", b"one")
    snapshot = await snapshots.take(host, CALLER, other.id, "good", Asker())
    sandbox = await bricked(host)

    await restore(host, CALLER, sandbox.id, Wish(snapshot="good"))

    assert held(host, sandbox) == {"a": b"one"}
    found = await now(host, sandbox)
    assert (found.tree, found.becoming) == (snapshot.tree, None)
    assert await run(host, sandbox, "exit", "0")


async def test_what_a_sandbox_may_not_hold_is_not_restored(host: Host) -> None:
    large = await new_sandbox(host)
    await put(host, large, "a", bytes(2 << 20))
    await snapshots.take(host, CALLER, large.id, "large", Asker())
    small = await new_sandbox(host, limits={"disk_bytes": 1 << 20})

    with pytest.raises(StorageFull, match=r"2097152 bytes in 1 .* 1048576"):
        await restore(host, CALLER, small.id, Wish(snapshot="large"))

    assert held(host, small) == {}


async def test_a_restore_waits_for_whoever_writes_and_lets_nobody_else_begin(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        await put(host, sandbox, "a", b"first")
        await run(host, sandbox, "write", "/workspace/a", "second")

        with host.trials.writing(sandbox.id):
            going = asyncio.ensure_future(undo(host, CALLER, sandbox.id))
            await until(lambda: in_thread(host.trials.has_begun, sandbox.id))
            with pytest.raises(Conflict, match="restore is under way"):
                await put(host, sandbox, "b", b"too late")
            (host.workspaces.folder(sandbox.id) / "c").write_bytes(b"acknowledged in a moment")
        back = await going

        assert held(host, sandbox) == {"a": b"first"}
        await restore(host, CALLER, sandbox.id, Wish(tree=back.was))
        assert held(host, sandbox) == {"a": b"second", "c": b"acknowledged in a moment"}
