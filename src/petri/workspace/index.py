"""A workspace as a tree: what each file was when it was last looked at, so that only changes are read.

Like git's index: a file whose size, times, inode and mode are as they were has the content it had. `ctime`
cannot be set back by any program, so a change cannot hide. A file that changed within the clock's last ticks
could change again unseen; it is read again at the next look.

A look (`looking`) goes through the whole workspace, or only through the folders that somebody who watched
says have changed (`watching`). Either way the result is the same: the address of the tree, and what is
different since the look before.
"""

import marshal
import sys
from collections.abc import Callable, Collection, Iterator

from petri.trees import Entry, File, Folder, Link, address, encode
from petri.workspace.looking import SOME_FOLDER, Look, Looking, Reading, Seen, Sight, join
from petri.workspace.versions import is_young

_ENTRY_BYTES = 400
"""What a file or a folder takes of memory here, more or less."""


class Index:
    """What is known of one workspace. Not for two threads at once."""

    def __init__(self) -> None:
        self._seen: dict[bytes, Seen] = {}

    @property
    def weight(self) -> int:
        """How much is known: files and folders, and one more for each 400 bytes of a folder's path."""
        return sum(len(seen.files) + 1 + len(path) // _ENTRY_BYTES for path, seen in self._seen.items())

    @property
    def size(self) -> int:
        """What writing all files would take, holes and those with several names in full."""
        return sum(sight.size for seen in self._seen.values() for sight in seen.files.values())

    def look(self, top: int, dirty: Collection[bytes] | None, reading: Reading) -> Look:
        """Look at the workspace open as `top`.

        `dirty`: the only folders in which something may have changed; None: anywhere.
        """
        looking = Looking(self._seen, top, reading)
        try:
            if dirty is None or not self._seen:
                looking.visit_all()
            else:
                looking.visit(dirty)
                if looking.met_linked:  # of its other names nobody has told us yet
                    looking.visit_all()
        except BaseException:
            looking.undo()
            raise
        return Look(self._address(b""), tuple(looking.changes), tuple(looking.skipped))

    @classmethod
    def of(cls, made: dict[bytes, Seen], now_ns: int) -> "Index":
        """Return what is known of a workspace that was made, out of everybody's reach, until `now_ns`.

        What was made well before then, and is touched from then on, has another time by that.
        """
        index = cls()
        for path, seen in made.items():
            for name, sight in seen.files.items():
                steady = not is_young(max(sight.mtime_ns, sight.ctime_ns), now_ns)
                seen.files[name] = sight._replace(steady=steady)
            index._seen[path] = seen
        return index

    def steady_files(self) -> dict[bytes, tuple[bytes, Sight]]:
        """Return a path for each content that a look, now, would not read again, by its digest."""
        return {
            sight.entry.digest: (join(path, name), sight)
            for path, seen in self._seen.items()
            for name, sight in seen.files.items()
            if sight.steady and isinstance(sight.entry, File)
        }

    @property
    def tree(self) -> bytes:
        """The address of the tree, as of the last look."""
        return self._address(b"")

    def found(self, tree: bytes) -> bool:
        """Say whether the last look found `tree`; not, if there was none yet."""
        top = self._seen.get(b"")
        return top is not None and top.address == tree

    def folders(self) -> Iterator[bytes]:
        """Yield every folder's path, the workspace's own being empty."""
        yield from self._seen

    def unknown(self, is_known: Callable[[bytes], bool]) -> Iterator[tuple[bytes, dict[bytes, Entry]]]:
        """Yield the folders of the tree, by path, with what is in them, but none at or below a known one."""
        waiting = [b""]
        while waiting:
            path = waiting.pop()
            seen = self._seen[path]
            assert seen.address is not None
            if not is_known(seen.address):
                yield path, self._entries(path, seen)
                waiting += [join(path, name) for name in seen.folders]

    def addresses(self) -> dict[bytes, bytes]:
        """Return a path of each folder object of the tree, by its address."""
        return {seen.address: path for path, seen in self._seen.items() if seen.address is not None}

    def folder_object(self, path: bytes) -> dict[bytes, Entry]:
        """Return what was in a folder at the last look."""
        return self._entries(path, self._seen[path])

    def sight(self, path: bytes) -> Sight | None:
        """Return what the kernel said of the file or link at `path` at the last look."""
        folder, _, name = path.rpartition(b"/")
        seen = self._seen.get(folder)
        return seen.files.get(name) if seen is not None else None

    def entry(self, path: bytes) -> Entry | None:
        """Return what was at `path` at the last look; of a folder only that it is one."""
        if path in self._seen:
            return SOME_FOLDER
        folder, _, name = path.rpartition(b"/")
        seen = self._seen.get(folder)
        return seen.entry(name) if seen is not None else None

    def frozen(self) -> bytes:
        """Return everything known, to be kept in a file of the server's own."""
        return marshal.dumps((_FORMAT, [_row(path, seen) for path, seen in self._seen.items()]))

    @classmethod
    def thawed(cls, kept: bytes) -> "Index":
        """Return what `frozen` made bytes of; `ValueError` if these are no such bytes."""
        index = cls()
        try:
            version, rows = marshal.loads(kept)
            if version != _FORMAT:
                raise ValueError(f"an index of format {version}")
            for path, files, folders, has_linked in rows:
                seen = index._seen[path] = Seen(folders=set(folders), has_linked=has_linked)
                for name, sight, entry in files:
                    seen.files[name] = Sight(*(*sight, _ENTRIES[entry[0]](*entry[1:]), True))
        except (EOFError, TypeError, KeyError) as error:
            raise ValueError("not an index") from error
        return index

    def _address(self, top: bytes) -> bytes:
        """Compute the addresses that are missing at and below `top`, deepest first; return that of `top`."""
        order, waiting = [], [top]
        while waiting:
            path = waiting.pop()
            if self._seen[path].address is None:
                order.append(path)
                waiting += [join(path, name) for name in self._seen[path].folders]
        for path in reversed(order):
            seen = self._seen[path]
            seen.address = address(encode(self._entries(path, seen)))
        found = self._seen[top].address
        assert found is not None
        return found

    def _entries(self, path: bytes, seen: Seen) -> dict[bytes, Entry]:
        entries: dict[bytes, Entry] = {name: sight.entry for name, sight in seen.files.items()}
        for name in seen.folders:
            inner = self._seen[join(path, name)].address
            assert inner is not None
            entries[name] = Folder(inner)
        return entries


_FORMAT = f"petri-index-1 {sys.version_info[:2]}"
"""Named after the interpreter too: what marshal writes is its own business."""
_ENTRIES: dict[str, Callable[..., Entry]] = {"f": File, "l": Link}


def _row(path: bytes, seen: Seen) -> tuple[object, ...]:
    """Return a folder as plain values. What is not steady is left out: it must be read again anyhow."""
    files = [
        (name, sight[:5], ("f" if isinstance(sight.entry, File) else "l", *sight.entry))
        for name, sight in seen.files.items()
        if sight.steady
    ]
    return path, files, list(seen.folders), seen.has_linked
