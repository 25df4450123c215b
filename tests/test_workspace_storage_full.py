"""A full disk: said in a sentence, nothing half-written stays, and deleting still works."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from petri.errors import StorageFull
from petri.workspace import Bounds, Workspaces

SANDBOX = "sb-one"
DISKS = {
    "tmpfs": ["-t", "tmpfs", "-o", "size=1m,nr_inodes=200", "tmpfs"],
    "ext4": ["-o", "loop", "image"],
}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@pytest.fixture(params=DISKS)
def workspaces(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspaces]:
    """Workspaces on a disk of about a megabyte."""
    if request.param == "ext4":
        make_image(tmp_path / "image")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", *DISKS[request.param], str(disk)], cwd=tmp_path, capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this host does not let us mount: {mounted.stderr.decode().strip()}")
    try:
        made = Workspaces(disk / "root", Bounds(max_upload_bytes=1 << 30, max_files=10_000))
        made.create(SANDBOX, None)
        yield made
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def make_image(image: Path) -> None:
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4 on this host")
    with image.open("wb") as file:
        file.truncate(2 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-N", "2000", str(image)], check=True, capture_output=True)


def tree(workspaces: Workspaces) -> set[str]:
    root = workspaces.folder(SANDBOX).parent
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def fill(workspaces: Workspaces) -> None:
    """Leave not one free block, in a way the sandbox's code could."""
    with (workspaces.folder(SANDBOX) / "ballast").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            while True:
                try:
                    file.write(b"x" * size)
                except OSError:
                    break


def test_an_upload_that_does_not_fit_leaves_nothing(workspaces: Workspaces) -> None:
    before = tree(workspaces)

    with pytest.raises(StorageFull), workspaces.receive(SANDBOX, None) as intake:
        staged = intake.file("d/big")
        for _ in range(100):
            staged.write(os.urandom(1 << 16))
        intake.commit()

    assert tree(workspaces) == before
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("d/small").write(b"fits")
        assert len(intake.commit()) == 1


def test_on_a_full_disk_uploads_are_refused_and_deleting_makes_room(workspaces: Workspaces) -> None:
    folder = workspaces.folder(SANDBOX)
    for number in range(20):
        (folder / f"sub{number}/deep").mkdir(parents=True)
    fill(workspaces)
    before = tree(workspaces)

    with pytest.raises(StorageFull), workspaces.receive(SANDBOX, None) as intake:
        for number in range(50):
            intake.file(f"new/{number}").write(bytes(4096))
        intake.commit()

    assert tree(workspaces) == before
    for number in range(20):
        workspaces.delete(SANDBOX, f"sub{number}", if_match=None)
    workspaces.delete(SANDBOX, "ballast", if_match=None)
    assert tree(workspaces) == {".indexes", ".staging", ".trash", SANDBOX}
    with workspaces.receive(SANDBOX, None) as intake:
        intake.file("fits").write(bytes(4096))
        intake.commit()


def test_a_disk_that_fills_up_at_any_step_of_a_commit_leaves_all_or_nothing(workspaces: Workspaces) -> None:
    """Fewer and fewer free blocks: the last that do not suffice fail in the renames themselves."""
    folder = workspaces.folder(SANDBOX)
    (folder / "old000").write_text("old")
    fill(workspaces)
    ballast = folder / "ballast"
    outcomes = []
    while ballast.stat().st_size > 1 << 16:
        os.truncate(ballast, ballast.stat().st_size - (1 << 14))
        before = tree(workspaces)
        try:
            with workspaces.receive(SANDBOX, None) as intake:
                # Long names, so that the folder itself has to grow while they are renamed into it.
                for number in range(60):
                    intake.file(f"old{number:03}" if number == 0 else f"{number:0>200}").write(b"new")
                intake.commit()
            outcomes.append("all")
            break
        except StorageFull:
            outcomes.append("nothing")
            assert tree(workspaces) == before
            assert (folder / "old000").read_text() == "old"

    assert set(outcomes) == {"all", "nothing"}
    assert (folder / "old000").read_text() == "new"
    assert len(list(folder.iterdir())) == 61


def test_a_whole_workspace_is_removed_from_a_full_disk(workspaces: Workspaces) -> None:
    for number in range(30):
        (workspaces.folder(SANDBOX) / f"{number}/a/b").mkdir(parents=True)
    fill(workspaces)

    workspaces.remove(SANDBOX)

    assert tree(workspaces) == {".indexes", ".staging", ".trash"}
