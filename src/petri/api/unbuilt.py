"""Calls of the contract that this release does not build: they say so, instead of being nowhere."""

from fastapi import APIRouter

from petri.api.context import CallerOf, HostOf
from petri.errors import InvalidField
from petri.operations import history

router = APIRouter(prefix="/v1", include_in_schema=False)


@router.post("/sandboxes/{sandbox_id}/pause")
async def pause_sandbox(sandbox_id: str, host: HostOf, caller: CallerOf) -> None:
    """Put a sandbox to sleep, in a later release."""
    await history.sandbox(host, caller, sandbox_id)
    raise InvalidField(
        "pause", "pausing is not built yet; between its runs a sandbox holds files and nothing else"
    )


@router.post("/sandboxes/{sandbox_id}/resume")
async def resume_sandbox(sandbox_id: str, host: HostOf, caller: CallerOf) -> None:
    """Wake a sandbox up, in a later release."""
    await history.sandbox(host, caller, sandbox_id)
    raise InvalidField("resume", "resuming is not built yet; a sandbox never sleeps: use it at any time")


@router.post("/runs/{run_id}/stdin")
async def write_stdin(run_id: str, host: HostOf, caller: CallerOf) -> None:
    """Write to a command while it runs, in a later release."""
    await history.run(host, caller, run_id)
    raise InvalidField(
        "stdin", "writing to a run while it runs is not built yet; give it all its input by `stdin` of exec"
    )
