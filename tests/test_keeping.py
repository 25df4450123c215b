"""Which trees are known to be kept, those of sandboxes that are there; and what a run finds of its files."""

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path

from petri.model import Changes, Run, Sandbox
from petri.operations import Host, trees
from petri.operations.destroy import destroy
from petri.operations.keeping import keep
from petri.operations.looking import Glimpse, glimpse, tree_of
from petri.workspace import Bounds, Sink, Workspaces
from tests.hosts import CALLER, new_sandbox, open_host


class SlowWorkspaces(Workspaces):
    """Says that a tree is kept only once it may."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, Bounds(2**30, 1000))
        self.has_kept, self.may_say_so = threading.Event(), threading.Event()

    def keep(self, sandbox_id: str, sink: Sink, *, restless: bool = False) -> bytes:
        tree = super().keep(sandbox_id, sink, restless=restless)
        self.has_kept.set()
        self.may_say_so.wait(10)
        return tree


async def test_a_sandbox_that_goes_while_its_files_are_kept_is_not_remembered(tmp_path: Path) -> None:
    """Else its tree would never be swept, and every such sandbox would cost the server some memory."""
    workspaces = SlowWorkspaces(tmp_path / "workspaces")
    async with open_host(tmp_path, workspaces=workspaces) as host, asyncio.TaskGroup() as both:
        sandbox = await new_sandbox(host)
        workspaces.has_kept.clear()
        both.create_task(keep(host, sandbox))
        await asyncio.to_thread(workspaces.has_kept.wait, 10)
        going = both.create_task(destroy(host, CALLER, sandbox.id))
        while workspaces.folder(sandbox.id).exists():  # noqa: ASYNC110 - it goes in a thread
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        workspaces.may_say_so.set()
        await going

    assert host.keeper.kept == {}


# ------------------------------------------------------------------------- what a run has seen a moment ago


async def begun(host: Host, sandbox: Sandbox, seen: Glimpse) -> tuple[str | None, Changes]:
    """Return what a run starts from that has `seen` its files, and what has changed by its end."""
    asked = Run("run-x", sandbox.id, sandbox.tenant, "code", "1", ("x",), "/workspace", 1, sandbox.engine, 0)
    run = await trees.before(host, sandbox, asked, seen)
    _, changes = await trees.after(host, sandbox)
    assert changes is not None
    return run.tree_before, changes


async def test_a_run_starts_from_what_it_saw_of_its_files_a_moment_ago(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        seen = replace(await seen_kept(host, sandbox), at=time.monotonic() + 60)
        (host.workspaces.folder(sandbox.id) / "new").write_text("x")

        assert await begun(host, sandbox, seen) == (seen.tree, Changes(added=("new",)))


async def test_what_a_run_saw_longer_ago_is_looked_at_again(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        seen = replace(await seen_kept(host, sandbox), at=time.monotonic() - 0.1)
        (host.workspaces.folder(sandbox.id) / "new").write_text("x")

        assert await begun(host, sandbox, seen) == (await tree_of(host, sandbox.id), Changes())


async def test_what_somebody_else_has_looked_at_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    """Else what they found new would be in no run's changes, though it came after the tree on record."""
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        seen = replace(await seen_kept(host, sandbox), at=time.monotonic() + 60)
        (host.workspaces.folder(sandbox.id) / "new").write_text("x")
        tree = await tree_of(host, sandbox.id)

        assert await begun(host, sandbox, seen) == (tree, Changes())


async def test_what_is_not_kept_yet_is_kept_before_a_run_starts(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        sandbox = await new_sandbox(host)
        (host.workspaces.folder(sandbox.id) / "new").write_text("x")
        seen = glimpse(host, sandbox.id)
        assert seen is not None

        await begun(host, sandbox, replace(seen, at=time.monotonic() + 60))

        assert host.keeper.kept[sandbox.id] == seen.tree


async def seen_kept(host: Host, sandbox: Sandbox) -> Glimpse:
    """Have the files of a sandbox kept, and return them as a run sees them."""
    await keep(host, sandbox)
    seen = glimpse(host, sandbox.id)
    assert seen is not None
    return seen
