"""Project quotas, where the kernel has them: it holds a workspace to its share, and the program is told.

Runs on images of ext4, with the `project` and `quota` features, and of XFS, mounted with `prjquota`. Skips
where this cannot be had: the host's kernel may have been built without quotas.
"""

import errno
import os
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from petri.workspace import find_holding
from petri.workspace.quota import project_of
from tests.calls import create, eventually, files_url, put, refused, run, sh
from tests.conftest import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount, and set quotas"),
]
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"],
    "xfs": ["mkfs.xfs", "-q"],
}
SHARE_BYTES, SHARE_FILES = 16 << 20, 300
LIMITS = {"disk_bytes": SHARE_BYTES, "inodes": SHARE_FILES}
FILL = textwrap.dedent("""
    import os
    written = 0
    try:
        while True:
            with open(f"f{written}", "wb", buffering=0) as file:
                written += file.write(bytes(1 << 20))
    except OSError as error:
        print(error.errno, written)
""")
MAKE_FILES = textwrap.dedent("""
    made = 0
    try:
        while True:
            open(f"f{made}", "w").close()
            made += 1
    except OSError as error:
        print(error.errno, made)
""")


@pytest.fixture(params=MAKE)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system with project quotas switched on."""
    make = MAKE[request.param]
    if shutil.which(make[0]) is None:
        pytest.skip(f"there is no {make[0]} on this host")
    image, where = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(512 << 20)
    subprocess.run([*make, str(image)], check=True, capture_output=True)
    where.mkdir()
    mounting = ["mount", "-o", "loop,prjquota", str(image), str(where)]
    mounted = subprocess.run(mounting, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"{request.param} with quotas cannot be mounted: {mounted.stderr.decode().strip()}")
    try:
        if find_holding(where).quota is None:
            pytest.skip(f"no quotas on {request.param} here: {find_holding(where).says}")
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


@pytest.fixture
def server(disk: Path, new_server: Callable[..., Server]) -> Server:
    return new_server(PETRI_WORKSPACE_ROOT=str(disk / "workspaces"), PETRI_DISK_RESERVE_BYTES="0")


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def told_by(http: httpx.Client, sandbox: str, source: str) -> tuple[dict[str, Any], int, int]:
    told = run(http, sandbox, code=source, language="python")
    assert told["exit_code"] == 0, told
    number, count = told["stdout"].split()
    return told, int(number), int(count)


def test_health_says_that_the_file_system_holds_the_limits(http: httpx.Client) -> None:
    layers = {layer["name"]: layer for layer in http.get("/health").json()["layers"]}

    assert layers["disk"]["on"]
    assert "file system" in layers["disk"]["says"]
    assert layers["disk"]["remedy"] is None


def test_a_program_is_told_that_its_disk_is_full_and_so_is_its_caller(http: httpx.Client) -> None:
    told, number, written = told_by(http, create(http, limits=LIMITS), FILL)

    assert number in (errno.ENOSPC, errno.EDQUOT)
    assert 12 << 20 <= written <= SHARE_BYTES
    assert (told["exit_code"], told["disk_full"]) == (0, True)
    assert str(SHARE_BYTES) in told["remark"]


def test_so_are_those_who_make_too_many_files(http: httpx.Client) -> None:
    told, number, made = told_by(http, create(http, limits=LIMITS), MAKE_FILES)

    assert number in (errno.ENOSPC, errno.EDQUOT)
    assert SHARE_FILES - 5 <= made <= SHARE_FILES
    assert (told["exit_code"], told["disk_full"]) == (0, True)


def test_a_run_within_its_share_is_told_nothing(http: httpx.Client) -> None:
    told = run(http, create(http, limits=LIMITS), command="head -c 8m /dev/zero > a")

    assert (told["exit_code"], told["disk_full"], told["remark"]) == (0, False, None)


def test_a_run_s_own_limit_is_held_by_watching(http: httpx.Client) -> None:
    script = "head -c 3m /dev/zero > a; sleep 0.2; head -c 3m /dev/zero > b; sleep 20"
    told = run(http, create(http, limits=LIMITS), command=script, limits={"disk_bytes": 4 << 20})

    assert (told["signal"], told["disk_full"]) == (9, True)


def test_one_sandbox_s_share_is_not_another_s(http: httpx.Client) -> None:
    told_by(http, create(http, limits=LIMITS), FILL)

    assert sh(http, create(http, limits=LIMITS), "head -c 8m /dev/zero > a; echo fine") == "fine\n"


def test_uploads_get_in_by_rename_and_only_if_they_fit(http: httpx.Client) -> None:
    sandbox = create(http, limits=LIMITS)
    many = [("file", (f"pkg/sub/{number}", b"x")) for number in range(20)]
    assert http.post(f"/v1/sandboxes/{sandbox}/files", files=many).status_code == 201
    put(http, sandbox, "big", bytes(10 << 20))
    put(http, sandbox, "big", bytes(5 << 20))  # for a moment both are there, and count
    # XFS lets go of what was replaced a moment later.
    eventually(lambda: http.put(files_url(sandbox, "other"), content=bytes(6 << 20)).status_code == 201)

    problem = refused(http.put(files_url(sandbox, "more"), content=bytes(8 << 20)), 507)

    # XFS refuses while the upload is still coming in, by an error that does not say whose space it was.
    assert problem.get("field") in ("limits.disk_bytes", None)
    assert sh(http, sandbox, "ls") == "big\nother\npkg\n"
    _, number, _ = told_by(http, sandbox, FILL)
    assert number in (errno.ENOSPC, errno.EDQUOT), "what was uploaded counts"
    assert http.delete(files_url(sandbox, "big")).status_code == 204
    assert sh(http, sandbox, "rm -f f*; head -c 8m /dev/zero > again; echo fine") == "fine\n"


def test_a_larger_share_is_held_from_the_next_moment_on(http: httpx.Client) -> None:
    sandbox = create(http, limits=LIMITS)
    told_by(http, sandbox, FILL)
    http.patch(f"/v1/sandboxes/{sandbox}", json={"limits": {"disk_bytes": 64 << 20}})

    _, _, written = told_by(http, sandbox, FILL.replace('f"f{written}"', 'f"g{written}"'))

    assert 40 << 20 < written < 50 << 20


def test_nothing_inside_a_cell_can_leave_its_project(http: httpx.Client) -> None:
    sandbox = create(http, limits=LIMITS)
    source = textwrap.dedent("""
        import fcntl, os, struct
        os.mkdir("d")
        for path in ("d", "."):
            fd = os.open(path, os.O_RDONLY)
            now = struct.unpack("=IIIII8x", fcntl.ioctl(fd, 0x801C581F, bytes(28)))
            for flags, project in ((now[0], 0), (now[0], now[3] + 1), (now[0] & ~0x200, now[3])):
                try:
                    fcntl.ioctl(fd, 0x401C5820, struct.pack("=IIIII8x", flags, *now[1:3], project, now[4]))
                    print("left by", flags, project)
                except OSError:
                    pass
    """)

    assert run(http, sandbox, code=source, language="python")["stdout"] == ""


def test_a_workspace_from_before_there_were_quotas_is_held_to_its_share(
    server: Server, http: httpx.Client, disk: Path
) -> None:
    sandbox = create(http, limits=LIMITS)
    folder = disk / "workspaces" / sandbox
    sh(http, sandbox, "mkdir d; head -c 10m /dev/zero > d/old")
    project = project_of(folder)
    moved = disk / "moved"
    shutil.copytree(folder, moved)
    shutil.rmtree(folder)
    moved.rename(folder)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, project, project)
    assert project_of(folder) == 0
    server.stop()
    server.start()

    with server.client() as again:
        _, number, written = told_by(again, sandbox, FILL)

    assert number in (errno.ENOSPC, errno.EDQUOT)
    assert written <= 6 << 20


def test_a_sandbox_that_is_gone_leaves_no_limit_behind(http: httpx.Client, disk: Path) -> None:
    sandbox = create(http, limits=LIMITS)
    folder = disk / "workspaces" / sandbox
    project = project_of(folder)
    quota = find_holding(disk).quota
    assert quota is not None
    assert quota.used(project).inodes > 0

    http.delete(f"/v1/sandboxes/{sandbox}")

    assert not folder.exists()
    assert quota.used(project).inodes == 0
