"""Snapshots, forks and going back, for programs with an event loop.

`sync_snapshots.py` is generated from this file by `scripts/generate-sdk`: change this one, run that.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Literal

from petri.sdk.asking import Ask, segment
from petri.sdk.async_connection import AsyncConnection
from petri.sdk.fields import given
from petri.wire import ForkAnswer, RestoreAnswer, SandboxAnswer, SnapshotAnswer, SnapshotList


class AsyncSnapshots:
    """What a client does with the past of a sandbox's files."""

    _connection: AsyncConnection

    async def snapshot(self, sandbox: str, *, name: str | None = None) -> SnapshotAnswer:
        """Keep the files of a sandbox as they are, under an id and perhaps a name."""
        ask = Ask("POST", f"/v1/sandboxes/{segment(sandbox)}/snapshots", json=given({"name": name}))
        return await self._connection.ask(ask, SnapshotAnswer)

    async def snapshots(self, sandbox: str | None = None) -> AsyncGenerator[SnapshotAnswer, None]:
        """Yield the snapshots of a sandbox, or all there are, newest first."""
        where = "/v1/snapshots" if sandbox is None else f"/v1/sandboxes/{segment(sandbox)}/snapshots"
        async for page in self._connection.pages(Ask("GET", where), SnapshotList):
            for snapshot in page.snapshots:
                yield snapshot

    async def show_snapshot(self, snapshot: str) -> SnapshotAnswer:
        """Return a snapshot by its id or its name."""
        return await self._connection.ask(Ask("GET", f"/v1/snapshots/{segment(snapshot)}"), SnapshotAnswer)

    async def delete_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot, by its id or its name. Sandboxes made from it stay as they are."""
        await self._connection.tell(Ask("DELETE", f"/v1/snapshots/{segment(snapshot)}"))

    async def restore(
        self,
        sandbox: str,
        *,
        snapshot: str | None = None,
        run: str | None = None,
        side: Literal["before", "after"] | None = None,
        tree: str | None = None,
    ) -> RestoreAnswer:
        """Have the files of a sandbox be what they were: in a snapshot, before or after a run, or at a tree.

        The answer's `was` is the tree they were until now: restore that, and nothing has happened.
        """
        fields = given({"snapshot": snapshot, "run": run, "side": side, "tree": tree})
        ask = Ask("POST", f"/v1/sandboxes/{segment(sandbox)}/restore", json=fields, patient=True)
        return await self._connection.ask(ask, RestoreAnswer)

    async def undo(self, sandbox: str) -> RestoreAnswer:
        """Have the files of a sandbox be what they were before the last run that changed them."""
        ask = Ask("POST", f"/v1/sandboxes/{segment(sandbox)}/undo", patient=True)
        return await self._connection.ask(ask, RestoreAnswer)

    async def fork(
        self,
        sandbox: str,
        n: int = 1,
        *,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        idle_s: float | None = None,
    ) -> list[SandboxAnswer]:
        """Make `n` sandboxes with the files, limits and variables of this one; all of them, or none."""
        fields = given({"n": n, "name": name, "metadata": metadata, "idle_s": idle_s})
        ask = Ask("POST", f"/v1/sandboxes/{segment(sandbox)}/fork", json=fields)
        return (await self._connection.ask(ask, ForkAnswer)).sandboxes
