"""Of a sandbox: its environment."""

import time
from typing import Annotated

from fastapi import APIRouter, Query

from petri.api.context import CallerOf, HostOf
from petri.api.problems import DOCUMENTED
from petri.api.shapes import not_installed, timestamp
from petri.operations.environment import Equipped, Part, equipped
from petri.wire import EnvironmentAnswer, PackageAnswer

router = APIRouter(prefix="/v1", responses=DOCUMENTED, tags=["environments"])

RunId = Annotated[str | None, Query(alias="run", max_length=64, description="Of this run, not of the last.")]


@router.get("/sandboxes/{sandbox_id}/environment")
async def show_environment(
    sandbox_id: str, host: HostOf, caller: CallerOf, run_id: RunId = None
) -> EnvironmentAnswer:
    """Show the packages that a sandbox's runs have: versions, who needs each, a lock to rebuild them by."""
    return _answer(await equipped(host, caller, sandbox_id, run_id))


def _answer(found: Equipped) -> EnvironmentAnswer:
    run, parts = found.run, found.parts
    built_at = max((part.record.built_at for part in parts), default=None)
    used = [part.used_at for part in parts if part.used_at is not None]
    return EnvironmentAnswer(
        sandbox_id=found.sandbox_id,
        run_id=run.id if run is not None else None,
        environment=run.environment if run is not None else None,
        source=found.packages.source,
        why=found.packages.why,
        packages=[package for part in parts for package in _packages(found, part)],
        not_installed=not_installed(found.packages),
        lock="".join(part.record.portable_lock for part in parts),
        files={name: text for part in parts for name, text in part.record.portable_files.items()},
        size_bytes=sum(part.record.size for part in parts),
        built_at=timestamp(built_at) if built_at is not None else None,
        age_s=max(0.0, time.time() - built_at) if built_at is not None else None,
        used_at=timestamp(max(used)) if used and len(used) == len(parts) else None,
    )


def _packages(found: Equipped, part: Part) -> list[PackageAnswer]:
    because, needed_by = found.packages.because, part.record.needed_by
    return [
        PackageAnswer(
            name=each.name,
            version=each.version,
            needed_by=[*because.get(each.name, ()), *needed_by.get(each.name, ())],
            built_from=each.built.sdist if each.built is not None else None,
        )
        for each in part.record.lock.packages
    ]
