"""The folders a client keeps in step with sandboxes: each with its own connection, used by one at a time."""

import os
import threading

from petri.sdk.folder.exchange import Wish
from petri.sdk.folder.mirror import Mirror
from petri.sdk.folder.results import Progress, Synced
from petri.sdk.folder.watching import Trouble, Watching
from petri.syncing import Prefer

Folder = str | os.PathLike[str]


class Mirrors:
    """Mirrors by folder and sandbox, made on first use. From any thread."""

    def __init__(self, url: str, key: str | None, retries: int) -> None:
        self._url = url
        self._key = key
        self._retries = retries
        self._guard = threading.Lock()
        self._known: dict[tuple[str, str], tuple[Mirror, threading.Lock]] = {}

    def exchange(self, folder: Folder, sandbox: str, wish: Wish) -> Synced:
        """Push, pull or sync a folder, as `wish` says."""
        mirror, lock = self._of(folder, sandbox)
        with lock:
            return mirror.exchange(wish)

    def watch(
        self,
        folder: Folder,
        sandbox: str,
        prefer: Prefer | None,
        progress: Progress | None,
        trouble: Trouble | None,
    ) -> Watching:
        """Begin to keep a folder in step; it has a connection of its own."""
        return Watching(Mirror(folder, sandbox, self._url, self._key), prefer, progress, trouble)

    def close(self) -> None:
        """Close every connection."""
        with self._guard:
            for mirror, lock in self._known.values():
                with lock:
                    mirror.close()
            self._known.clear()

    def _of(self, folder: Folder, sandbox: str) -> tuple[Mirror, threading.Lock]:
        where = os.path.realpath(folder), sandbox
        with self._guard:
            if where not in self._known:
                mirror = Mirror(folder, sandbox, self._url, self._key, retries=self._retries)
                self._known[where] = mirror, threading.Lock()
            return self._known[where]
