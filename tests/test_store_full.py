"""A full disk: said in a sentence, the store is as it was, and works again when there is room."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from petri.errors import StorageFull
from petri.store import Store
from tests.test_store import MIB, Clock, noise, put, read

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this host does not let us mount: {mounted.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.long
@needs_root
def test_what_does_not_fit_is_refused_and_the_store_is_as_it_was(disk: Path) -> None:
    store = Store(disk / "store")
    [before] = put(store, noise(MIB))
    usage = store.usage("acme")

    for _ in range(3):
        with pytest.raises(StorageFull):
            put(store, *(noise(MIB, number) for number in range(1, 6)))
        assert store.usage("acme") == usage

    assert read(store, before) == noise(MIB)
    put(store, noise(MIB, 1), noise(MIB, 2))  # what failed has left the room for it
    assert store.fsck("acme", deep=True) == []
    store.close()


@needs_root
def test_a_sweep_makes_room_on_a_full_disk(disk: Path) -> None:
    clock = Clock()
    store = Store(disk / "store", clock=clock, pack_bytes=MIB)
    first = put(store, noise(MIB))
    put(store, noise(MIB, 1))
    ballast = disk / "ballast"
    fill(ballast)
    clock.now += 1000
    store.has("acme", first)

    with pytest.raises(StorageFull):
        store.gc("acme", [], 60)  # not a byte for the manifest
    os.truncate(ballast, ballast.stat().st_size - 16_384)
    swept = store.gc("acme", [], 60)

    assert swept.freed_bytes > MIB
    assert read(store, first[0]) == noise(MIB)
    put(store, noise(MIB, 1))
    assert store.fsck("acme", deep=True) == []
    store.close()


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            while True:
                try:
                    file.write(b"x" * size)
                except OSError:
                    break


@pytest.mark.long
def test_a_write_that_stops_halfway_is_undone(tmp_path: Path) -> None:
    """For an ordinary user too: no file may grow beyond a limit, which ends a write in the middle."""
    argv = [sys.executable, "-m", "tests.test_store_full", str(tmp_path / "store")]
    done = subprocess.run(argv, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    store = Store(tmp_path / "store")
    assert [read(store, digest) for digest in store.has("acme", map(bytes.fromhex, done.stdout.split()))] == [
        noise(300_000)
    ]
    assert store.fsck("acme", deep=True) == []
    store.close()


def _write_to_the_limit(root: Path) -> None:
    """Put a file, then one that meets the limit, then one that fits; say what was committed."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
    store = Store(root)
    [digest] = put(store, noise(300_000))
    print(digest.hex())
    size = pack_size(root)
    for _ in range(2):
        with pytest.raises(StorageFull):
            put(store, noise(300_000, 1))
        assert pack_size(root) == size
    put(store, b"small")
    assert pack_size(root) > size
    assert read(store, digest) == noise(300_000)


def pack_size(root: Path) -> int:
    [pack] = root.glob("*/*.pack")
    return pack.stat().st_size


if __name__ == "__main__":
    _write_to_the_limit(Path(sys.argv[1]))
