"""Which tree somebody means: a run's, a snapshot's, one by its address, or a sandbox's files as they are.

What is somebody else's is not found, in the same words as what never was. A tree that is found may have been
kept no longer; that is said when it is opened.
"""

import re
from contextlib import suppress

from petri.errors import Conflict, InvalidField, NotFound, PetriError
from petri.model import Sandbox, State
from petri.operations import Caller, Host
from petri.operations.becoming import settled_files
from petri.operations.keeping import kept_tree_at_work
from petri.threads import in_thread
from petri.trees import EMPTY

NOW = "now"
_ADDRESS = re.compile(r"[0-9a-f]{64}")
_RUN = re.compile(r"(run-[a-z2-7]{20})(:before|:after)?")
_SNAPSHOT = re.compile(r"snap-[a-z2-7]{20}")
_SANDBOX = re.compile(r"sb-[a-z2-7]{20}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SHOWN = 100


async def tree_now(host: Host, sandbox: Sandbox) -> str:
    """Return the tree that a sandbox's files are, which is kept; while something runs, the one before that.

    So it is whole: never half of what somebody is writing.
    """
    if sandbox.state is not State.READY:
        raise Conflict(f"sandbox {sandbox.id} is {sandbox.state}; its files are gone")
    while True:
        if (tree := _tree_before_run(host, sandbox)) is not None:
            return tree
        await settled_files(host, sandbox)
        # No command starts as long as we are at work: it waits for its own tree to be kept.
        async with host.keeper.at_work(sandbox.id):
            if sandbox.id not in host.becomings.due and _tree_before_run(host, sandbox) is None:
                return await kept_tree_at_work(host, sandbox)


def _tree_before_run(host: Host, sandbox: Sandbox) -> str | None:
    """Return the tree before the run that may be changing the files of a sandbox, if there is one.

    It is known from the moment on when the run may start; one that waits for its turn changes nothing yet.
    """
    ours = (live.run for live in host.live.values() if live.run.sandbox_id == sandbox.id)
    return next((run.tree_before for run in ours if run.tree_before is not None), None)


def is_sandbox(said: str) -> bool:
    """Say whether `said` names a sandbox."""
    return _SANDBOX.fullmatch(said) is not None


async def tree_meant(host: Host, caller: Caller, sandbox: Sandbox, said: str, field: str) -> str:
    """Return the tree that `said` names in a request about `sandbox`."""
    if said == NOW:
        return await tree_now(host, sandbox)
    if found := _RUN.fullmatch(said):
        return await _of_run(host, caller, found[1], field, is_before=found[2] == ":before")
    if is_sandbox(said):
        return await tree_now(host, await host.ledger.sandbox(said, caller.tenant))
    if _SNAPSHOT.fullmatch(said):
        return (await host.ledger.snapshot(said, caller.tenant)).tree
    if _ADDRESS.fullmatch(said):
        await require_kept(host, sandbox, said)
        return said
    if _NAME.fullmatch(said):
        with suppress(NotFound):
            return (await host.ledger.snapshot(said, caller.tenant)).tree
    raise InvalidField(
        field,
        f"{said[:_SHOWN]!r} is none of: `now`, a run (`run-…`, its end, or `run-…:before`), the id or the "
        "name of a snapshot, a sandbox (`sb-…`), a tree (64 hexadecimal digits)",
    )


async def require_kept(host: Host, sandbox: Sandbox, tree: str) -> None:
    """Raise `NotFound` unless the store has `tree`, which may be what a sandbox's files have just become."""
    if await _is_kept(host, sandbox, tree):
        return
    # What a run leaves is kept soon after its end; whoever asks at once need not know.
    with suppress(PetriError):
        await tree_now(host, sandbox)
    if not await _is_kept(host, sandbox, tree):
        raise NotFound(f"there is no tree {tree}, or it is not kept any more")


async def _is_kept(host: Host, sandbox: Sandbox, tree: str) -> bool:
    root = bytes.fromhex(tree)
    return root == EMPTY or bool(await in_thread(host.store.has, sandbox.tenant, [root]))


async def _of_run(host: Host, caller: Caller, run_id: str, field: str, *, is_before: bool) -> str:
    run = await host.ledger.run(run_id, caller.tenant)
    tree = run.tree_before if is_before else run.tree_after
    if tree is None:
        end = "began" if is_before else "ended"
        raise InvalidField(field, f"nobody knows the files that {run_id} {end} with; it is {run.state}")
    await require_kept(host, await host.ledger.sandbox(run.sandbox_id, run.tenant), tree)
    return tree
