"""Which trees are known to be kept: those of sandboxes that are there."""

import asyncio
import threading
from pathlib import Path

from petri.operations.destroy import destroy
from petri.operations.keeping import keep
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
