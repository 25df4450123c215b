"""Trees of sandboxes, for programs with an event loop: what differs, who wrote it, merging.

`sync_trees.py` is generated from this file by `scripts/generate-sdk`: change this one, run that.
"""

from typing import Literal

from petri.sdk.asking import Ask, segment
from petri.sdk.async_connection import AsyncConnection
from petri.sdk.fields import given
from petri.wire import BlameAnswer, DiffAnswer, MergeAnswer


class AsyncTrees:
    """What a client asks about the files of sandboxes as they were, and are.

    A moment is a run's id (how it ended; with `:before`, how it began), a snapshot's, another sandbox's, a
    tree, or `now`.
    """

    _connection: AsyncConnection

    async def diff(self, sandbox: str, from_: str | None = None, to: str | None = None) -> DiffAnswer:
        """Return what lies between two moments; by default from before the last run until now."""
        ask = Ask("GET", _address(sandbox, "diff"), params=given({"from": from_, "to": to}), patient=True)
        return await self._connection.ask(ask, DiffAnswer)

    async def blame(self, sandbox: str, path: str) -> BlameAnswer:
        """Return which run, upload or restore gave a file what it holds now."""
        return await self._connection.ask(
            Ask("GET", _address(sandbox, "blame"), params={"path": path}), BlameAnswer
        )

    async def merge(
        self,
        sandbox: str,
        from_: str,
        *,
        base: str | None = None,
        prefer: Literal["ours", "theirs"] | None = None,
    ) -> MergeAnswer:
        """Bring the changes of a fork, a snapshot or a tree into a sandbox; all of them, or none.

        `PathsConflict` if both changed the same path, unless `prefer` says whose side wins.
        """
        body = given({"from": from_, "base": base, "prefer": prefer})
        ask = Ask("POST", _address(sandbox, "merge"), json=body, patient=True)
        return await self._connection.ask(ask, MergeAnswer)


def _address(sandbox: str, what: str) -> str:
    return f"/v1/sandboxes/{segment(sandbox)}/{what}"
