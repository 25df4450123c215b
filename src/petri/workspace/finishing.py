"""Finishing what a crash interrupted: an upload or a rework that has its journal is carried out."""

from contextlib import suppress
from pathlib import Path

from petri.errors import NotFound
from petri.workspace.beneath import trusted
from petri.workspace.commit import Site, roll_forward
from petri.workspace.ground import Ground
from petri.workspace.journal import Journal
from petri.workspace.rework import Rework


def complete(ground: Ground, stage: Path) -> None:
    """Have happened what `stage` has a journal for; without one, or without its workspace, nothing."""
    journal, rework = Journal.read(stage), Rework.read(stage)
    begun = journal or rework
    if begun is None:
        return
    with (
        suppress(NotFound),
        ground.workspace(begun.sandbox_id) as workspace,
        trusted(stage) as staging,
    ):
        site = Site(workspace, staging, begun.owner)
        if journal is not None:
            roll_forward(site, journal.moves)
        if rework is not None:
            rework.roll_forward(site)
