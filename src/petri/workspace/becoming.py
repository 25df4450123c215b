"""A workspace becomes another tree: all of it or nothing of it, from whatever is there now.

A look tells what is there, and the difference to what is to be there is staged, with contents from the
store. A workspace with nothing in it is replaced by the staged folder in one rename. Any other is reworked
(`rework`), so what does not differ is not touched. Then it is looked at again: only a look that finds the
wanted tree ends it. Whoever calls has on record what is to happen, so after a crash it is called again.

Nothing runs in the workspace meanwhile. What ran left hostile things all the same: FIFOs and unreadable
files, which no tree knows, where something is to be; folders that are closed to us.
"""

import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from petri.errors import Conflict, NotFound, PetriError
from petri.trees import File
from petri.workspace import kernel
from petri.workspace.beneath import FOLDER, beneath, trusted
from petri.workspace.commit import Site
from petri.workspace.differing import Difference, Plan, difference
from petri.workspace.drafting import NAME, Draft, Wanted
from petri.workspace.errand import Errand
from petri.workspace.ground import Ground
from petri.workspace.index import Index
from petri.workspace.indexes import WHOLE, Indexes
from petri.workspace.looking import Reading, Seen
from petri.workspace.planting import Likeness, Planter, Source
from petri.workspace.refusals import refusing
from petri.workspace.rework import Rework, exchange
from petri.workspace.room import Room
from petri.workspace.twins import Twin
from petri.workspace.versions import RACY_NS

_TRIES = 5
_WHOLE = "tree"
_WORTH_WAITING_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """One workspace, and whose it is."""

    ground: Ground
    indexes: Indexes
    sandbox_id: str
    owner: int | None
    room: Room


