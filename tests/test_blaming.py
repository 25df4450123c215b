"""How far content is followed to who wrote it; what people ask is in `test_api_compare`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from petri.errors import StorageFull
from petri.model import Asker, Sandbox
from petri.operations import Host, blaming, files, snapshots
from petri.operations.blaming import blame
from petri.operations.fork import Wish, fork
from petri.operations.merging import Merging, merge
from petri.operations.restore import Wish as Going
from petri.operations.restore import restore
from petri.threads import in_thread
from petri.workspace import Intake
from tests.hosts import CALLER, new_sandbox, open_host
from tests.test_becoming import SlowWorkspaces, put


@pytest.fixture
def workspaces(tmp_path: Path) -> SlowWorkspaces:
    return SlowWorkspaces(tmp_path / "workspaces")


@pytest.fixture
async def host(tmp_path: Path, workspaces: SlowWorkspaces) -> AsyncIterator[Host]:
    async with open_host(tmp_path, workspaces=workspaces) as opened:
        yield opened


async def put_all(host: Host, sandbox: Sandbox, paths: list[str]) -> None:
    """Upload many files at once."""

    def stage(intake: Intake) -> None:
        for path in paths:
            staged = intake.file(path)
            staged.write(path.encode())
            staged.close()

    async with files.receive(host, sandbox) as intake:
        await in_thread(stage, intake)
        await files.commit(host, sandbox, intake)


async def test_what_was_written_longer_ago_than_anybody_looks_is_not_blamed_on_a_parent(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await new_sandbox(host)
    await put(host, parent, "out", b"the parent's")
    await put(host, parent, "began", b"the parent's")
    [child] = await fork(host, CALLER, parent.id, Wish())
    await put(host, child, "out", b"the child's own")
    await put(host, child, "other", b"1")
    await snapshots.take(host, CALLER, child.id, None, Asker())

    found = await blame(host, CALLER, child.id, "began")
    assert (found.sandbox.id, [each.kind for each in found.through]) == (parent.id, ["fork"])
    monkeypatch.setattr(blaming, "_STEPS", 2)
    found = await blame(host, CALLER, child.id, "out")
    assert (found.step, found.sandbox.id, found.through) == (None, child.id, ())


async def test_a_snapshot_is_followed_by_its_name_unless_that_is_another_s_by_now(host: Host) -> None:
    other, ours = await new_sandbox(host), await new_sandbox(host)
    await put(host, other, "out", b"1")
    await put(host, ours, "own", b"1")
    first = await snapshots.take(host, CALLER, other.id, "snap-best", Asker())
    await merge(host, CALLER, ours.id, Merging("snap-best", base="now"))
    assert (await blame(host, CALLER, ours.id, "out")).sandbox.id == other.id

    await snapshots.delete(host, CALLER, first.id)
    await put(host, other, "out", b"2")
    await snapshots.take(host, CALLER, other.id, "snap-best", Asker())

    found = await blame(host, CALLER, ours.id, "out")
    assert found.step is not None
    assert (found.step.row.kind, found.sandbox.id, found.through) == ("files.merge", ours.id, ())


async def test_a_restore_or_a_merge_that_failed_is_blamed_for_nothing(
    host: Host, workspaces: SlowWorkspaces
) -> None:
    sandbox = await new_sandbox(host)
    await put(host, sandbox, "out", b"1")
    first = await snapshots.take(host, CALLER, sandbox.id, None, Asker())
    await put(host, sandbox, "out", b"2")
    [fork_] = await fork(host, CALLER, sandbox.id, Wish())
    await put(host, fork_, "new", b"the fork's")
    workspaces.is_full = True
    with pytest.raises(StorageFull):
        await restore(host, CALLER, sandbox.id, Going(snapshot=first.id))
    with pytest.raises(StorageFull):
        await merge(host, CALLER, sandbox.id, Merging(fork_.id))
    workspaces.is_full = False

    found = await blame(host, CALLER, sandbox.id, "out")

    assert found.step is not None
    assert (found.step.row.kind, found.passed_over, found.through) == ("files.written", 0, ())
    merged = await merge(host, CALLER, sandbox.id, Merging(fork_.id))
    assert merged.changes is not None, "what failed did not count as merged"
    assert merged.changes.added == ("new",)


async def test_the_first_step_is_told_by_what_was_there_before_it(host: Host) -> None:
    sandbox = await new_sandbox(host)
    many = [f"{number:03}" for number in range(40)]
    await put_all(host, sandbox, many)  # more than a row of the record names
    await snapshots.take(host, CALLER, sandbox.id, None, Asker())

    found = await blame(host, CALLER, sandbox.id, many[-1])

    assert found.step is not None
    assert (found.step.row.kind, found.passed_over) == ("files.written", 0)


async def test_what_is_cut_off_has_no_beginning_that_anybody_knows(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await new_sandbox(host)
    await put(host, parent, "old", b"the parent's")
    [child] = await fork(host, CALLER, parent.id, Wish())
    await put(host, child, "own", b"the child's")
    await put_all(host, child, [f"{number:03}" for number in range(40)])
    await snapshots.take(host, CALLER, child.id, None, Asker())
    monkeypatch.setattr(blaming, "_STEPS", 2)

    found = await blame(host, CALLER, child.id, "own")

    assert (found.step, found.passed_over) == (None, 1), "not blamed on the first step that is left"
