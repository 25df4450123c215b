"""What the doctor says of the disk: who holds the limits, and what would have the kernel do it."""

import os
from pathlib import Path

import pytest

from petri.workspace import Space, find_holding, holding
from petri.workspace.space import default_reserve

GIB = 1 << 30


@pytest.mark.parametrize(
    ("mount", "command"),
    [
        (
            holding._Mount("/srv", "ext4", "/dev/vdb1"),
            "umount /srv && tune2fs -O project,quota -Q prjquota /dev/vdb1 && "
            "mount -o prjquota /dev/vdb1 /srv",
        ),
        (
            holding._Mount("/", "ext4", "/dev/vda"),
            "tune2fs -O project,quota -Q prjquota /dev/vda (unmounted: from a rescue system), "
            "then boot with rootflags=prjquota",
        ),
        (holding._Mount("/srv", "xfs", "/dev/vdb1"), "umount /srv && mount -o prjquota /dev/vdb1 /srv"),
        (holding._Mount("/", "xfs", "/dev/vda"), "boot with rootflags=prjquota"),
    ],
)
def test_the_command_that_gives_quotas_is_exact(mount: holding._Mount, command: str) -> None:
    assert holding._command(mount) == command


def test_a_file_system_that_has_no_quotas_is_named() -> None:
    why, remedy = holding._why_not(holding._Mount("/", "btrfs", "/dev/vda"))

    assert "btrfs" in why
    assert remedy is not None
    assert "PETRI_WORKSPACE_ROOT" in remedy


def test_this_host_is_told_the_truth(tmp_path: Path) -> None:
    found = find_holding(tmp_path)

    if found.quota is None:
        assert "watched" in found.says
        assert found.remedy
    else:
        assert os.geteuid() == 0


def test_the_mount_of_a_folder_is_the_nearest_above_it(tmp_path: Path) -> None:
    assert holding._mount_of(Path("/proc/self/fd")).kind == "proc"
    assert holding._mount_of(tmp_path).point in ("/", *map(str, tmp_path.parents), str(tmp_path))


def test_the_reserve_is_a_gibibyte_or_less_of_a_small_disk() -> None:
    def disk(total: int) -> Space:
        return Space(total, 0, total, 100, 0, 100)

    assert default_reserve(disk(1000 * GIB)) == GIB
    assert default_reserve(disk(10 * GIB)) == GIB // 5


def test_a_disk_is_short_of_space_or_of_files() -> None:
    def disk(free_bytes: int, free_inodes: int) -> Space:
        return Space(100 * GIB, 0, free_bytes, 1000, 0, free_inodes)

    assert not disk(2 * GIB, 10).is_short(GIB)
    assert disk(GIB - 1, 10).is_short(GIB)
    assert disk(2 * GIB, 9).is_short(GIB)
