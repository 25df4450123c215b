"""How far content is followed to who wrote it; what people ask is in `test_api_compare`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from petri.model import Asker
from petri.operations import Host, blaming, snapshots
from petri.operations.blaming import blame
from petri.operations.fork import Wish, fork
from petri.operations.merging import Merging, merge
from tests.hosts import CALLER, new_sandbox, open_host
from tests.test_becoming import put


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with open_host(tmp_path) as opened:
        yield opened


async def test_what_was_written_longer_ago_than_anybody_looks_is_not_blamed_on_a_parent(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await new_sandbox(host)
    await put(host, parent, "out", b"the parent's")
    await put(host, parent, "began", b"the parent's")
    [child] = await fork(host, CALLER, parent.id, Wish())
    await put(host, child, "out", b"the child's own")
    await put(host, child, "other", b"1")
    await snapshots.take(host, CALLER, child.id, None, Asker())

    found = await blame(host, CALLER, child.id, "began")
    assert (found.sandbox.id, [each.kind for each in found.through]) == (parent.id, ["fork"])
    monkeypatch.setattr(blaming, "_STEPS", 2)
    found = await blame(host, CALLER, child.id, "out")
    assert (found.step, found.sandbox.id, found.through) == (None, child.id, ())


async def test_a_snapshot_is_followed_by_its_name_unless_that_is_another_s_by_now(host: Host) -> None:
    other, ours = await new_sandbox(host), await new_sandbox(host)
    await put(host, other, "out", b"1")
    await put(host, ours, "own", b"1")
    first = await snapshots.take(host, CALLER, other.id, "snap-best", Asker())
    await merge(host, CALLER, ours.id, Merging("snap-best", base="now"))
    assert (await blame(host, CALLER, ours.id, "out")).sandbox.id == other.id

    await snapshots.delete(host, CALLER, first.id)
    await put(host, other, "out", b"2")
    await snapshots.take(host, CALLER, other.id, "snap-best", Asker())

    found = await blame(host, CALLER, ours.id, "out")
    assert found.step is not None
    assert (found.step.row.kind, found.sandbox.id, found.through) == ("files.merge", ours.id, ())
