"""Whether a host's Python can be started before it knows what to run: found out by doing it, once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from petri.engine import Ahead, Fallen, Leash, Standing
from petri.engine.ahead import ENV
from petri.engine.confine import WORKSPACE
from petri.engine.rootfs import PROBE
from petri.model import Command, Stream

_log = logging.getLogger("petri.engine")
_HOSTS = "/usr/"
_USUAL = "/usr/bin/python3"
_TIMEOUT_S = 20
_ARGUMENT = "word"
_WORDS = f"{PROBE}|{_ARGUMENT}"
_EXPECTED = f"__main__|{WORKSPACE}/{PROBE}|{WORKSPACE}|{WORKSPACE}|{_WORDS}|{_WORDS}|False|True\n"
"""What `cell/python/probe.py` says where it runs as if Python had been started for it."""


class Rehearsal:
    """Tries each interpreter with a script of ours before it is started ahead for anybody."""

    def __init__(self, make: Callable[[Ahead], Awaitable[Standing]]) -> None:
        self._make = make
        self._trying = asyncio.Lock()
        self._known: dict[str, bool] = {}

    async def allows(self, interpreter: str) -> bool:
        """Say whether `interpreter` may be started ahead. One in an environment is the host's own.

        An engine that fails raises, and has said nothing of the interpreter: it is tried again.
        """
        host = interpreter if interpreter.startswith(_HOSTS) else _USUAL
        async with self._trying:
            if host not in self._known:
                self._known[host] = await self._rehearse(host)
            return self._known[host]

    async def _rehearse(self, interpreter: str) -> bool:
        said = bytearray()

        def take(_: Stream, chunk: bytes) -> None:
            said.extend(chunk)

        env = {name: value for name, value in ENV.items() if name != "PYTHONPATH"}
        command = Command((interpreter, PROBE, _ARGUMENT), WORKSPACE, _TIMEOUT_S, env)
        try:
            cell = await self._make(Ahead(interpreter, "file"))
            await cell.exec(command, take, Leash.loose())
        except Fallen as error:
            said.extend(str(error).encode())
        if said.decode(errors="replace") == _EXPECTED:
            return True
        _log.warning(
            "%s is not started ahead of its commands here; it said %r", interpreter, bytes(said[:500])
        )
        return False
