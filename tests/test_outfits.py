"""Whatever goes wrong with packages, a run starts."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from petri.engine.fake import FakeEngine
from petri.environment import Ask as Question
from petri.environment import Code, Policy, Wanted
from petri.environment.building import Rules, Shelf
from petri.model import Addition, last_words
from petri.operations import outfits, outfitter
from petri.operations.adding import merged
from petri.operations.command import Ask
from petri.operations.exec import begin, outcome_of
from petri.operations.outfitter import Installing, Outfitter, open_outfitter
from petri.settings import for_installers
from tests.calls import eventually
from tests.hosts import CALLER, new_sandbox, open_host

INSTALLING = Installing(Policy(), Rules(), for_installers(), lambda: True)


async def opened(
    home: Path, tasks: asyncio.TaskGroup, installing: Installing = INSTALLING
) -> Outfitter | None:
    """Return an outfitter on a shelf of its own."""
    return await open_outfitter(Shelf(home / "environments"), installing, FakeEngine(), None, tasks)


async def test_a_project_that_nobody_understands_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def puzzled(*_: object) -> None:
        raise RecursionError("this project is its own grandmother")

    monkeypatch.setattr(outfits, "wanted", puzzled)
    async with open_host(tmp_path) as host:
        host.outfitter = await opened(tmp_path, host.tasks)
        sandbox = await new_sandbox(host)

        run = await outcome_of(await begin(host, CALLER, sandbox.id, Ask(command=["fake", "exit", "0"])))

    assert run.outcome is not None
    assert run.outcome.exit_code == 0


@pytest.mark.long
async def test_an_installer_that_breaks_in_a_new_way_is_no_reason_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_host(tmp_path) as host:
        host.outfitter = await opened(tmp_path, host.tasks)
        sandbox = await new_sandbox(host)
        (host.workspaces.folder(sandbox.id) / "requirements.txt").write_text("six")
        monkeypatch.setattr("petri.environment.building.python.run_tool", None)

        run = await outcome_of(
            await begin(host, CALLER, sandbox.id, Ask(command=["python3", "-c", "import six"]))
        )

    assert run.packages is not None
    assert run.packages.missing[0].why == "this host could not install packages"


async def test_without_an_interpreter_nothing_is_installed_and_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outfitter, "_PYTHON", "/bin/false")
    async with asyncio.TaskGroup() as tasks:
        assert await opened(tmp_path, tasks) is None


async def test_switched_off_nothing_is_installed(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        assert await opened(tmp_path, tasks, replace(INSTALLING, policy=Policy("off"))) is None


@pytest.mark.long
async def test_long_questions_are_remembered_only_as_far_as_memory_allows(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        found = await opened(tmp_path, tasks)
    assert found is not None

    asked = [Question(Code(f"{number}".ljust(1 << 20)), "python") for number in range(80)]
    for ask in asked:
        found.remember(("tree", ask), Wanted("python"))

    held = [ask for _, ask in found.known]
    assert held == asked[-len(held) :]
    assert 32 < len(held) <= 64


def asked(number: int, text: str) -> Addition:
    """Return what a run asked for: some version of `x`."""
    return Addition("python", "x", text, f"run-{number} pip install {text}")


def test_asking_again_for_what_was_asked_for_adds_nothing() -> None:
    added: tuple[Addition, ...] = ()
    for number in range(1_000):
        added = merged(added, [asked(number, "x")])

    assert added == (asked(0, "x"),)


@pytest.mark.long
def test_a_sandbox_that_changes_its_mind_with_every_run_may_go_on_doing_so() -> None:
    added: tuple[Addition, ...] = ()
    for number in range(1_000):
        added = merged(added, [asked(number, f"x=={number % 2}")])

    assert len(added) == 400
    assert last_words(added) == (asked(999, "x==1"),)
    assert added[-2] == asked(998, "x==0")  # who undoes the last has this


def test_a_run_that_takes_its_word_back_leaves_the_one_before() -> None:
    added = merged(merged((), [asked(1, "x==1")]), [asked(2, "x==2")])

    assert merged(added, [asked(2, "x==1")]) == (asked(1, "x==1"),)


async def test_an_installer_that_hangs_at_start_holds_nobody_up_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = tmp_path / "hangs"
    (tmp_path / "uv").write_text(f"#!/bin/sh\ntouch {hangs}; exec sleep 600\n")
    (tmp_path / "uv").chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        found = await opened(tmp_path, tasks)
        await asyncio.to_thread(eventually, hangs.exists)

        assert found is not None
        found.stop()
