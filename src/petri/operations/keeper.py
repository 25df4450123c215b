"""What is known of each workspace's tree: which one is kept, what it is to become, and who is at it."""

import asyncio
from weakref import WeakValueDictionary

from petri.workspace import Errand

_FILLED_AT_ONCE = 4
"""Workspaces that become another tree at one time: more would only share the same disk."""


class Keeper:
    """Says whose files are kept, and has one at a time look at a workspace for long."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        """The tree of each sandbox that was kept last. Those are not swept."""
        self.owed: set[str] = set()
        """Whose last run left a tree that is not kept yet, though it is on record as what the run made."""
        self.due: set[str] = set()
        """Whose files are kept soon."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def at_work(self, sandbox_id: str) -> asyncio.Lock:
        """Return what whoever looks at a workspace is to hold: then nobody else does."""
        return self._locks.setdefault(sandbox_id, asyncio.Lock())


class Becomings:
    """Whose files are to be another tree. Mirrors the ledger, which knew it first."""

    def __init__(self) -> None:
        self.due: dict[str, str] = {}
        """The tree each is to be, by sandbox. Whoever uses those files waits."""
        self.at_work: dict[str, tuple[asyncio.Future[None], Errand]] = {}
        """Who is at it."""
        self.failed: set[str] = set()
        """Of which sandboxes the last try came to nothing: their files may become something else instead."""
        self.turns = asyncio.Semaphore(_FILLED_AT_ONCE)

    def put(self, sandbox_id: str, tree: str | None) -> None:
        """Have the files of a sandbox due to become `tree`, or nothing else than they are."""
        self.failed.discard(sandbox_id)
        if tree is None:
            self.due.pop(sandbox_id, None)
        else:
            self.due[sandbox_id] = tree
