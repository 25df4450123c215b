"""A folder and a sandbox, kept in step: push, pull and sync, tried again where that may help."""

import os
import re
import time

from petri.errors import (
    BaseUnknown,
    Busy,
    Conflict,
    HostError,
    Invalid,
    InvalidField,
    NotFound,
    PathsConflict,
    PetriError,
)
from petri.sdk.config import api_key, server_url, state_folder
from petri.sdk.folder.answer import DeltaFailed
from petri.sdk.folder.contents import Restless
from petri.sdk.folder.exchange import Exchange, Trust, Wish, answer_json
from petri.sdk.folder.line import Line
from petri.sdk.folder.results import Progress, Synced
from petri.sdk.folder.state import Forgotten, State
from petri.sdk.naming import is_sandbox_id
from petri.syncing import Prefer

SILENCE_S = 300.0
"""The longest silence to bear from the server: it may have gigabytes to make durable before it answers."""
RETRIES = 3
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
_RESTLESS_TRIES = 3
_NAME = re.compile(r"[A-Za-z0-9._-]{1,63}")
"""What sandboxes may be called."""


class Mirror:
    """One folder of this machine and one sandbox. For one thread at a time; `close` ends its connection.

    `sandbox` is an id or the name of a live sandbox; a name costs one more call, once.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        sandbox: str,
        url: str | None = None,
        key: str | None = None,
        *,
        retries: int = RETRIES,
    ) -> None:
        self.top = os.path.realpath(os.fsencode(folder))
        self._sandbox = sandbox
        self._id = sandbox if is_sandbox_id(sandbox) else None
        self._retries = retries
        self._line = Line(server_url(url), api_key(key), SILENCE_S)
        self._state = State(self.top, state_folder())

    def __enter__(self) -> "Mirror":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the server."""
        self._line.close()

    def push(
        self, *, prefer: Prefer | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> Synced:
        """Send what changed here; all of it appears in the sandbox at once, or none.

        `PathsConflict` if the sandbox changed the same paths, unless `prefer` is `"local"`.
        """
        return self.exchange(Wish("push", prefer, dry_run, progress))

    def pull(
        self, *, prefer: Prefer | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> Synced:
        """Fetch what changed in the sandbox. What changed here too is left alone, and told as a conflict.

        The folder is made if it is not there. If `prefer` is `"sandbox"`, its version of a conflict is
        taken, and ours stays beside it.
        """
        return self.exchange(Wish("pull", prefer, dry_run, progress))

    def sync(
        self, *, prefer: Prefer | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> Synced:
        """Send what changed here and fetch what changed there, in one request."""
        return self.exchange(Wish("sync", prefer, dry_run, progress))

    def exchange(self, wish: Wish) -> Synced:
        """Do one of the three, as often as it takes."""
        _refuse_preferring(wish)
        self._require_folder(wish)
        try:
            return self._exchange(wish)
        except PathsConflict:
            raise
        except (NotFound, Conflict):
            if not self._is_another_now():
                raise
        return self._exchange(wish._replace(touched=None))

    def _exchange(self, wish: Wish) -> Synced:
        trust = Trust()
        trials = _Trials(self._retries)
        while True:
            try:
                with self._state.locked():
                    return Exchange(self.top, self._state, self._line, self.sandbox_id()).run(wish, trust)
            except Restless as error:
                trials.restless(error)
            except DeltaFailed as error:
                if not trust.deltas:
                    raise PetriError("the server and this machine do not agree on a content") from error
                trust = trust._replace(deltas=False)
            except BaseUnknown:
                if not trust.base:
                    raise
                trust = trust._replace(base=False)
            except Forgotten:
                trials.forgotten()
                self._state.forget(self._line.url, self.sandbox_id())
            except (HostError, Busy) as error:
                trials.failed(error)
            # What was touched is known only for the first trial.
            wish = wish._replace(touched=None)

    def _require_folder(self, wish: Wish) -> None:
        if wish.mode == "pull" and not wish.dry_run:
            os.makedirs(self.top, exist_ok=True)
        if not os.path.isdir(self.top):
            raise Invalid(f"there is no folder {os.fsdecode(self.top)}")

    def sandbox_id(self) -> str:
        """Return the sandbox's id, asking for it if only its name is known."""
        if self._id is None:
            self._id = self._found(self._sandbox)
        return self._id

    def is_there(self) -> bool:
        """Say whether the sandbox is one to sync with; also if there is nobody to ask."""
        try:
            answer = self._line.call("GET", f"/v1/sandboxes/{self.sandbox_id()}", {})
            return bool(answer_json(answer, self._line.url).get("state") == "ready")
        except NotFound:
            return False
        except HostError:
            return True

    def _is_another_now(self) -> bool:
        """Say whether by now another sandbox has the name: the one that had it may be gone."""
        if self._id in (None, self._sandbox):
            return False
        before, self._id = self._id, self._found(self._sandbox)
        return self._id != before

    def _found(self, name: str) -> str:
        if _NAME.fullmatch(name) is not None:
            answer = self._line.call("GET", f"/v1/sandboxes?state=ready&name={name}", {})
            told = answer_json(answer, self._line.url)
            for each in told.get("sandboxes", ()):
                return str(each["id"])
        raise NotFound(f"there is no sandbox {name!r}")


class _Trials:
    """Counts what went wrong, waits where that helps, and gives up in the end."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._failures = self._restless = self._forgotten = 0

    def restless(self, error: Restless) -> None:
        self._restless += 1
        if self._restless > _RESTLESS_TRIES:
            raise Conflict(f"{error}; wait until it is quiet, or name it in .petriignore") from None
        time.sleep(FIRST_PAUSE_S * self._restless)

    def forgotten(self) -> None:
        self._forgotten += 1
        if self._forgotten > 1:
            raise PetriError("what is remembered of the folder cannot be kept: is the disk full?") from None

    def failed(self, error: PetriError) -> None:
        self._failures += 1
        if self._failures > self._retries or not error.retryable:
            raise error
        time.sleep(pause_s(self._failures))


def pause_s(failures: int) -> float:
    """Return how long to wait after so many failures; not all who failed together come back together."""
    import random  # on use: most syncs do without

    return min(FIRST_PAUSE_S * 2.0**failures, LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)


def _refuse_preferring(wish: Wish) -> None:
    """Refuse to prefer a side that would have to change for it, and may not."""
    if wish.mode == "push" and wish.prefer == "sandbox":
        raise InvalidField("prefer", "a push can only prefer what is local")
    if wish.mode == "pull" and wish.prefer == "local":
        raise InvalidField("prefer", "a pull can only prefer what is in the sandbox")
