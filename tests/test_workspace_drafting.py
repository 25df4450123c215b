"""Large files made ahead of time: taken if what they were made of is still there, and gone otherwise."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from petri.store import Writing
from petri.trees import File, address, encode
from petri.workspace import Draft, Wanted
from petri.workspace.versions import RACY_NS
from tests.test_workspace_becoming import SB, TENANT, Ground, Kept
from tests.test_workspace_becoming import ground as ground

OLD = random.Random(1).randbytes(5 << 20)
NEW = OLD[: 1 << 20] + b"something new" + OLD[1 << 20 :]
PARTS: list[bytes | tuple[int, int]] = [(0, 1 << 20), b"something new", (1 << 20, len(OLD))]


@pytest.fixture
def old(ground: Ground) -> bytes:
    """A large file that has long been there, and is kept, with what it is to become; the tree."""
    (ground.top / "large").write_bytes(OLD)
    time.sleep(RACY_NS / 1e9 + 0.01)
    return ground.keep()


def put(ground: Ground, *puts: Callable[[Writing], bytes]) -> bytes:
    with ground.store.write(TENANT) as writing:
        found = [each(writing) for each in puts][-1]
        writing.commit()
    return found


def new_tree(ground: Ground) -> bytes:
    folder = encode({b"large": File(address(NEW), len(NEW), 6)})
    return put(ground, lambda w: w.put_blob(NEW), lambda w: w.put_folder(folder))


def drafted(ground: Ground, wanted: Wanted) -> Draft | None:
    return ground.workspaces.draft(SB, None, Kept(ground.store), wanted, ground.workspaces.errand())


def wanted(parts: list[bytes | tuple[int, int]] = PARTS, old: bytes = OLD) -> Wanted:
    return Wanted(b"large", address(old), File(address(NEW), len(NEW), 6), parts)


def stepped(ground: Ground, old: bytes, *drafts: Draft) -> bool:
    trees = (old, new_tree(ground))
    return ground.workspaces.step(SB, trees, None, Kept(ground.store), restless=False, drafts=drafts)


def stages(ground: Ground) -> list[Path]:
    return list((ground.top.parent / ".staging").iterdir())


def test_a_draft_becomes_the_file_itself(ground: Ground, old: bytes) -> None:
    draft = drafted(ground, wanted())
    assert draft is not None
    inode = next(draft.stage.iterdir()).stat().st_ino

    assert stepped(ground, old, draft)

    assert (ground.top / "large").read_bytes() == NEW
    assert (ground.top / "large").stat().st_ino == inode
    assert (ground.top / "large").stat().st_mode & 0o777 == 0o644
    draft.discard()
    assert stages(ground) == []


def test_what_was_made_of_something_else_is_not_taken(ground: Ground, old: bytes) -> None:
    draft = drafted(ground, wanted())
    assert draft is not None
    (ground.top / "large").write_bytes(OLD)  # the same once more, but who knows
    inode = next(draft.stage.iterdir()).stat().st_ino

    assert stepped(ground, old, draft)

    assert (ground.top / "large").read_bytes() == NEW
    assert (ground.top / "large").stat().st_ino != inode


def test_a_draft_for_another_file_is_not_taken(ground: Ground, old: bytes) -> None:
    draft = drafted(ground, wanted()._replace(new=File(address(b"another"), len(NEW), 6)))
    assert draft is not None

    assert stepped(ground, old, draft)

    assert (ground.top / "large").read_bytes() == NEW
    assert next(draft.stage.iterdir()).name == "draft"


def test_a_draft_that_is_gone_is_done_without(ground: Ground, old: bytes) -> None:
    draft = drafted(ground, wanted())
    assert draft is not None
    draft.discard()

    assert stepped(ground, old, draft)

    assert (ground.top / "large").read_bytes() == NEW


def _link(top: Path) -> None:
    (top / "large").rename(top / "elsewhere")
    (top / "large").symlink_to("elsewhere")


@pytest.mark.parametrize(
    "happens",
    [
        lambda top: (top / "large").unlink(),
        lambda top: (top / "large").write_bytes(OLD),
        lambda top: os.utime(top / "large", ns=(1, 1)),
        _link,
    ],
    ids=["gone", "written", "touched", "a link"],
)
def test_of_what_is_not_as_it_was_no_draft_is_made(
    ground: Ground, old: bytes, happens: Callable[[Path], object]
) -> None:
    happens(ground.top)

    assert drafted(ground, wanted()) is None
    assert stages(ground) == []


@pytest.mark.parametrize(
    "parts",
    [PARTS[:1], [*PARTS, b"more"], [(0, len(OLD) + 1), b"x"]],
    ids=["too little", "too much", "beyond the end"],
)
def test_a_draft_that_does_not_work_out_is_none(
    ground: Ground, old: bytes, parts: list[bytes | tuple[int, int]]
) -> None:
    assert drafted(ground, wanted(parts)) is None
    assert stages(ground) == []
    assert (ground.top / "large").read_bytes() == OLD


def test_of_another_content_no_draft_is_made(ground: Ground, old: bytes) -> None:
    assert drafted(ground, wanted(old=b"another")) is None
    assert drafted(ground, wanted()._replace(path=b"nowhere")) is None


def test_on_a_full_disk_no_draft_is_made(ground: Ground, old: bytes) -> None:
    ground.workspaces.reserve_bytes = 1 << 60

    assert drafted(ground, wanted()) is None
    assert stages(ground) == []


def test_a_draft_nobody_waits_for_is_given_up(ground: Ground, old: bytes) -> None:
    errand = ground.workspaces.errand()
    errand.call_off()

    assert ground.workspaces.draft(SB, None, Kept(ground.store), wanted(), errand) is None
    assert stages(ground) == []
