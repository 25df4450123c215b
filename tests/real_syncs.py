"""The real server, for tests that were written for the one in memory: the same questions, of the disk."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import httpx
import pytest

from petri.trees import Entry, File, Folder, FolderObject, Link, address, decode, encode
from tests.conftest import Server


class RealSyncs:
    """Sandboxes of a real server, looked at as trees. Faults on demand it has none."""

    def __init__(self, server: Server, **sandbox: object) -> None:
        self.url = server.url
        self._server = server
        self._http = server.client()
        self._sandbox = sandbox
        self.objects: dict[bytes, bytes] = {}
        self.contents: dict[bytes, bytes] = {}
        self.sandboxes = _Trees(self)
        self.made: list[str] = []

    def close(self) -> None:
        """Leave nothing behind."""
        for box in self.made:
            self._http.delete(f"/v1/sandboxes/{box}")
        self.leave()

    def leave(self) -> None:
        """Close the connections alone."""
        self._http.close()

    def create(self, name: str = "") -> str:
        """Make a sandbox and return its id."""
        made = self._http.post("/v1/sandboxes", json={**self._sandbox, **({"name": name} if name else {})})
        assert made.status_code in (200, 201), made.text
        box: str = made.json()["id"]
        self.made.append(box)
        return box

    def delete(self, box: str) -> None:
        """Have it no more, and its name free."""
        assert self._http.delete(f"/v1/sandboxes/{box}").status_code == 204

    def top(self, box: str) -> Path:
        """Return the sandbox's folder, in which everything is that is on record as being there."""
        listed = self._http.get(f"/v1/sandboxes/{box}/files")
        assert listed.status_code == 200, listed.text
        return self._server.home / "petri" / "workspaces" / box

    def write(self, box: str, path: str, content: bytes | None, mode: int = 6) -> None:
        """Have a file there, as a run would; None removes what is there."""
        place = self.top(box) / path
        remove(place)
        if content is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            place.chmod(mode << 6 | 0o044)

    def link(self, box: str, path: str, target: str) -> None:
        """Have a link there."""
        place = self.top(box) / path
        remove(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def make_folder(self, box: str, path: str) -> None:
        """Have an empty folder there."""
        place = self.top(box) / path
        remove(place)
        place.mkdir(parents=True)

    def move(self, box: str, path: str, to: str) -> None:
        """Have what is at one path at another, where nothing is."""
        top = self.top(box)
        (top / to).parent.mkdir(parents=True, exist_ok=True)
        (top / path).rename(top / to)

    def files(self, box: str) -> dict[bytes, bytes]:
        """Return what every file there holds."""
        top = os.fsencode(self.top(box))
        return {path[len(top) + 1 :]: Path(os.fsdecode(path)).read_bytes() for path in _files(top)}

    def fetch(self, wanted: bytes) -> FolderObject:
        """Return a folder object of a tree that was looked at."""
        return decode(self.objects[wanted])

    def tree(self, folder: bytes) -> bytes:
        """Return the tree that a folder is."""
        entries: dict[bytes, Entry] = {}
        for each in os.scandir(folder):
            if each.is_symlink():
                entries[each.name] = Link(os.fsencode(Path(os.fsdecode(each.path)).readlink()))
            elif each.is_dir():
                entries[each.name] = Folder(self.tree(each.path))
            else:
                content = Path(os.fsdecode(each.path)).read_bytes()
                self.contents[address(content)] = content
                entries[each.name] = File(address(content), len(content), each.stat().st_mode >> 6 & 7)
        encoded = encode(entries)
        self.objects[address(encoded)] = encoded
        return address(encoded)

    def exec(self, box: str, command: str) -> httpx.Response:
        """Run a shell command."""
        return self._http.post(f"/v1/sandboxes/{box}/exec", json={"command": command})

    def __getattr__(self, name: str) -> NoReturn:
        if name not in _IN_MEMORY_ONLY:
            raise AttributeError(name)
        pytest.skip(f"only the server in memory has `{name}`")

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FAULTS:
            pytest.skip(f"only the server in memory has `{name}`")
        super().__setattr__(name, value)


_FAULTS = frozenset({"cut_after", "cut_answer_after", "refusals", "meanwhile"})
_IN_MEMORY_ONLY = _FAULTS | {"begun", "forge", "forget", "kinds", "received", "requests", "start", "stop"}


class _Trees:
    """What each sandbox is, by its id."""

    def __init__(self, syncs: RealSyncs) -> None:
        self._syncs = syncs

    def __getitem__(self, box: str) -> bytes:
        return self._syncs.tree(os.fsencode(self._syncs.top(box)))


def remove(place: Path) -> None:
    """Have nothing there."""
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir():
        shutil.rmtree(place)


def _files(folder: bytes) -> Iterator[bytes]:
    for above, _, names in os.walk(folder):
        for name in names:
            if not Path(os.fsdecode(above + b"/" + name)).is_symlink():
                yield above + b"/" + name
