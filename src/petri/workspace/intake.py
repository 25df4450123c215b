"""Taking files in: they grow where no cell can see them, and appear at once when they are whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from blake3 import blake3

from petri.errors import Invalid, TooLarge
from petri.workspace.beneath import FOLDER, beneath
from petri.workspace.commit import Site, carry_out, hand_over, harden
from petri.workspace.ground import Ground
from petri.workspace.members import Member
from petri.workspace.paths import clean, clean_member, clean_target, quoted
from petri.workspace.plan import Bounds, Move, Plan, weigh
from petri.workspace.preconditions import Conditions, current_version
from petri.workspace.refusals import refusing
from petri.workspace.room import Room, standing
from petri.workspace.unpacking import members, refusing_broken
from petri.workspace.weight import Weight

_PERMISSIONS = 0o777
"""Not setuid, setgid or sticky."""
_READABLE = 0o400
"""A file we could not read again we could neither fsync nor serve."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is now in the workspace, durably."""

    path: str
    size: int
    digest: str


class StagedFile:
    """A file on its way in, hashed and counted as it is written."""

    def __init__(self, fd: int, name: str, path: str, plan: Plan) -> None:
        self.path = path
        self.name = name
        self.size = 0
        self._fd = fd
        self._inode = os.fstat(fd).st_ino
        self._plan = plan
        self._hasher = blake3()

    @property
    def is_open(self) -> bool:
        """Whether it can still be written to."""
        return self._fd >= 0

    @property
    def digest(self) -> str:
        """BLAKE3 of what was written so far, in hex."""
        return self._hasher.hexdigest()

    def write(self, data: bytes) -> None:
        """Append `data`."""
        with self._plan.careful(), refusing(self.path):
            self._plan.count(len(data))
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
            self._hasher.update(data)
            self.size += len(data)

    def close(self) -> Move:
        """Have the file committed as it is now. Closing twice is fine."""
        move = Move(self.path, self.name, self._inode, "file", self.size, self.digest)
        if self._fd >= 0:
            self.abandon()
            self._plan.add(move)
        return move

    def abandon(self) -> None:
        """Let go of the file without having it committed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Intake:
    """One upload. Leaving it without `commit` leaves nothing behind. For one thread at a time."""

    def __init__(
        self, ground: Ground, bounds: Bounds, sandbox_id: str, owner: int | None, room: Room
    ) -> None:
        self._ground = ground
        self._bounds = bounds
        self._sandbox_id = sandbox_id
        self._owner = owner
        self._room = room
        self._plan = Plan(bounds, room.allow)
        self._errand = ground.errand()
        self._open: list[StagedFile] = []
        self._names = 0
        self._stage: Path
        self._staging = -1

    def __enter__(self) -> Self:
        with refusing(""), self._ground.workspace(self._sandbox_id):
            self._room.allow(0)
            self._stage = self._ground.new_stage()
            self._room.own(self._stage)
            self._staging = os.open(self._stage, FOLDER | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for staged in self._open:
            staged.abandon()
        os.close(self._staging)
        # An upload that is in place has succeeded, whatever becomes of its scraps: `tidy` sees them too.
        with suppress(OSError):
            self._ground.discard(self._stage)

    @property
    def size(self) -> int:
        """The bytes that are staged."""
        return self._plan.size

    def call_off(self) -> None:
        """Have whatever takes long in here given up: nobody waits for it any more. From any thread."""
        self._errand.call_off()

    def file(self, path: str, *, mode: int = 0o644) -> StagedFile:
        """Begin a file that will be at `path`; write to it and close it before the commit."""
        path = clean(path, new=True)
        self._open = [staged for staged in self._open if staged.is_open]
        with self._staged(path) as name:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            fd = os.open(name, flags, 0o600, dir_fd=self._staging)
            staged = StagedFile(fd, name, path, self._plan)
            self._open.append(staged)
            os.fchmod(fd, mode & _PERMISSIONS | _READABLE)
            hand_over(self._staging, name, self._owner)
        return staged

    def folder(self, path: str) -> None:
        """Have a folder at `path`, empty unless something else is put into it."""
        path = clean(path, new=True)
        with self._staged(path) as name:
            os.mkdir(name, dir_fd=self._staging)
            os.chmod(name, 0o755, dir_fd=self._staging)
            self._add(path, name, "folder")

    def link(self, path: str, target: str) -> None:
        """Have a symbolic link at `path`; `target` is relative and stays in the workspace."""
        path = clean(path, new=True)
        target = clean_target(path, target)
        with self._staged(path) as name:
            os.symlink(target, name, dir_fd=self._staging)
            self._add(path, name, "link")

    def extract(self, staged: StagedFile, name: str, into: str = "") -> None:
        """Take in the members of a staged archive in its place; one bad member and none is taken.

        `name` is what the caller calls the archive, `into` the folder its members go to.
        """
        into = clean(into, new=True, empty=True)
        staged.abandon()
        self._plan.drop(staged.path, staged.name, staged.size)
        with self._plan.careful(), refusing(name), beneath(self._staging, staged.name, os.O_RDONLY) as fd:
            unpacked: dict[str, Move] = {}
            with refusing_broken(name):
                for member, content in members(fd, name, self._bounds, self._errand):
                    with _naming(member):
                        self._take_in(member, content, into, unpacked)
            os.unlink(staged.name, dir_fd=self._staging)

    def weight(self) -> Weight:
        """Return what this upload brings at most."""
        return weigh(self._plan.staged())

    def replaces(self) -> Weight:
        """Return what is in the workspace now where this upload goes, and what it brings therefore not."""
        with self._ground.workspace(self._sandbox_id) as workspace:
            return standing(workspace, self._plan.staged())

    def commit(self, *, if_match: str | None = None, if_none_match: str | None = None) -> list[Written]:
        """Put everything in place, durably, and return the files; or raise, and nothing has changed.

        The conditions are about one file: the version it must be, or must not be, or `*`.
        """
        for staged in self._open:
            staged.close()
        self._open.clear()
        moves = self._plan.moves()
        conditions = Conditions(if_match, if_none_match)
        if conditions and [move.kind for move in moves] != ["file"]:
            raise Invalid("If-Match and If-None-Match are for one file; this upload is none, or many")
        with refusing(""):
            harden(self._staging, moves)
        ground = self._ground
        with ground.changing(self._sandbox_id), ground.workspace(self._sandbox_id) as workspace:
            if conditions:
                path = moves[0].path
                current = current_version(workspace, path, ground.digests, conditions, self._errand)
                conditions.require(path, current)
            with refusing(""):
                carry_out(Site(workspace, self._staging, self._owner), self._sandbox_id, moves)
        return [Written(move.path, move.size, move.digest) for move in moves if move.kind == "file"]

    @contextmanager
    def _staged(self, path: str) -> Iterator[str]:
        """Count one more entry, and give it a name to be staged by."""
        with self._plan.careful(), refusing(path):
            self._plan.announce(path)
            self._names += 1
            yield str(self._names)

    def _add(self, path: str, name: str, kind: Literal["folder", "link"]) -> None:
        hand_over(self._staging, name, self._owner)
        inode = os.stat(name, dir_fd=self._staging, follow_symlinks=False).st_ino
        self._plan.add(Move(path, name, inode, kind))

    def _take_in(
        self, member: Member, content: Iterator[bytes], into: str, unpacked: dict[str, Move]
    ) -> None:
        path = clean_member(into, member.name)
        if member.kind == "folder":
            if path != into:
                self.folder(path)
        elif path == into:
            raise Invalid(f"the archive's member {quoted(member.name)} has no name of its own")
        elif member.kind == "link":
            self.link(path, member.target)
        elif member.kind == "hardlink":
            source = unpacked.get(clean_member(into, member.target))
            unpacked[path] = self._link_hard(member, path, source)
        else:
            staged = self.file(path, mode=member.mode)
            for chunk in content:
                staged.write(chunk)
            unpacked[path] = staged.close()

    def _link_hard(self, member: Member, path: str, source: Move | None) -> Move:
        if source is None:
            raise Invalid(
                f"the archive's member {quoted(member.name)} is a hard link to {quoted(member.target)}, "
                "which is no file before it in the archive"
            )
        with self._staged(path) as name:
            os.link(source.staged, name, src_dir_fd=self._staging, dst_dir_fd=self._staging)
        move = replace(source, path=path, staged=name)
        self._plan.add(move)
        return move


@contextmanager
def _naming(member: Member) -> Iterator[None]:
    """Say at which member of an archive there was too much of something."""
    try:
        yield
    except TooLarge as error:
        raise TooLarge(f"at the archive's member {quoted(member.name)}: {error.message}") from error
