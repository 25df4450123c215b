"""`petri race` and `petri merge`."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from petri.cli.options import connect, how_options, json_option
from petri.cli.printing import NOTHING, duration, plain, print_json, print_table
from petri.cli.runs import OptionsThenCommand
from petri.errors import NotFound, PathsConflict

if TYPE_CHECKING:
    from petri.sdk import Client, Command, Race, Racer
    from petri.wire import MergeAnswer

NOBODY_WON = 1
IN_CONFLICT = 1


@click.command(cls=OptionsThenCommand)
@click.argument("sandbox")
@click.argument("argv", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-n", "n", type=click.IntRange(1, 16), default=4, show_default=True, help="How many run.")
@click.option("--score", metavar="FILE", help="Rank by the number each leaves in FILE; the highest wins.")
@click.option("--no-merge", is_flag=True, help="Leave SANDBOX as it is.")
@click.option("--keep-forks", is_flag=True, help="Leave the forks there, to look at.")
@how_options
@json_option
def race(
    sandbox: str,
    argv: tuple[str, ...],
    n: int,
    score: str | None,
    how: "Command",
    *,
    as_json: bool,
    **switches: bool,
) -> None:
    """Run COMMAND in several forks of SANDBOX at once, and bring what the best one did into SANDBOX.

    PETRI_RACER, from 1 on, tells each which it is. The best is who exits with 0, the quickest first.
    Exits with 1 if nobody did. The forks are gone afterwards, also after Ctrl-C; but the winner's stays
    if what it did is in conflict with what has become of SANDBOX meanwhile. That is told, and exits
    with 1, too.

    \b
    Example: petri race crawler -n 4 -- sh -c 'python3 solve.py --seed $PETRI_RACER'
             petri race crawler --score score.txt -- python3 solve.py
    """
    command: Command = {**how, "command": argv}
    from petri.sdk import NotMerged

    refused = None
    with connect() as petri:
        chosen = petri.sandbox_id(sandbox)
        try:
            done = petri.race(
                chosen,
                n,
                score=score,
                merge=not switches["no_merge"],
                keep_forks=switches["keep_forks"],
                **command,
            )
        except NotMerged as error:
            done, refused = error.race, error
    if as_json:
        print_json({**_as_data(done), "conflicts": _conflicts(refused)})
    else:
        _print_race(done, keeps_forks=switches["keep_forks"])
        if refused is not None:
            _tell_conflicts(refused)
            winner = refused.winner
            click.echo(
                f"petri: nothing was merged; racer {winner.number} won, and what it did stays: petri merge "
                f"{chosen} {winner.sandbox} --prefer theirs",
                err=True,
            )
    sys.exit(IN_CONFLICT if refused is not None else NOBODY_WON if done.winner is None else 0)


@click.command()
@click.argument("sandbox")
@click.argument("source", metavar="FROM")
@click.option("--base", help="What both come from: a run, a snapshot or a tree. Of a fork it is known.")
@click.option(
    "--prefer", type=click.Choice(["ours", "theirs"]), help="Who wins where both changed the same file."
)
@json_option
def merge(sandbox: str, source: str, base: str | None, prefer: Any, *, as_json: bool) -> None:
    """Bring what happened in FROM, a fork for example, into SANDBOX; all of it, or nothing.

    FROM is a sandbox or a snapshot, by its id or its name, or a tree. A file that both changed is a
    conflict: it is told, and the command exits 1.

    Example: petri merge crawler sb-mjqjyy5xh2vtzqyzb5ta
    """
    with connect() as petri:
        chosen = petri.sandbox_id(sandbox)
        try:
            merged = petri.merge(chosen, _source(petri, source), base=base, prefer=prefer)
        except PathsConflict as error:
            if as_json:
                print_json({"conflicts": _conflicts(error)})
            else:
                _tell_conflicts(error)
                click.echo("petri: nothing was done; --prefer ours or theirs says whose side wins", err=True)
            sys.exit(IN_CONFLICT)
    if as_json:
        print_json(merged)
    else:
        _print_merged(merged)


def _source(petri: "Client", said: str) -> str:
    """Return what the server knows `said` by; a sandbox by its id, whose name it may be."""
    if not said.startswith(("snap-", "run-")) and len(said) != 64:
        with suppress(NotFound):  # then it may be a snapshot's name
            return petri.sandbox_id(said)
    return said


def _tell_conflicts(error: PathsConflict) -> None:
    for path, reason in error.conflicts:
        click.echo(f"petri: {plain(path.decode(errors='replace'))}: {plain(reason)}", err=True)


def _conflicts(error: PathsConflict | None) -> list[dict[str, str]]:
    told = error.conflicts if error is not None else ()
    return [{"path": path.decode(errors="replace"), "reason": reason} for path, reason in told]


def _print_race(race: "Race", *, keeps_forks: bool) -> None:
    print_table(
        ("RANK", "RACER", "ENDED WITH", "TOOK", "SCORE", "REMARK", *(("SANDBOX",) if keeps_forks else ())),
        [
            (*_row(rank, racer), *((racer.sandbox,) if keeps_forks else ()))
            for rank, racer in enumerate(race.racers, 1)
        ],
    )
    if race.winner is None:
        click.echo("petri: nobody won, and nothing was merged", err=True)
    elif race.merged is not None:
        click.echo(f"racer {race.winner.number} won:")
        _print_merged(race.merged)


def _row(rank: int, racer: "Racer") -> tuple[object, ...]:
    answer = racer.answer
    if answer is None:
        return rank, racer.number, NOTHING, NOTHING, NOTHING, racer.remark
    ended = answer.signal_name if answer.exit_code is None else str(answer.exit_code)
    took = duration(answer.duration_ms)
    ended = "time limit" if answer.timed_out else ended
    score = NOTHING if racer.score is None else f"{racer.score:g}"
    return rank, racer.number, ended, took, score, racer.remark


def _print_merged(merged: "MergeAnswer") -> None:
    changes = merged.changes
    for mark, paths in (("A", changes.added), ("M", changes.modified), ("D", changes.deleted)):
        for path in paths:
            click.echo(f"{mark} {plain(path)}")
    if changes.left_out:
        click.echo(f"and {changes.left_out} more")
    for conflict in merged.conflicts:
        click.echo(f"petri: decided: {plain(conflict.path)}: {plain(conflict.reason)}", err=True)


def _as_data(race: "Race") -> dict[str, Any]:
    return {
        "racers": [_racer(racer) for racer in race.racers],
        "winner": None if race.winner is None else race.winner.number,
        "merged": None if race.merged is None else race.merged.model_dump(mode="json"),
    }


def _racer(racer: "Racer") -> dict[str, Any]:
    return {
        "number": racer.number,
        "sandbox": racer.sandbox,
        "score": racer.score,
        "remark": racer.remark,
        "answer": None if racer.answer is None else racer.answer.model_dump(mode="json"),
    }
