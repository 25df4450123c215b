"""A run's door, knocked at by whoever: every question is understood within bounds, or turned away."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petri.operations import door
from petri.operations.door import Answer, Question, Say, attend, understood

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.binary())
def test_no_bytes_are_an_error(line: bytes) -> None:
    understood(line)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("ask", "language", "want", "said"), JSON)))
def test_what_is_understood_is_within_bounds(said: dict[str, Any]) -> None:
    for ask in (said, {**said, "ask": "install", "language": "python"}):
        question = understood(json.dumps(ask).encode())

        if question is not None:
            assert 0 < len(question.want) <= 200
            assert all(0 < len(each) <= 1_000 for each in question.want)
            assert len(question.said) <= 400


@asynccontextmanager
async def opened(tmp_path: Path, answering: door.Answering) -> AsyncIterator[Path]:
    """Have a door that somebody attends."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "door"))
        listening.listen(8)
        listening.setblocking(False)
        async with asyncio.TaskGroup() as tasks:
            attending = tasks.create_task(attend(listening, answering))
            yield tmp_path / "door"
            attending.cancel()


async def asked(path: Path, said: bytes) -> list[dict[str, Any]]:
    reading, writing = await asyncio.open_unix_connection(str(path))
    writing.write(said)
    lines = (await reading.read()).splitlines()
    writing.close()
    return [json.loads(line) for line in lines]


ASK = b'{"ask": "install", "language": "python", "want": ["x"]}\n'


async def test_how_it_goes_is_told_before_the_answer(tmp_path: Path) -> None:
    async def answering(question: Question, say: Say) -> Answer:
        say(f"looking for {question.want[0]}")
        return Answer(is_done=True, installed=("x==1",), new=("x==1",))

    async with opened(tmp_path, answering) as path:
        told = await asked(path, ASK)

    assert told == [
        {"say": "looking for x"},
        {"done": True, "said": "", "installed": ["x==1"], "new": ["x==1"]},
    ]


async def test_an_answer_that_breaks_is_told_and_the_door_stays(tmp_path: Path) -> None:
    async def answering(question: Question, say: Say) -> Answer:
        raise RuntimeError("in a new way")

    async with opened(tmp_path, answering) as path:
        told = [await asked(path, ASK) for _ in range(2)]

    assert [(each["done"], each["said"]) for (each,) in told] == [
        (False, "this host could not install packages")
    ] * 2


async def test_whoever_leaves_takes_the_work_along(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def answering(question: Question, say: Say) -> Answer:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return Answer(is_done=True)

    async with opened(tmp_path, answering) as path:
        _, writing = await asyncio.open_unix_connection(str(path))
        writing.write(ASK)
        await begun.wait()
        writing.close()
        await asyncio.wait_for(ended.wait(), 20)


async def test_one_question_at_a_time(tmp_path: Path) -> None:
    at_once, most = 0, 0

    async def answering(question: Question, say: Say) -> Answer:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return Answer(is_done=True)

    async with opened(tmp_path, answering) as path:
        await asyncio.gather(*(asked(path, ASK) for _ in range(8)))

    assert most == 1


async def test_silence_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answering(question: Question, say: Say) -> Answer:
        return Answer(is_done=True)

    monkeypatch.setattr(door, "_ASK_S", 0.05)
    async with opened(tmp_path, answering) as path:
        told = await asked(path, b'{"ask": ')

    assert told == []
