"""Races, for programs with an event loop: a command in several forks at once, and the best one's files.

`sync_races.py` is generated from this file by `scripts/generate-sdk`: change this one, run that.
"""

import secrets
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from petri.errors import NotFound, PathsConflict, PetriError
from petri.sdk.asking import Ask, file_path, segment
from petri.sdk.async_snapshots import AsyncSnapshots
from petri.sdk.async_trees import AsyncTrees
from petri.sdk.fields import Command, given
from petri.sdk.racing import (
    ABANDONED_S,
    LABEL,
    LONGEST_SCORE,
    RACER,
    NotMerged,
    Race,
    Racer,
    ranked,
    score_in,
    winner_of,
)
from petri.sdk.waiting import async_together
from petri.wire import ExecAnswer, MergeAnswer, SandboxAnswer, SandboxList


class AsyncRaces(AsyncSnapshots, AsyncTrees):
    """What a client does with several forks of a sandbox at once."""

    async def race(
        self,
        sandbox: str,
        n: int = 4,
        *,
        score: str | None = None,
        merge: bool = True,
        keep_forks: bool = False,
        **command: Unpack[Command],
    ) -> Race:
        """Run a command in `n` forks at once, and bring what the best one did into the sandbox.

        The variable `PETRI_RACER` tells each command which it is, from 1 on. The best is who exits with 0,
        the quickest first; with `score`, a file in which each leaves a number, the highest first. The
        forks are gone afterwards, and their runs ended, however this ends; unless they are to be kept, or
        the winner's changes are in conflict with the sandbox's (`NotMerged`, a `PathsConflict` with the
        race in it): then it stays.
        """
        label = {LABEL: secrets.token_hex(8)}
        spared: set[str] = set()
        try:
            # Should we be gone before the end, nobody else knows of them.
            forks = await self.fork(sandbox, n, metadata=label, idle_s=None if keep_forks else ABANDONED_S)
            if keep_forks:
                spared.update(fork.id for fork in forks)
            race = await self._run_all(forks, score, given(command))
            if merge and race.winner is not None:
                race = replace(race, merged=await self._merged(sandbox, race, race.winner, spared))
            return race
        finally:
            await self._remove(label, spared)

    async def _merged(self, sandbox: str, race: Race, winner: Racer, spared: set[str]) -> MergeAnswer:
        try:
            return await self.merge(sandbox, winner.sandbox)
        except PetriError as error:
            # What it did is nowhere else.
            spared.add(winner.sandbox)
            stays = Ask("PATCH", f"/v1/sandboxes/{segment(winner.sandbox)}", json={"idle_s": None})
            await self._connection.tell(stays)
            if isinstance(error, PathsConflict):
                raise NotMerged(race, winner, error) from error
            raise

    async def _run_all(self, forks: list[SandboxAnswer], score: str | None, command: dict[str, Any]) -> Race:
        calls = [
            partial(self._run_one, Racer(number, fork.id), score, command)
            for number, fork in enumerate(forks, 1)
        ]
        racers = ranked(await async_together(calls))
        return Race(racers, winner_of(racers, by_score=score is not None))

    async def _run_one(self, racer: Racer, score: str | None, command: dict[str, Any]) -> Racer:
        address = f"/v1/sandboxes/{segment(racer.sandbox)}"
        fields = {**command, "env": {**command.get("env", {}), RACER: str(racer.number)}}
        try:
            ask = Ask("POST", f"{address}/exec", json=fields, patient=True)
            racer = replace(racer, answer=await self._connection.ask(ask, ExecAnswer))
            if score is not None:
                racer = replace(racer, score=score_in(await self._beginning(racer.sandbox, score)))
        except NotFound as error:
            missing = f"it left no file {score!r} with a score" if racer.answer is not None else error.message
            return replace(racer, remark=missing)
        except PetriError as error:
            return replace(racer, remark=error.message)
        except ValueError as error:
            return replace(racer, remark=str(error))
        return racer

    async def _beginning(self, sandbox: str, path: str) -> bytes:
        """Return as much of a file as tells whether it is a score."""
        begin = b""
        address = f"/v1/sandboxes/{segment(sandbox)}/files/{file_path(path)}"
        async with aclosing(self._connection.chunks(Ask("GET", address))) as chunks:
            async for chunk in chunks:
                begin += chunk
                if len(begin) > LONGEST_SCORE:
                    break
        return begin

    async def _remove(self, label: Mapping[str, str], spared: set[str]) -> None:
        """Have no fork of a race any more but those spared; nor any of which we were never told."""
        wanted = {f"metadata.{name}": value for name, value in label.items()} | {"state": "ready"}
        found = []
        async for page in self._connection.pages(
            Ask("GET", "/v1/sandboxes", params=wanted), SandboxList, None
        ):
            found += [fork.id for fork in page.sandboxes if fork.id not in spared]
        await async_together([partial(self._delete, fork) for fork in found])

    async def _delete(self, sandbox: str) -> None:
        with suppress(NotFound):
            await self._connection.tell(Ask("DELETE", f"/v1/sandboxes/{segment(sandbox)}"))
