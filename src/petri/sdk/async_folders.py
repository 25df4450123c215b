"""Folders of this machine and sandboxes, kept in step, for programs with an event loop.

`sync_folders.py` is generated from this file by `scripts/generate-sdk`: change this one, run that.
"""

from collections.abc import AsyncGenerator

from petri.sdk.bodies import Progress
from petri.sdk.folder.exchange import Wish
from petri.sdk.folder.results import Synced
from petri.sdk.folder.watching import Trouble
from petri.sdk.mirrors import Folder, Mirrors
from petri.sdk.waiting import in_thread
from petri.syncing import Prefer


class AsyncFolders:
    """What a client does with folders: only what changed since the last time goes over the line.

    A path that both sides changed is a conflict: neither version is lost. It is told, and as it was on both
    sides; or, with `prefer`, the version of that side counts, and the other one stays beside it under a name
    with `.petri-conflict-` in it. What `.gitignore` and `.petriignore` say is left out.
    """

    def __init__(self, url: str, key: str | None, retries: int) -> None:
        self._mirrors = Mirrors(url, key, retries)

    async def push(
        self,
        folder: Folder,
        sandbox: str,
        *,
        prefer: Prefer | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Synced:
        """Send what changed in a folder; all of it appears in the sandbox at once, or nothing.

        `PathsConflict` if the sandbox changed the same paths, unless `prefer` is `"local"`.
        """
        return await in_thread(
            self._mirrors.exchange, folder, sandbox, Wish("push", prefer, dry_run, progress)
        )

    async def _push_if_changed(self, folder: Folder, sandbox: str, progress: Progress | None) -> Synced:
        """Push a folder, unless nothing changed in it since the last time: then nobody is asked."""
        wish = Wish("push", progress=progress, if_changed=True)
        return await in_thread(self._mirrors.exchange, folder, sandbox, wish)

    async def pull(
        self,
        folder: Folder,
        sandbox: str,
        *,
        prefer: Prefer | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Synced:
        """Bring what changed in the sandbox to a folder, which is made if it is not there.

        If `prefer` is `"sandbox"`, its version of a path in conflict is taken, and ours stays beside it.
        """
        return await in_thread(
            self._mirrors.exchange, folder, sandbox, Wish("pull", prefer, dry_run, progress)
        )

    async def sync(
        self,
        folder: Folder,
        sandbox: str,
        *,
        prefer: Prefer | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Synced:
        """Send what changed in a folder and bring what changed in the sandbox, in one request."""
        return await in_thread(
            self._mirrors.exchange, folder, sandbox, Wish("sync", prefer, dry_run, progress)
        )

    async def watch(
        self,
        folder: Folder,
        sandbox: str,
        *,
        prefer: Prefer | None = None,
        progress: Progress | None = None,
        trouble: Trouble | None = None,
    ) -> AsyncGenerator[Synced, None]:
        """Keep a folder and a sandbox in step, and yield what moved each time something did.

        Goes on until the loop is left. A server that is away is waited for; `trouble` is told.
        """
        watching = self._mirrors.watch(folder, sandbox, prefer, progress, trouble)
        try:
            while (done := await in_thread(watching.next)) is not None:
                yield done
        finally:
            watching.stop()
            await in_thread(watching.end)
