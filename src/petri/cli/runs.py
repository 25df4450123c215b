"""`petri exec`, `run`, `runs`, `logs`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from petri.cli.live import exit_code, run_live, watch
from petri.cli.options import connect, how_options, json_option
from petri.cli.printing import NOTHING, age, duration, print_json, print_table
from petri.cli.progress import Bar
from petri.errors import NotFound

if TYPE_CHECKING:
    from petri.sdk import Client, Command, Stream
    from petri.wire import RunAnswer

NOT_UPLOADED = (".git", ".venv", "__pycache__")
"""Left out of `run --all`: large, made for this machine, and of no use in a sandbox."""


class OptionsThenCommand(click.Command):
    """Takes options before and after SANDBOX, but none from the first word of the command on.

    So `petri exec box python -i main.py` means what it says, with or without a `--`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = False
        before, words = self._split(ctx, args)
        if not words:
            return super().parse_args(ctx, args)
        after, command = self._split(ctx, words[1:])
        return super().parse_args(ctx, [*before, *after, "--", words[0], *command])

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        """Return the leading options, and the words from the first on that is none."""
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        sandbox, argv = found.get("sandbox"), found.get("argv")
        # What was not given is a sentinel of click's, or None, by its version.
        words = [sandbox, *(argv if isinstance(argv, tuple) else ())] if isinstance(sandbox, str) else []
        options = args[: len(args) - len(words)]
        return options[:-1] if options[-1:] == ["--"] else options, words


@click.command("exec", cls=OptionsThenCommand)
@click.argument("sandbox")
@click.argument("argv", metavar="[--] [COMMAND]...", nargs=-1, type=click.UNPROCESSED)
@click.option("-f", "--file", "filename", help="Run this file of the sandbox; COMMAND is its arguments.")
@click.option("--code", help="Run this source text; COMMAND is its arguments.")
@click.option(
    "--keep",
    type=click.Choice(["always", "on-success", "never"]),
    help="What becomes of what it does to the files; unless `always`, it is shown as a diff.",
)
@click.option("--dry-run", is_flag=True, help="The same as --keep never.")
@how_options
@json_option
def exec_(  # noqa: PLR0913 - each is an option
    sandbox: str,
    argv: tuple[str, ...],
    filename: str | None,
    code: str | None,
    keep: str | None,
    how: "Command",
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run a command in a sandbox, and exit with its exit code.

    Exits 128 + N for signal N, 124 at the time limit, 130 after Ctrl-C (which ends the run), and 125
    if Petri itself failed.

    \b
    Example: petri exec crawler -- python -m pytest -q
             petri exec crawler -f main.py -- --depth 3
             petri exec crawler --dry-run -- sed -i s/http:/https:/ config.toml
    """
    command: Command = {**how, **_what(argv, filename, code), **_kept(keep, dry_run=dry_run)}
    with connect() as petri:
        sys.exit(run_live(petri, petri.sandbox_id(sandbox), command, as_json=as_json))


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--sandbox", help="Run in this sandbox. Default: one for the folder FILE is in.")
@click.option(
    "--all", "-r", "whole", is_flag=True, help="Upload the whole folder FILE is in, not FILE alone."
)
@how_options
@json_option
def run(
    file: Path, args: tuple[str, ...], sandbox: str | None, how: "Command", *, whole: bool, as_json: bool
) -> None:
    """Upload FILE and run it with ARGS, in a sandbox that is made if needed and kept.

    Options of Petri go before FILE. Exits as `petri exec` does.

    \b
    Example: petri run main.py --depth 3
             petri run --all src/main.py
    """
    with connect() as petri, Bar() as bar:
        chosen = _sandbox_for(petri, file, sandbox)
        if whole:
            petri.upload(chosen, f"{file.parent}/", skip=NOT_UPLOADED, progress=bar)
        else:
            petri.upload(chosen, file, progress=bar)
        bar.close()
        command: Command = {**how, "filename": file.name, "args": args}
        sys.exit(run_live(petri, chosen, command, as_json=as_json))


@click.command()
@click.argument("sandbox")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most this many.")
@json_option
def runs(sandbox: str, limit: int, *, as_json: bool) -> None:
    """List what ran in a sandbox, newest first.

    Example: petri runs crawler
    """
    with connect() as petri:
        found = list(petri.runs(petri.sandbox_id(sandbox), limit=limit))
    if as_json:
        print_json(found)
    else:
        print_table(
            ("RUN", "STATE", "ENDED WITH", "TOOK", "ASKED", "KEY", "WHAT"),
            [
                (r.run_id, r.state, _ending(r), duration(r.duration_ms), age(r.asked_at), r.key_name, r.said)
                for r in found
            ],
        )


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Stay until the run has ended, and exit as it did.")
@json_option
def logs(run_id: str, *, follow: bool, as_json: bool) -> None:
    """Print what a run wrote: its stdout on ours, its stderr on ours.

    Example: petri logs -f run-k3v7q2m5x4n6p7r2s3t4
    """
    with connect() as petri:
        if follow:
            sys.exit(_follow(petri, run_id, as_json=as_json))
        if as_json:
            print_json(
                {
                    "run_id": run_id,
                    "stdout": _text(petri, run_id, "stdout"),
                    "stderr": _text(petri, run_id, "stderr"),
                }
            )
            return
        _copy(petri, run_id, "stdout", sys.stdout.buffer)
        _copy(petri, run_id, "stderr", sys.stderr.buffer)


def _what(argv: tuple[str, ...], filename: str | None, code: str | None) -> "Command":
    if filename is not None and code is not None:
        raise click.UsageError("give -f or --code, not both")
    if filename is not None:
        return {"filename": filename, "args": argv}
    if code is not None:
        return {"code": code, "args": argv}
    if not argv:
        raise click.UsageError("say what to run: a COMMAND, -f FILE or --code TEXT")
    return {"command": argv}


def _kept(keep: str | None, *, dry_run: bool) -> "Command":
    if dry_run and keep not in (None, "never"):
        raise click.UsageError(f"--dry-run keeps nothing, and --keep says {keep}: give one of them")
    if dry_run or keep == "never":
        return {"keep": "never"}
    return {"keep": "on_success"} if keep == "on-success" else {}


def _sandbox_for(petri: "Client", file: Path, chosen: str | None) -> str:
    """Return the sandbox to run `file` in, made now if it is not there yet."""
    if chosen is None:
        from petri.sdk import folder_name  # on use, as all of the SDK

        return petri.create(name=folder_name(file.resolve().parent)).id
    try:
        return petri.sandbox_id(chosen)
    except NotFound:
        return petri.create(name=chosen).id


def _ending(run: "RunAnswer") -> str:
    if run.timed_out:
        return "time limit"
    if run.exit_code is not None:
        return str(run.exit_code)
    return run.signal_name or NOTHING


def _follow(petri: "Client", run_id: str, *, as_json: bool) -> int:
    # No Ctrl-C is caught here: whoever looks on from outside may leave without ending the run.
    return exit_code(watch(petri, petri.attach(run_id), as_json=as_json))


def _copy(petri: "Client", run_id: str, stream: "Stream", to: BinaryIO) -> None:
    for chunk in petri.run_output_chunks(run_id, stream):
        to.write(chunk)
    to.flush()


def _text(petri: "Client", run_id: str, stream: "Stream") -> str:
    return petri.run_output(run_id, stream).decode(errors="replace")
