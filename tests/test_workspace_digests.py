"""The versions of files: when a digest is remembered, and when a stamp does instead."""

import os
import time
from pathlib import Path

import pytest
from blake3 import blake3

from petri.errors import TooLarge, Unavailable
from petri.workspace import (
    Version,
    Workspaces,
    digests,
    reading,
)
from tests.test_workspace_reading import SANDBOX, errand, folder, resolver, workspaces

__all__ = ["folder", "resolver", "workspaces"]


def test_a_digest_is_remembered_until_the_file_changes(workspaces: Workspaces, folder: Path) -> None:
    file = folder / "a"
    file.write_text("old")
    settle(file)
    assert read_digest(workspaces) == blake3(b"old").hexdigest()

    before = file.stat()
    file.write_text("new")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert read_digest(workspaces) == blake3(b"new").hexdigest()


def test_a_digest_is_computed_once_for_a_file_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    file.write_text("x")
    settle(file)
    cache = digests.Digests()
    with file.open("rb") as opened:
        first = cache.of(opened.fileno(), errand())
        monkeypatch.setattr(digests, "MAX_BYTES", -1)  # whoever hashes now is refused

        assert cache.of(opened.fileno(), errand()) == first


def test_a_file_that_has_just_changed_is_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    file.write_text("x")
    cache = digests.Digests()
    with file.open("rb") as opened:
        cache.of(opened.fileno(), errand())
        monkeypatch.setattr(digests, "MAX_BYTES", -1)

        with pytest.raises(TooLarge):
            cache.of(opened.fileno(), errand())


def test_a_sparse_file_of_terabytes_is_opened_and_not_hashed(workspaces: Workspaces, folder: Path) -> None:
    (folder / "huge").touch()
    os.truncate(folder / "huge", 1 << 40)

    with workspaces.open(SANDBOX, "huge") as file:
        assert not file.wants_hashing("*", '"stamp"', None)
        assert file.wants_hashing(f'"{"a" * 64}"')
        assert (file.version.digest, file.size) == (None, 1 << 40)
        with pytest.raises(TooLarge, match="by the ETag"):
            file.hash(workspaces.errand())


def test_a_large_file_goes_by_a_stamp_that_changes_with_it(workspaces: Workspaces, folder: Path) -> None:
    file = folder / "large"
    file.touch()
    os.truncate(file, (1 << 30) + 1)
    just_changed = version_of(workspaces, "large")
    settle(file)
    at_rest = version_of(workspaces, "large")
    before = file.stat()
    with file.open("r+b") as opened:
        opened.write(b"x")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    settle(file)
    changed = version_of(workspaces, "large")

    assert just_changed.etag == f'W/"{just_changed.stamp}"'
    assert at_rest.etag == f'"{at_rest.stamp}"'
    assert at_rest.is_named(f'"other", {at_rest.etag}', surely=True)
    assert not at_rest.is_named(f"W/{at_rest.etag}", surely=True), "a weak name binds nobody"
    assert not just_changed.is_named(f'"{just_changed.stamp}"', surely=True)
    assert just_changed.is_named(just_changed.etag, surely=False)
    assert changed.stamp != at_rest.stamp


def test_a_digest_once_known_names_a_large_file_too_and_so_does_its_stamp(
    workspaces: Workspaces, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "UNASKED_BYTES", 1)
    monkeypatch.setattr(reading, "AT_ONCE_BYTES", 1)
    (folder / "a").write_text("large")
    settle(folder / "a")
    stamped = version_of(workspaces, "a")
    with workspaces.open(SANDBOX, "a") as file:
        file.hash(workspaces.errand())

    known = version_of(workspaces, "a")

    assert (stamped.digest, known.etag) == (None, f'"{blake3(b"large").hexdigest()}"')
    assert known.is_named(stamped.etag, surely=True)


def test_hashing_is_given_up_when_nobody_waits_for_it(workspaces: Workspaces, folder: Path) -> None:
    (folder / "large").touch()
    os.truncate(folder / "large", 1 << 30)
    errand = workspaces.errand()
    errand.call_off()

    with workspaces.open(SANDBOX, "large") as file, pytest.raises(Unavailable):
        file.hash(errand)


def test_a_time_far_in_the_future_does_not_keep_a_file_from_being_remembered(
    workspaces: Workspaces, folder: Path
) -> None:
    (folder / "a").touch()
    os.utime(folder / "a", (2**33, 2**33))
    settle(folder / "a")

    assert not version_of(workspaces, "a").is_weak


def version_of(workspaces: Workspaces, path: str) -> Version:
    with workspaces.open(SANDBOX, path) as file:
        return file.version


def read_digest(workspaces: Workspaces) -> str | None:
    with workspaces.open(SANDBOX, "a") as file:
        return file.version.digest


def settle(file: Path) -> None:
    """Wait until the file's last change is old enough to be told from the next."""
    while time.time_ns() - file.stat().st_ctime_ns < 60_000_000:
        time.sleep(0.01)
