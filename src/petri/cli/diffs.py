"""`petri diff` and `petri blame`."""

import sys
from typing import TYPE_CHECKING

import click

from petri.cli.files import place
from petri.cli.options import connect, json_option
from petri.cli.printing import age, plain, print_fields, print_json, size
from petri.errors import counted

if TYPE_CHECKING:
    from petri.wire import BlameAnswer, DiffAnswer, FileDiff

_BAR = 40
"""Columns that the longest bar of `--stat` takes."""
_PASSAGES = {
    "files.restore": "a restore",
    "files.undo": "an undo",
    "files.merge": "a merge",
    "fork": "a fork",
    "from_snapshot": "a snapshot",
}
"""How content came to where it is, in words."""
_COLOURS = (("@@", "cyan"), ("+++", None), ("---", None), ("+", "green"), ("-", "red"))


@click.command()
@click.argument("sandbox")
@click.argument("old", metavar="[FROM]", required=False)
@click.argument("new", metavar="[TO]", required=False)
@click.option("--stat", is_flag=True, help="Only how many lines of which file.")
@json_option
def diff(sandbox: str, old: str | None, new: str | None, *, stat: bool, as_json: bool) -> None:
    """Show what changed between two moments of a sandbox, as a patch.

    FROM and TO are a run (its end, or run-…:before), a snapshot by its id or its name, another sandbox
    (sb-…), a tree, or `now`. Default: from before the last run until now; with FROM alone, from there until
    now. What is printed to a file or a pipe can be given to `git apply` or `patch -p1`.

    \b
    Example: petri diff crawler
             petri diff crawler run-k3v7q2m5x4n6p7r2s3t4:before run-k3v7q2m5x4n6p7r2s3t4 | git apply
    """
    with connect() as petri:
        found = petri.diff(petri.sandbox_id(sandbox), old, new)
    if as_json:
        print_json(found)
    elif stat:
        _print_stat(found)
    else:
        print_diff(found)


@click.command()
@click.argument("sandbox", metavar="SANDBOX[:FILE]")
@click.argument("file", required=False)
@json_option
def blame(sandbox: str, file: str | None, *, as_json: bool) -> None:
    """Show which run or upload wrote what FILE holds now, and how it came here.

    What a restore, an undo, a merge or a fork brought is followed to where it was written.

    \b
    Example: petri blame crawler out.csv
             petri blame crawler:out.csv
    """
    where = place(sandbox) if file is None else place(f"{sandbox}:{file}")
    if where.sandbox is None or not where.path:
        raise click.UsageError("name a file: petri blame SANDBOX FILE, or SANDBOX:FILE")
    with connect() as petri:
        found = petri.blame(petri.sandbox_id(where.sandbox), where.path)
    if as_json:
        print_json(found)
    else:
        print_fields(_fields(found))


def print_diff(found: "DiffAnswer") -> None:
    """Print a patch: in colours on a terminal, exactly anywhere else; what it cannot hold goes to stderr."""
    for file in found.files:
        if sys.stdout.isatty():
            for line in file.patch.splitlines():
                click.echo(_coloured(line))
        else:
            sys.stdout.buffer.write(file.patch.encode())
    sys.stdout.flush()
    for file in found.files:
        if file.remark is not None:
            click.echo(f"petri: {file.change} {plain(file.path)}: {plain(file.remark)}", err=True)
    if found.left_out:
        click.echo(f"petri: {counted(found.left_out, 'more change')} left out", err=True)


def _coloured(line: str) -> str:
    # Spelt out: a file may hold what a terminal obeys.
    shown = line[:1] + plain(line[1:].replace("\t", "    ")) if line else ""
    if line.startswith("diff --git "):
        return click.style(shown, bold=True)
    for mark, colour in _COLOURS:
        if line.startswith(mark):
            return shown if colour is None else click.style(shown, fg=colour)
    return shown


def _print_stat(found: "DiffAnswer") -> None:
    most = max((file.added_lines + file.removed_lines for file in found.files), default=0)
    width = max((len(plain(file.path)) for file in found.files), default=0)
    for file in found.files:
        click.echo(f" {plain(file.path).ljust(width)} | {_told(file, most)}")
    added = sum(file.added_lines for file in found.files)
    removed = sum(file.removed_lines for file in found.files)
    count = len(found.files) + found.left_out
    click.echo(f" {count} changed, {counted(added, 'line')} added, {removed} removed")


def _told(file: "FileDiff", most: int) -> str:
    if not file.added_lines + file.removed_lines:
        sizes = [size(each) for each in (file.old_size, file.new_size) if each is not None]
        return f"{file.change}, {' -> '.join(sizes) or file.kind}"
    scale = min(1.0, _BAR / most)
    added = click.style("+" * round(file.added_lines * scale), fg="green")
    removed = click.style("-" * round(file.removed_lines * scale), fg="red")
    return f"{file.added_lines + file.removed_lines} {added}{removed}"


def _beginning(found: "BlameAnswer") -> str:
    if found.forked_from:
        return f"the sandbox {found.forked_from} it was forked from"
    return f"the snapshot {found.from_snapshot} it began with" if found.from_snapshot else "nothing on record"


def _fields(found: "BlameAnswer") -> list[tuple[str, object]]:
    by = found.by or _beginning(found)
    through = ", ".join(f"{_PASSAGES.get(each.kind, each.kind)} {age(each.at)} ago" for each in found.through)
    unsure = (
        f"{found.passed_over} later changes cannot be looked into any more" if found.passed_over else None
    )
    return [
        ("file", found.path),
        ("by", by),
        ("run", found.run_id),
        ("what", found.said),
        ("in", found.sandbox_id if found.through else None),
        ("came by", through),
        ("when", found.at and f"{found.at} ({age(found.at)} ago)"),
        ("created by", found.created_by),
        ("agent", found.agent),
        ("key", found.key_name),
        ("digest", found.digest),
        ("unsure", unsure),
    ]
