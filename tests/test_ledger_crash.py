"""What is on record after `kill -9`: everything acknowledged, and no state without its history.

Run as a program, this file is the one that gets killed: it writes as fast as it can and says what was
acknowledged.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from petri.errors import Conflict
from petri.ledger import Ledger, SandboxQuery
from petri.model import Event, RunEvent
from tests.test_ledger import NOW, a_run, a_sandbox, history

ACKNOWLEDGED = 300
"""How many writes to wait for before the kill."""


@pytest.mark.long
async def test_after_kill_9_state_and_history_agree_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await Ledger.open(url).close()

    said = _write_until_killed(url)

    ledger = Ledger.open(url)
    everyone = (await ledger.sandboxes("acme", SandboxQuery(limit=100_000))).items
    entered = {sandbox.id: await _entered(ledger, sandbox.id) for sandbox in everyone}
    for sandbox in everyone:
        states = entered[sandbox.id][sandbox.id]
        assert states[-1] == sandbox.state
        assert len(states) == sandbox.generation + 1
        runs = (await ledger.runs(sandbox.id, limit=1000, cursor=None)).items
        assert {run.id: run.state for run in runs} == {
            one: states[-1] for one, states in entered[sandbox.id].items() if one != sandbox.id
        }
    await ledger.close()
    assert len(said) >= ACKNOWLEDGED
    for sandbox_id, subject, state in (line.split() for line in said):
        assert state in entered[sandbox_id][subject]


def _write_until_killed(url: str) -> list[str]:
    argv = [sys.executable, "-m", "tests.test_ledger_crash", url]
    top = Path(__file__).parents[1]
    with subprocess.Popen(argv, cwd=top, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(ACKNOWLEDGED)]
        os.kill(writer.pid, signal.SIGKILL)
        said += writer.stdout.readlines()
    return [line for line in said if line.endswith("\n")]  # the kill may cut the last one short


async def _entered(ledger: Ledger, sandbox_id: str) -> Mapping[str, list[str]]:
    """Return the states that the sandbox and each of its runs entered, by the history alone."""
    states = defaultdict(list)
    for row in await history(ledger, sandbox_id):
        states[row.run_id or sandbox_id].append(row.detail["state"])
    return states


# --------------------------------------------------------------------------------------- the one killed


async def _write_for_ever(url: str) -> None:
    ledger = Ledger.open(url)
    async with asyncio.TaskGroup() as lives:
        for _ in range(8):
            lives.create_task(_live_for_ever(ledger))


async def _live_for_ever(ledger: Ledger) -> None:
    while True:
        with contextlib.suppress(Conflict):  # of eight who want the name, one has it at a time
            await _live(ledger)
            await _live(ledger, name="wanted")


async def _live(ledger: Ledger, name: str | None = None) -> None:
    sandbox = await ledger.add_sandbox(a_sandbox(name=name, metadata={"a": "b"}, idle_s=9.0))
    _say(sandbox.id, sandbox.id, sandbox.state)
    sandbox = await ledger.advance(sandbox, Event.CREATED)
    _say(sandbox.id, sandbox.id, sandbox.state)
    run = await ledger.add_run(a_run(sandbox), start=True)
    _say(sandbox.id, run.id, run.state)
    run = await ledger.advance_run(run, RunEvent.ENDED, at=NOW)
    _say(sandbox.id, run.id, run.state)
    for event in (Event.DELETE, Event.REMOVED):
        sandbox = await ledger.advance(sandbox, event)
        _say(sandbox.id, sandbox.id, sandbox.state)


def _say(sandbox_id: str, subject: str, state: str) -> None:
    os.write(1, f"{sandbox_id} {subject} {state}\n".encode())


if __name__ == "__main__":
    asyncio.run(_write_for_ever(sys.argv[1]))
