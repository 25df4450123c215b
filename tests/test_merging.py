"""Bringing two trees together in a sandbox: nothing is lost that nobody said may be, also after kill -9."""

import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from hypothesis import given

from petri import trees
from petri.errors import PathsConflict
from petri.model import Sandbox
from petri.operations.merging import Side, _brought_together, _Three
from petri.store import Store
from petri.trees import find, merge
from tests.calls import create, put, run
from tests.conftest import Server
from tests.examples import examples
from tests.forests import Forest, Plan, related
from tests.hosts import LIMITS
from tests.test_api_keep import files_of


def brought_together(forest: Forest, three: _Three, prefer: Side | None) -> bytes:
    """Return what a sandbox would become."""
    sandbox = Sandbox("sb-x", "acme", "python", "fake", "persistent", LIMITS, 0.0, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        try:
            with store.write("acme") as writing:
                for encoded in forest.kept.values():
                    writing.put_folder(encoded)
                writing.commit()
            with store.write("acme") as writing:
                tree, _ = _brought_together(store, sandbox, writing, three, prefer)
            for address in _folders(store, tree):
                forest.put(store.get("acme", address))
        finally:
            store.close()
    return tree


def _folders(store: Store, tree: bytes) -> set[bytes]:
    inside = (entry for _, entry in trees.walk(store.fetch("acme"), tree))
    return {tree, *(entry.address for entry in inside if isinstance(entry, trees.Folder))} - {trees.EMPTY}


@examples(60)
@given(related(2))
def test_whose_side_is_preferred_is_as_it_was_and_the_other_adds_what_it_can(plans: tuple[Plan, ...]) -> None:
    forest = Forest()
    three = _Three(*(forest.plant(plan) for plan in plans))
    found = merge(forest.fetch, three.base, three.ours, three.theirs)

    if found.conflicts:
        with pytest.raises(PathsConflict):
            brought_together(forest, three, None)
    for side, tree in (("ours", three.ours), ("theirs", three.theirs)):
        merged = brought_together(forest, three, side)  # type: ignore[arg-type]
        for conflict in found.conflicts:
            assert find(forest.fetch, merged, conflict.path) == find(forest.fetch, tree, conflict.path)
        other = three.theirs if side == "ours" else three.ours
        disputed = [conflict.path for conflict in found.conflicts]
        for path, old, new in trees.flatten(forest.fetch, trees.diff(forest.fetch, three.base, other)):
            is_theirs_alone = find(forest.fetch, tree, path) == old
            if new is not None and is_theirs_alone and not any(_touch(path, each) for each in disputed):
                assert find(forest.fetch, merged, path) == new


def _touch(one: bytes, other: bytes) -> bool:
    return one == other or one.startswith(other + b"/") or other.startswith(one + b"/")


@pytest.mark.slow
def test_killed_in_the_middle_of_a_merge_the_files_are_one_or_the_other(
    new_server: Callable[..., Server],
) -> None:
    server = new_server()
    chance = random.Random(7)
    with server.client() as http:
        mine, other = create(http), create(http)
        for sandbox in (mine, other):
            put(http, sandbox, "base", "base")
    for round_ in range(5):
        with server.client() as http:
            base = run(http, mine, command=f"mkdir -p m; echo {round_} > m/{round_}")["tree_before"]
            run(
                http,
                other,
                command=f"mkdir -p d{round_}; cd d{round_}; for i in $(seq 300); do echo {round_} > $i; done",
            )
            before = files_of(http, mine)
            theirs = files_of(http, other)
            merging = threading.Thread(target=_merge_and_be_cut_off, args=(http, mine, other, base))
            merging.start()
            time.sleep(chance.random() * 0.25)
            server.stop(signal.SIGKILL)
            merging.join()
        server.start()
        with server.client() as http:
            after = files_of(http, mine)
            whole = {**before, **{path: held for path, held in theirs.items() if path.startswith("d")}}
            assert after in (before, whole), f"round {round_}: {len(after)} of {len(whole)} files"


def _merge_and_be_cut_off(http: httpx.Client, mine: str, other: str, base: str) -> None:
    with suppress(httpx.TransportError):
        http.post(f"/v1/sandboxes/{mine}/merge", json={"from": other, "base": base})
