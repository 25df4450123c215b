"""Keeping a folder and a sandbox in step for as long as somebody wants: a save here is there in a moment.

The system tells which files were saved, so only those are looked at; now and then the whole folder is, should
something have gone unsaid. What runs write in the sandbox nobody tells: it is asked for every second, which
with nothing new costs one small request.
"""

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator

from petri.errors import Busy, Conflict, HostError, PathsConflict, PetriError
from petri.sdk.folder.exchange import Wish
from petri.sdk.folder.mirror import Mirror, pause_s
from petri.sdk.folder.results import PathConflict, Progress, Skipped, Synced
from petri.syncing import STAGE, Prefer

ASK_S = 1.0
"""How long the sandbox is not asked for what is new there."""
REFUSED_S = 15.0
"""How long the sandbox is not asked at most, of what it refused."""
LOOK_S, LOOK_AT_LAST_S = 60.0, 300.0
"""How long the folder is not looked through as a whole: until nothing is being saved, or in any case."""
_STEP_MS, _DEBOUNCE_MS = 5, 30
"""How soon saves are told, and how long those that come one upon the other are gathered."""
_OURS = (os.fsdecode(STAGE), ".git")
"""What changes in here moves nothing."""

Trouble = Callable[[PetriError], None]
"""Told of what went wrong and is tried again: the server is not there, a path is in conflict, or it is the
wrong moment."""


class Watching:
    """One folder and one sandbox, kept in step from the first `next` until `stop`."""

    def __init__(
        self,
        mirror: Mirror,
        prefer: Prefer | None = None,
        progress: Progress | None = None,
        trouble: Trouble | None = None,
    ) -> None:
        self._mirror = mirror
        self._wish = Wish("sync", prefer, progress=progress)
        self._trouble = trouble
        self._stop = threading.Event()
        self._waiting = threading.Lock()
        self._exchanges = self._run()
        self._failures = 0
        self._not_before = 0.0
        """When to try again what was refused, if nothing is saved until then."""
        self._said = ""
        self._conflicts: tuple[PathConflict, ...] = ()
        self._skipped: set[Skipped] = set()
        """What was told already."""

    def next(self) -> Synced | None:
        """Wait for the next exchange that moves something, or finds a conflict; None once stopped."""
        with self._waiting:
            return next(self._exchanges, None)

    def stop(self) -> None:
        """Have `next` return soon. From any thread."""
        self._stop.set()

    def end(self) -> None:
        """Watch no more, and close the connection to the server."""
        self.stop()
        with self._waiting:
            self._exchanges.close()
            self._mirror.close()

    def _run(self) -> Generator[Synced, None, None]:
        # On use: of all that folders can do, only this needs it, and it brings asyncio.
        from watchfiles import watch

        yield from self._told(self._exchange(None))
        saved = watch(
            os.fsdecode(self._mirror.top),
            watch_filter=None,
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            rust_timeout=int(ASK_S * 1000),
            yield_on_timeout=True,
            stop_event=self._stop,
        )
        looked = time.monotonic() - LOOK_S  # what was saved before the watch began, nobody told
        for changes in saved:
            touched = self._inside(path for _, path in changes)
            if (changes and not touched) or (not changes and time.monotonic() < self._not_before):
                continue
            # Whoever saves does not wait for that: it takes as long as there are files.
            if time.monotonic() - looked > (LOOK_AT_LAST_S if changes else LOOK_S) or self._failures:
                touched, looked = None, time.monotonic()
            yield from self._told(self._exchange(touched))

    def _inside(self, paths: Iterator[str]) -> list[bytes] | None:
        """Return paths as the folder knows them, without those of no concern."""
        found = []
        for path in paths:
            inner = os.path.relpath(path, os.fsdecode(self._mirror.top))
            if inner == ".":
                return None
            if inner.partition("/")[0] not in _OURS:
                found.append(os.fsencode(inner))
        return found

    def _exchange(self, touched: list[bytes] | None) -> Synced | None:
        """Exchange what is new; nothing if the server is not there, for now."""
        while not self._stop.is_set():
            try:
                done = self._mirror.exchange(self._wish._replace(touched=touched))
            except Conflict as error:
                # A dry run or a restore is under way there, or a file here is never quiet: that ends. Or
                # something ignored is in the way, until somebody moves it.
                if not isinstance(error, PathsConflict) and not self._mirror.is_there():
                    raise
                self._put_off(error)
                return None
            except (HostError, Busy) as error:
                self._failures += 1
                self._tell(error)
                self._stop.wait(pause_s(self._failures))
                touched = None
            else:
                self._failures, self._not_before, self._said = 0, 0.0, ""
                return done
        return None

    def _put_off(self, error: PetriError) -> None:
        """Try again when something is saved; else after a while, and then after a longer one."""
        self._tell(error)
        self._not_before = time.monotonic() + min(ASK_S * 2.0**self._failures, REFUSED_S)
        self._failures += 1

    def _tell(self, error: PetriError) -> None:
        """Say what is wrong, once for as long as it is."""
        if self._trouble is not None and error.message != self._said:
            self._trouble(error)
        self._said = error.message

    def _told(self, done: Synced | None) -> Iterator[Synced]:
        """Yield what is worth telling: a conflict once, not every second; what is skipped once."""
        if done is None:
            return
        is_new = done.conflicts != self._conflicts
        self._conflicts = done.conflicts
        if is_new or not done.sent.is_nothing or not done.received.is_nothing:
            yield done._replace(skipped=tuple(each for each in done.skipped if each not in self._skipped))
            self._skipped.update(done.skipped)
