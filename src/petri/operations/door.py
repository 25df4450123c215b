"""A run's door: how a program in a cell asks for packages. Whatever comes through it is a stranger's.

One question a connection, one connection at a time, so many in all; each bounded in size and time. Whoever
knocks too often waits in a short line that belongs to that run alone. A question is data: nothing in it is
ever a name on this host.
"""

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from petri.threads import settled

_log = logging.getLogger("petri.door")
_MOST_QUESTIONS = 64
"""From one run."""
_MOST_BYTES = 1 << 16
_MOST_WANTED, _MOST_CHARACTERS, _MOST_SAID = 200, 1_000, 400
_ASK_S = _TELL_S = 5.0
_NOT_A_QUESTION = "this is not a question that the server understands"
_BROKEN = "this host could not install packages"

Say = Callable[[str], None]
"""Takes a line of how it goes; must not raise."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a run asks for."""

    ask: Literal["install", "module"]
    """Packages by name, or whatever brings a module."""
    language: Literal["python", "javascript"]
    want: tuple[str, ...]
    said: str
    """What was typed, for the record."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it."""

    is_done: bool
    said: str = ""
    """Why not, in words."""
    installed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    """Those that were not there before."""


Answering = Callable[[Question, Say], Awaitable[Answer]]


async def attend(door: socket.socket, answering: Answering) -> None:
    """Answer whoever knocks, until this is cancelled. Never raises: it shares a task group with all runs.

    Whoever has asked too often finds the door closed, and need not wait for an answer that never comes.
    """
    loop = asyncio.get_running_loop()
    for _ in range(_MOST_QUESTIONS):
        try:
            knocking, _ = await loop.sock_accept(door)
        except OSError as error:
            _log.warning("a run's door is out of order: %s", error)
            return
        with knocking, suppress(OSError, TimeoutError):
            await _converse(loop, knocking, answering)
    door.close()


async def _converse(loop: asyncio.AbstractEventLoop, knocking: socket.socket, answering: Answering) -> None:
    knocking.setblocking(False)
    async with asyncio.timeout(_ASK_S):
        question = understood(await _line(loop, knocking))

    def say(line: str) -> None:
        with suppress(OSError):  # nobody waits for whoever does not listen
            knocking.send(json.dumps({"say": line}).encode() + b"\n")

    answer = Answer(is_done=False, said=_NOT_A_QUESTION)
    if question is not None:
        answer = await _unless_gone(loop, knocking, _answered(answering, question, say))
    told = {"done": answer.is_done, "said": answer.said, "installed": answer.installed, "new": answer.new}
    async with asyncio.timeout(_TELL_S):
        await loop.sock_sendall(knocking, json.dumps(told).encode() + b"\n")


async def _line(loop: asyncio.AbstractEventLoop, knocking: socket.socket) -> bytes:
    """Return what is said up to the end of a line; nothing if there is none in what may be said."""
    said = bytearray()
    while b"\n" not in said and len(said) < _MOST_BYTES:
        chunk = await loop.sock_recv(knocking, _MOST_BYTES)
        if not chunk:
            break
        said += chunk
    return bytes(said.partition(b"\n")[0]) if b"\n" in said else b""


def understood(line: bytes) -> Question | None:
    """Return the question that a line is, if it is one within bounds."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    ask, language, want = said.get("ask"), said.get("language"), said.get("want")
    if ask not in ("install", "module") or language not in ("python", "javascript"):
        return None
    if not isinstance(want, list) or not 0 < len(want) <= _MOST_WANTED:
        return None
    if not all(isinstance(each, str) and 0 < len(each) <= _MOST_CHARACTERS for each in want):
        return None
    typed = said.get("said")
    return Question(ask, language, tuple(want), typed[:_MOST_SAID] if isinstance(typed, str) else "")


async def _answered(answering: Answering, question: Question, say: Say) -> Answer:
    try:
        return await answering(question, say)
    except Exception:  # noqa: BLE001 - one question must not cost the run its door, nor others their runs
        _log.exception("a run's question could not be answered")
        return Answer(is_done=False, said=_BROKEN)


async def _unless_gone(loop: asyncio.AbstractEventLoop, knocking: socket.socket, answering: Any) -> Answer:
    """Return the answer; `OSError` if whoever asked leaves first, and then the work is called off."""
    working, leaving = asyncio.ensure_future(answering), asyncio.ensure_future(loop.sock_recv(knocking, 1))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ConnectionResetError("whoever asked has left")
        answer: Answer = working.result()
        return answer
    finally:
        for each in (working, leaving):
            each.cancel()
            await settled(each)
            if not each.cancelled():
                each.exception()
