"""Look at what is and what happened: sandboxes, runs, events, and the output of a run."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass

from petri.ledger import HistoryRow, Page, SandboxQuery
from petri.model import Run, Sandbox, State, Stream
from petri.operations import Caller, Host, LiveRun
from petri.operations.shares import Measured
from petri.threads import in_thread
from petri.transcript import Chunk, Excerpt, Written

_AT_ONCE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Told:
    """A run that has ended, with what of its output fits into an answer."""

    run: Run
    stdout: Excerpt
    stderr: Excerpt


async def sandbox(host: Host, caller: Caller, sandbox_id: str) -> Sandbox:
    """Return one sandbox, ended ones included."""
    return await host.ledger.sandbox(sandbox_id, caller.tenant)


async def usage(host: Host, sandbox: Sandbox) -> Measured | None:
    """Return what a sandbox takes of the disk; nothing, once it has ended."""
    if sandbox.state is not State.READY:
        return None
    return await host.shares.show(sandbox.id, host.owner_of(sandbox))


async def sandboxes(host: Host, caller: Caller, query: SandboxQuery) -> Page[Sandbox]:
    """Return a page of sandboxes, newest first."""
    return await host.ledger.sandboxes(caller.tenant, query)


async def run(host: Host, caller: Caller, run_id: str) -> Run:
    """Return one run."""
    return await host.ledger.run(run_id, caller.tenant)


async def runs(host: Host, caller: Caller, sandbox_id: str, limit: int, cursor: str | None) -> Page[Run]:
    """Return a page of a sandbox's runs, newest first."""
    found = await host.ledger.sandbox(sandbox_id, caller.tenant)
    return await host.ledger.runs(found.id, limit=limit, cursor=cursor)


async def events(
    host: Host, caller: Caller, sandbox_id: str, limit: int, cursor: str | None
) -> Page[HistoryRow]:
    """Return a page of a sandbox's history, oldest first."""
    found = await host.ledger.sandbox(sandbox_id, caller.tenant)
    return await host.ledger.events(found.id, limit=limit, cursor=cursor)


async def output(host: Host, caller: Caller, run_id: str, stream: Stream) -> Iterator[bytes]:
    """Return the exact bytes a run wrote to one stream, as far as they were kept."""
    found = await host.ledger.run(run_id, caller.tenant)
    return (await _written(host, found.id)).stream(stream)


async def tell(host: Host, ended: Run, live: LiveRun | None = None) -> Told:
    """Return a run with the head and tail of its output; `live`, if it was just now, has that in hand."""
    written = await _written(host, ended.id) if live is None else live.transcript.written()
    if ended.stdout.kept_bytes + ended.stderr.kept_bytes < _AT_ONCE_BYTES:
        return _told(host, ended, written)  # a thread would cost more than the reading
    return await in_thread(_told, host, ended, written)


def _told(host: Host, ended: Run, written: Written) -> Told:
    limit = host.policy.answer_output_bytes
    stdout, stderr = Excerpt(limit), Excerpt(limit)
    for chunk in written.replay():
        (stdout if chunk.stream == "stdout" else stderr).take(chunk.content)
    return Told(ended, stdout, stderr)


async def _written(host: Host, run_id: str) -> Written:
    """Return what a run wrote, wherever that is by now."""
    live = host.live.get(run_id)
    if live is not None:
        return live.transcript.written()
    few = await host.ledger.output(run_id)
    return host.transcripts.file(run_id) if few is None else Written(few)


async def before(host: Host, run_id: str, position: int) -> dict[Stream, bytes]:
    """Return the end of each stream before `position`, which must be one of the run's own."""
    return await in_thread((await _written(host, run_id)).before, position)


async def follow(
    host: Host, live: LiveRun | None, run_id: str, position: int, silence_s: float
) -> AsyncGenerator[Chunk | None]:
    """Yield a run's output from `position` on, as it comes or as it came; None after so much silence."""
    if live is not None:
        async with aclosing(live.transcript.follow(position, silence_s)) as coming:
            async for chunk in coming:
                yield chunk
    else:
        written = await _written(host, run_id)
        while block := await in_thread(written.block, position):
            for chunk in block:
                yield chunk
            position = block[-1].position
