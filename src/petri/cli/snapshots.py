"""`petri snapshot`, `petri snapshots`, `petri restore`, `petri undo` and `petri fork`."""

import re
from typing import TYPE_CHECKING

import click

from petri.cli.options import connect, json_option, pair
from petri.cli.printing import age, plain, print_json, print_table

if TYPE_CHECKING:
    from petri.sdk import Client
    from petri.wire import RestoreAnswer


@click.command()
@click.argument("sandbox")
@click.option("--name", help="A name to find it by, besides its id.")
@json_option
def snapshot(sandbox: str, name: str | None, *, as_json: bool) -> None:
    """Keep the files of SANDBOX as they are now, and print the id they are kept under.

    Example: petri snapshot crawler --name before-refactoring
    """
    with connect() as petri:
        taken = petri.snapshot(petri.sandbox_id(sandbox), name=name)
    if as_json:
        print_json(taken)
    else:
        click.echo(taken.id)


@click.command()
@click.argument("sandbox", required=False)
@json_option
def snapshots(sandbox: str | None, *, as_json: bool) -> None:
    """List snapshots, newest first: those of SANDBOX, or all. `petri rm` deletes one by its id.

    Example: petri snapshots crawler
    """
    with connect() as petri:
        found = list(petri.snapshots(None if sandbox is None else petri.sandbox_id(sandbox)))
    if as_json:
        print_json(found)
    else:
        print_table(
            ("ID", "NAME", "SANDBOX", "TAKEN", "TREE"),
            [(s.id, s.name, s.sandbox_id, age(s.created_at), s.tree[:16]) for s in found],
        )


@click.command()
@click.argument("sandbox")
@click.argument("what")
@click.option("--after", is_flag=True, help="Of a run: what the files were when it had ended.")
@json_option
def restore(sandbox: str, what: str, *, after: bool, as_json: bool) -> None:
    """Have the files of SANDBOX be what they were: in a snapshot, before a run, or at a tree.

    WHAT is the id or the name of a snapshot, the id of a run, or the address of a tree.

    Example: petri restore crawler before-refactoring
    """
    with connect() as petri:
        done = _restore(petri, petri.sandbox_id(sandbox), what, after=after)
    _tell(done, what, as_json=as_json)


def _restore(petri: "Client", sandbox: str, what: str, *, after: bool) -> "RestoreAnswer":
    if what.startswith("run-"):
        return petri.restore(sandbox, run=what, side="after" if after else None)
    if after:
        raise click.UsageError("--after is for runs: a snapshot and a tree have no other side")
    if re.fullmatch("[0-9a-f]{64}", what):
        return petri.restore(sandbox, tree=what)
    return petri.restore(sandbox, snapshot=what)


@click.command()
@click.argument("sandbox")
@json_option
def undo(sandbox: str, *, as_json: bool) -> None:
    """Have the files of SANDBOX be what they were before the last run that changed them.

    Again, and they are what they were before the run before that. What was uploaded since goes with it.

    Example: petri undo crawler
    """
    with connect() as petri:
        done = petri.undo(petri.sandbox_id(sandbox))
    _tell(done, f"the moment before {done.run_id}", as_json=as_json)


def _tell(done: "RestoreAnswer", where: str, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        click.echo(f"the files are as at {where}; to come back: petri restore {done.sandbox_id} {done.was}")
        if done.packages_gone:
            back = f"petri restore {done.sandbox_id} {done.run_id} --after" if done.run_id else "pip install"
            click.echo(
                plain(f"no longer installed: {', '.join(done.packages_gone)}; to have it again: {back}")
            )
        if done.packages_back:
            click.echo(plain(f"installed again: {', '.join(done.packages_back)}"))


@click.command()
@click.argument("sandbox")
@click.option("-n", "count", type=click.IntRange(1, 16), default=1, help="How many.")
@click.option("--name", help="Its name; several are called NAME-1, NAME-2 and so on.")
@click.option("--metadata", type=pair, metavar="NAME=VALUE", multiple=True, help="Labels instead of its own.")
@json_option
def fork(
    sandbox: str, count: int, name: str | None, metadata: tuple[tuple[str, str], ...], *, as_json: bool
) -> None:
    """Make sandboxes with the files, limits and variables of SANDBOX, and print their ids.

    Example: petri fork crawler -n 4
    """
    with connect() as petri:
        made = petri.fork(petri.sandbox_id(sandbox), count, name=name, metadata=dict(metadata) or None)
    if as_json:
        print_json(made)
    else:
        click.echo("\n".join(child.id for child in made))
