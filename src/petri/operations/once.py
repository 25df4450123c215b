"""Run something once: a sandbox for one command, with its files, gone when it has ended."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from petri.model import Event
from petri.operations import Caller, Host, LiveRun, files
from petri.operations.command import Ask
from petri.operations.create import Wish, create
from petri.operations.destroy import end
from petri.operations.exec import begin
from petri.threads import in_thread
from petri.workspace import Intake

_FORGOTTEN_S = 60.0
"""Between creating it, taking in its files and its run, a sandbox for one call is never idle for long."""


async def exec_once(
    host: Host, caller: Caller, wish: Wish, contents: Mapping[str, bytes], ask: Ask
) -> LiveRun:
    """Begin a run in a new ephemeral sandbox that holds `contents`. Whatever fails leaves nothing.

    Not even a crash in between: nobody but this call knows the sandbox, so the reaper ends it when it has
    been idle for so long that the call must be gone.
    """
    sandbox, _ = await create(host, caller, replace(wish, idle_s=_FORGOTTEN_S))
    try:
        if contents:
            async with files.receive(host, sandbox) as intake:
                await in_thread(_stage, intake, contents)
                await files.commit(host, sandbox, intake)
        return await begin(host, caller, sandbox.id, ask)
    except BaseException:
        await asyncio.shield(end(host, sandbox, Event.DELETE))
        raise


def _stage(intake: Intake, contents: Mapping[str, bytes]) -> None:
    for path, content in contents.items():
        staged = intake.file(path)
        staged.write(content)
        staged.close()
