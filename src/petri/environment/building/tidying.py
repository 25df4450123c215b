"""Holding environments to what they may take of the disk, and what is remembered of them to what is needed.

An answer is good for a week, and after that for want of a better one, when no index can be reached: so it is
kept four times as long. What an environment was is kept for good if a run had it: that is how it can be
had again. Of others, such as those that were resolved but never built, nobody will ask.
"""

import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from petri.environment.building.shelf import Environment, Shelf
from petri.threads import in_own_thread

_ANSWERS_S = 28 * 86_400
_MOST_ANSWERS = 20_000
_RECORDS_S = 86_400
"""What is younger may be about to be built, or run in."""


async def make_room(
    shelf: Shelf, budget_bytes: int, *, is_idle: Callable[[], bool], goes: Callable[[Environment], None]
) -> None:
    """Have all of `shelf` take no more than `budget_bytes`, as far as it is not in use.

    First the installers' cache goes, which nothing that is under way may need; then wheels that can be built
    again; then environments, those longest unused first. Whether something is under way is asked each time:
    to look takes long.
    """
    cached = await in_own_thread(_own_bytes, shelf.cache)
    wheels = await in_own_thread(shelf.built.sizes)
    total = sum(each.record.size for each in shelf.all()) + cached + sum(size for _, size in wheels)
    if total > budget_bytes and cached and is_idle():
        await in_own_thread(shelf.empty_cache)
        total -= cached
    for folder, size in wheels:
        if total > budget_bytes and is_idle():
            total -= size
            await in_own_thread(shutil.rmtree, folder, ignore_errors=True)
    for environment in shelf.all():
        if total > budget_bytes and environment.users == 0:
            total -= environment.record.size
            goes(environment)
            await in_own_thread(shelf.drop, environment)


async def forget(shelf: Shelf, run_in: Callable[[], Awaitable[set[str]]]) -> int:
    """Forget old answers, and environments that are nowhere and that no run had; return how many of both."""
    answers = await in_own_thread(shelf.forget_answers, _ANSWERS_S, _MOST_ANSWERS)
    spare = await in_own_thread(shelf.spare_records, _RECORDS_S)
    needed = await run_in() if spare else set()
    gone = [address for address in spare if address not in needed]
    for address in gone:
        shelf.forget_record(address, _RECORDS_S)
    return answers + len(gone)


def _own_bytes(folder: Path) -> int:
    """Return what a folder holds that is nowhere else: most of what installers keep is the shelf's, too."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                status = (Path(here) / name).lstat()
                total += status.st_size if status.st_nlink == 1 else 0
    return total
