"""Environments over the lives of a server, and over time: whole or not there, and within their budget."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from petri.environment.building import (
    Environment,
    Environments,
    Outfit,
    Rules,
)
from tests.environments import imported, opened, silent, want
from tests.package_index import PackageIndex, wheel

pytestmark = pytest.mark.long


async def test_an_environment_outlives_its_server(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index) as environments:
        first = await environments.prepare(want("alpha"), silent)
        await _completed(tmp_path)
    index.stop()
    async with opened(tmp_path, index) as environments:
        second = environments.at_hand(want("alpha"))

    assert second is not None
    assert second.address == first.address


async def test_one_that_its_server_had_not_completed_is_there_and_the_next_completes_it(
    tmp_path: Path, index: PackageIndex
) -> None:
    async with opened(tmp_path, index) as environments:
        first = await environments.prepare(want("alpha"), silent)
        await _completed(tmp_path)
    whole = tmp_path / "shelf" / str(first.address) / "whole"
    whole.unlink()
    index.stop()
    async with opened(tmp_path, index) as environments:
        second = environments.at_hand(want("alpha"))
        environments.resume()
        await _completed(tmp_path)

    assert second is not None
    assert second.address == first.address
    assert whole.exists()


async def test_one_that_may_not_be_on_disk_is_built_again_without_asking_what_it_is(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, index) as environments:
        first = await environments.prepare(want("alpha"), silent)
        await _completed(tmp_path)
    (tmp_path / "shelf" / str(first.address) / "whole").unlink()
    monkeypatch.setattr("petri.environment.building.shelf._boot", lambda: "another")
    index.fetched.clear()
    async with opened(tmp_path, index) as environments:
        assert environments.shelf.all() == []
        second = await environments.prepare(want("alpha"), silent)

    assert second.address == first.address
    assert [path for path in index.fetched if "/simple/" in path] == []


@pytest.mark.parametrize("is_torn", [False, True], ids=["as it was", "torn"])
async def test_after_a_power_cut_one_is_used_only_if_it_is_what_it_was(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, *, is_torn: bool
) -> None:
    async with opened(tmp_path, index) as environments:
        first = await environments.prepare(want("alpha"), silent)
        await _completed(tmp_path)
    module = next((tmp_path / "shelf" / str(first.address) / "prefix/lib").glob("*/site-packages/beta.py"))
    inode = module.stat().st_ino
    if is_torn:
        module.unlink()
        module.write_bytes(b"")
    monkeypatch.setattr("petri.environment.building.shelf._boot", lambda: "another one")
    async with opened(tmp_path, index) as environments:
        assert environments.at_hand(want("alpha")) is None
        second = await environments.prepare(want("alpha"), silent)

        assert second.address == first.address
        assert imported(second, "beta") == "1.0"
        assert (module.stat().st_ino == inode) is (not is_torn)


async def _completed(root: Path) -> None:
    async with asyncio.timeout(10):
        while not list((root / "shelf").glob("*/whole")):  # noqa: ASYNC110 - made by another task
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_killed_in_the_middle_of_a_build_the_next_life_builds_it(
    tmp_path: Path, index: PackageIndex
) -> None:
    for number in range(20):
        index.add(f"part{number}", "1.0")
    names = [f"part{number}" for number in range(20)]
    for pause_s in (0.05, 0.2, 0.4, 0.6, 0.8):
        code = (
            "import asyncio, sys; from pathlib import Path\n"
            "from tests.environments import opened, want, silent\n"
            "class Index: url = sys.argv[2]\n"
            "async def main():\n"
            "    async with opened(Path(sys.argv[1]), Index) as environments:\n"
            "        await environments.prepare(want(*sys.argv[3:]), silent)\n"
            "        await asyncio.sleep(30)\n"
            "asyncio.run(main())\n"
        )
        argv = [sys.executable, "-c", code, str(tmp_path), index.url, *names]
        child = subprocess.Popen(argv)  # noqa: ASYNC220 - it is killed right below
        await asyncio.sleep(0.3 + pause_s)
        child.send_signal(signal.SIGKILL)
        await asyncio.to_thread(child.wait)
        shutil.rmtree(tmp_path / "asked", ignore_errors=True)

        async with opened(tmp_path, index) as environments:
            whole = [each for each in environments.shelf.all() if each.record.files < 20]
            assert whole == []
            assert list((tmp_path / "staging").iterdir()) == []
    async with opened(tmp_path, index) as environments:
        outfit = await environments.prepare(want(*names), silent)
    assert len(outfit.installed) == 20


async def test_over_budget_the_cache_goes_first_then_what_is_longest_unused(
    tmp_path: Path, index: PackageIndex
) -> None:
    index.put("large", "1.0", wheel("large", "1.0", files={"large.py": "version = 1\n" + "#" * 100_000}))
    index.put("other", "1.0", wheel("other", "1.0", files={"other.py": "version = 1\n" + "#" * 100_000}))
    async with opened(tmp_path, index, Rules(budget_bytes=150_000)) as environments:
        old = await environments.prepare(want("large"), silent)
        environments.give_back(old)
        await _completed(tmp_path)
        new = await environments.prepare(want("other"), silent)
        environments.give_back(new)
        await _gone(environments, old)

        await environments.sweep()

        assert [each.address for each in environments.shelf.all()] == [new.address]
        assert environments.shelf.record(str(old.address)) is not None


async def test_the_cache_stays_for_who_comes_while_it_is_weighed(tmp_path: Path, index: PackageIndex) -> None:
    index.holds.clear()
    async with opened(tmp_path, index, Rules(budget_bytes=1)) as environments, asyncio.TaskGroup() as tasks:
        (environments.shelf.cache / "wheel").write_bytes(b"needed")
        sweeping = tasks.create_task(environments.sweep())
        await asyncio.sleep(0)  # it has begun
        asked = tasks.create_task(environments.prepare(want("alpha"), silent))
        await sweeping

        kept = [each.name for each in environments.shelf.cache.glob("wheel")]
        index.holds.set()
        environments.give_back(await asked)

    assert kept == ["wheel"]


async def test_what_is_in_use_stays_whatever_the_budget(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index, Rules(budget_bytes=1)) as environments:
        outfit = await environments.prepare(want("alpha"), silent)
        await _idle(outfit.environments[0], but_for=1)
        await environments.sweep()

        assert environments.shelf.find(outfit.address) is not None
        environments.give_back(outfit)
        await environments.sweep()
        assert environments.shelf.find(outfit.address) is None


def _age(path: Path, days: float) -> None:
    os.utime(path, (time.time() - days * 86_400,) * 2)


async def test_what_nobody_will_ask_for_is_forgotten(tmp_path: Path, index: PackageIndex) -> None:
    async def run_in() -> set[str]:
        return {str(ran.address)}

    async with opened(tmp_path, index, Rules(budget_bytes=1)) as environments:
        ran = await environments.prepare(want("alpha"), silent)
        never = await environments.prepare(want("beta==2.0"), silent)
        fresh = await environments.prepare(want("beta==1.0"), silent)
        for outfit in (ran, never, fresh):
            environments.give_back(outfit)
            await _idle(outfit.environments[0], but_for=0)
        await environments.sweep()
        for each in (tmp_path / "asked").iterdir():
            if str(fresh.address) not in each.read_text():
                _age(each, 29)
        for each in (tmp_path / "records").iterdir():
            _age(each, 2)

        await environments.forget(run_in)

        assert len(list((tmp_path / "asked").iterdir())) == 1
        assert environments.shelf.record(str(ran.address)) is not None, "a run had it"
        assert environments.shelf.record(str(fresh.address)) is not None, "it would be the answer today"
        assert environments.shelf.record(str(never.address)) is None


async def test_what_is_on_the_shelf_or_new_is_not_forgotten(tmp_path: Path, index: PackageIndex) -> None:
    async with opened(tmp_path, index) as environments:
        shelved = await environments.prepare(want("alpha"), silent)
        new = await environments.prepare(want("beta==2.0"), silent)
        environments.give_back(new)
        await _idle(new.environments[0], but_for=0)
        environments.shelf.drop(new.environments[0])
        _age(tmp_path / "records" / str(shelved.address), 2)
        for each in (tmp_path / "asked").iterdir():
            each.unlink()

        await environments.forget(_nobody)

        assert environments.shelf.record(str(shelved.address)) is not None
        assert environments.shelf.record(str(new.address)) is not None


async def test_there_are_only_so_many_answers(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petri.environment.building.tidying._MOST_ANSWERS", 3)
    async with opened(tmp_path, index) as environments:
        for number in range(5):
            environments.shelf.keep_answer(f"k{number}", {"address": None})
            _age(tmp_path / "asked" / f"k{number}", 5 - number)

        await environments.forget(_nobody)

    assert {each.name for each in (tmp_path / "asked").iterdir()} == {"k2", "k3", "k4"}


async def _nobody() -> set[str]:
    return set()


async def _idle(environment: Environment, *, but_for: int) -> None:
    async with asyncio.timeout(10):
        while environment.users > but_for:  # noqa: ASYNC110 - another task completes it
            await asyncio.sleep(0.01)


async def _gone(environments: Environments, outfit: Outfit) -> None:
    async with asyncio.timeout(10):
        while environments.shelf.find(outfit.address) is not None:  # noqa: ASYNC110 - another task drops it
            await asyncio.sleep(0.01)