@dataclass(frozen=True, slots=True)
class Becoming:
    """One workspace that is to be a tree."""

    place: Place
    source: Source
    errand: Errand
    like: str | None = None
    """A workspace that may well hold the same files: copying those is quicker."""
    drafts: Sequence[Draft] = ()
    """Files that were made ahead of time. What is replaced is then left in the trash, to be removed later."""

    def become(self, tree: bytes) -> None:
        """Have the workspace be `tree`, durably; or raise, and it is as it was."""
        for left in reversed(range(_TRIES)):
            try:
                with refusing(""):
                    if self._is_after_a_step_to(tree):
                        return
            except Conflict:  # an upload came in between: it is looked at again
                if not left:
                    raise
        raise Conflict(
            f"the files of sandbox {self.place.sandbox_id} do not come to rest; end what writes to them"
        )

    def step(self, old: bytes, new: bytes, *, restless: bool) -> bool:
        """Have the workspace be `new`, durably, if it is `old`; say whether it was.

        `restless`: something may run in it. What that writes meanwhile to a path that differs between the two
        is kept: then nothing is done, and `Conflict` is raised.
        """
        place = self.place
        with refusing(""), place.ground.workspace(place.sandbox_id) as workspace:
            _open_up(workspace)
            looking = place.indexes.looked(place.sandbox_id, workspace, self._reading(), restless=restless)
            with looking as (index, look):
                if look.tree != old:
                    return False
                wanted = difference(index, self.source, new)
            if not restless and _is_empty(workspace):
                self._replace(new)
            else:
                self._rework(workspace, wanted)
            return True

    def draft(self, wanted: Wanted) -> Draft | None:
        """Make a file ahead of time; nothing if that cannot be done now."""
        place, sight = self.place, self.place.indexes.sight(self.place.sandbox_id, wanted.path)
        if place.room.project is not None:
            return None  # the kernel would count it, beside what it is to replace
        if sight is None or not isinstance(sight.entry, File) or sight.entry.digest != wanted.old:
            return None
        draft = Draft(wanted.path, wanted.new, sight, place.ground, place.ground.new_stage())
        with suppress(PetriError, OSError):  # whoever needs the file makes it then, or says why not
            if self._is_drafted(draft, wanted):
                return draft
        draft.discard()
        return None

    def _is_drafted(self, draft: Draft, wanted: Wanted) -> bool:
        path, flags = os.fsdecode(draft.path), os.O_RDONLY | os.O_NOFOLLOW
        with (
            self.place.ground.workspace(self.place.sandbox_id) as workspace,
            trusted(draft.stage) as staging,
            beneath(workspace, path, flags, follow=False) as there,
        ):
            if not draft.sight.is_still(os.fstat(there)):
                return False
            self._planter().plant_changed(staging, NAME, draft.file, there, wanted.pieces())
            return draft.sight.is_still(os.fstat(there))

    def _is_after_a_step_to(self, tree: bytes) -> bool:
        """Say whether the workspace is `tree`; if not, it has come nearer."""
        with self.place.ground.workspace(self.place.sandbox_id) as workspace:
            _open_up(workspace)
            with self.place.indexes.looked(self.place.sandbox_id, workspace, self._reading()) as (
                index,
                look,
            ):
                if look.tree == tree:
                    return True
                wanted = difference(index, self.source, tree)
            if _is_empty(workspace):
                self._replace(tree)
            else:
                self._rework(workspace, wanted)
            return False

    def _reading(self) -> Reading:
        return Reading(WHOLE.most_bytes, leaves_rest=True, is_over=self.place.ground.ending.is_set)

    def _replace(self, tree: bytes) -> None:
        """Put the whole tree in the place of a folder with nothing in it."""
        with self._staging() as staging, self._likeness() as likeness:
            os.mkdir(_WHOLE, 0o700, dir_fd=staging)
            with beneath(staging, _WHOLE, FOLDER) as top:
                made = self._planter(likeness).fill(top, tree)
                os.fchmod(top, 0o700)
                if self.place.owner is not None:
                    os.fchown(top, self.place.owner, self.place.owner)
            kernel.syncfs(staging)
            _let_age(made)
            with self.place.ground.changing(self.place.sandbox_id), trusted(self.place.ground.root) as root:
                index = Index.of(made, time.time_ns())
                _put_whole(staging, root, self.place.sandbox_id)
                self.place.indexes.adopt(self.place.sandbox_id, index)

    def _rework(self, workspace: int, wanted: Difference) -> None:
        with self._staging() as staging:
            plan = Plan(workspace, staging, self._planter(), self.drafts)
            steps = plan.steps(wanted)
            plan.harden()
            with self.place.ground.changing(self.place.sandbox_id):
                Rework(self.place.sandbox_id, self.place.owner, steps).carry_out(
                    Site(workspace, staging, self.place.owner)
                )

    def _planter(self, likeness: Likeness | None = None) -> Planter:
        return Planter(self.source, self.place.owner, self._allow, likeness)

    @contextmanager
    def _likeness(self) -> Iterator[Likeness | None]:
        with ExitStack() as held:
            twin = None
            with suppress(NotFound):  # it may be gone by now
                if self.like is not None:
                    workspace = held.enter_context(self.place.ground.workspace(self.like))
                    twin = Twin(workspace, self.place.indexes.steady_files(self.like))
            yield twin

    def _allow(self) -> None:
        self.errand.check()
        self.place.room.allow(0)

    @contextmanager
    def _staging(self) -> Iterator[int]:
        stage = self.place.ground.new_stage()
        try:
            self.place.room.own(stage)
            with trusted(stage) as staging:
                yield staging
        finally:
            with suppress(OSError):  # `tidy` sees scraps too
                if self.drafts:
                    self.place.ground.throw_away(stage)
                else:
                    self.place.ground.discard(stage)


def _let_age(made: Mapping[bytes, Seen]) -> None:
    """Wait until a change to any of these files would show by its time, if reading them again takes longer.

    Shared blocks are copied in no time, and what is younger than the clock's ticks is read at the next look.
    """
    sights = [sight for seen in made.values() for sight in seen.files.values()]
    if sum(sight.size for sight in sights) > _WORTH_WAITING_BYTES:
        youngest_ns = max(sight.ctime_ns for sight in sights)
        time.sleep(max(0, youngest_ns + RACY_NS + 1 - time.time_ns()) / 1e9)


def _put_whole(staging: int, root: int, name: str) -> None:
    """Exchange an empty folder for the staged one, durably. One that is gone by now stays gone."""
    exchange(staging, _WHOLE, root, name)
    try:
        os.rmdir(_WHOLE, dir_fd=staging)
    except OSError as error:
        exchange(staging, _WHOLE, root, name)
        raise Conflict("files came into the workspace while it was being filled; nothing was done") from error
    os.fsync(root)


def _open_up(workspace: int) -> None:
    """Have the workspace itself open to us, its owner, whatever its code has made of it."""
    if stat.S_IMODE(os.fstat(workspace).st_mode) & stat.S_IRWXU != stat.S_IRWXU:
        Path(f"/proc/self/fd/{workspace}").chmod(stat.S_IRWXU)


def _is_empty(workspace: int) -> bool:
    with beneath(workspace, "", FOLDER) as fd, os.scandir(fd) as entries:
        return next(entries, None) is None
