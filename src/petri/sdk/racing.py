"""A race: the same command in several forks of one sandbox, and which of them did best. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from petri.errors import PathsConflict
from petri.wire import ExecAnswer, MergeAnswer

LONGEST_SCORE = 100
"""Bytes of a file that holds a number."""
LABEL = "petri-race"
"""The label that all forks of a race have, with a value of the race's own."""
RACER = "PETRI_RACER"
"""The variable that tells a command which of the racers it is, from 1 on."""
ABANDONED_S = 3600.0
"""A fork that nobody has used for so long belongs to nobody: whoever began the race is gone."""


@dataclass(frozen=True, slots=True)
class Racer:
    """One of those who ran."""

    number: int
    sandbox: str
    """The fork it ran in."""
    answer: ExecAnswer | None = None
    """How its run ended; None if it could not be run."""
    score: float | None = None
    remark: str | None = None
    """Why it could not be run, or has no score."""

    @property
    def succeeded(self) -> bool:
        """Whether its command exited with 0, and by itself."""
        answer = self.answer
        return answer is not None and answer.exit_code == 0 and not (answer.oom_killed or answer.disk_full)


@dataclass(frozen=True, slots=True)
class Race:
    """What came of a race."""

    racers: list[Racer]
    """The best first."""
    winner: Racer | None
    """The best, if it succeeded and, where scores count, has one."""
    merged: MergeAnswer | None = None
    """What of the winner's came into the sandbox; None if nothing was to."""


class NotMerged(PathsConflict):
    """What the winner did is in conflict with what has become of the sandbox. Its fork stays."""

    def __init__(self, race: Race, winner: Racer, refused: PathsConflict) -> None:
        message = f"{refused.message}; what racer {winner.number} did, who won, stays in {winner.sandbox}"
        super().__init__(message, detail=refused.detail, conflicts=refused.conflicts)
        self.race = race
        self.winner = winner


def ranked(racers: Iterable[Racer]) -> list[Racer]:
    """Return the best first: who succeeded, by score if there are any, by exit code, by time."""
    return sorted(racers, key=_rank)


def _rank(racer: Racer) -> tuple[bool, bool, float, int, float, int]:
    answer, score = racer.answer, racer.score
    code = answer.exit_code if answer is not None and answer.exit_code is not None else 1 << 16
    took = answer.duration_ms if answer is not None else math.inf
    return not racer.succeeded, score is None, -(score or 0.0), code, took, racer.number


def winner_of(best_first: list[Racer], *, by_score: bool) -> Racer | None:
    """Return who won, if anybody did."""
    first = best_first[0] if best_first else None
    if first is None or not first.succeeded or (by_score and first.score is None):
        return None
    return first


def score_in(content: bytes) -> float:
    """Return the number that a file holds; `ValueError`, with what it holds instead, if it is none."""
    text = content[: LONGEST_SCORE + 1].decode(errors="replace").strip()
    try:
        score = float(text) if len(content) <= LONGEST_SCORE else math.nan
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"its score is no number: {text[:40]!r}")
    return score
