"""`petri env show`, `diff` and `export`: which packages runs have, and how to have them elsewhere."""

import sys
from typing import TYPE_CHECKING

import click

from petri.cli.options import connect, json_before, json_option
from petri.cli.printing import NOTHING, age, plain, print_fields, print_json, print_table, without

if TYPE_CHECKING:
    from petri.wire import EnvironmentAnswer

_MIB = 2**20
_CHANGED = 1
run_option = click.option("--run", "run_id", help="Of this run, not of the last that wanted packages.")


@click.group()
@json_before
def env() -> None:
    """Look at the packages that runs have.

    Example: petri env show crawler
    """


@env.command()
@click.argument("sandbox")
@run_option
@json_option
def show(sandbox: str, run_id: str | None, *, as_json: bool) -> None:
    """Show the packages that runs in SANDBOX have: versions, and who needs each.

    Example: petri env show crawler
    """
    found = _found(sandbox, run_id)
    if as_json:
        print_json(found)
        return
    print_fields(
        (
            ("environment", found.environment or _none(found)),
            ("decided by", found.why or found.source),
            ("size", f"{found.size_bytes / _MIB:.1f} MiB" if found.packages else None),
            ("built", f"{age(found.built_at)} ago" if found.built_at else None),
        )
    )
    if found.packages:
        print_table(
            ("PACKAGE", "VERSION", "NEEDED BY"),
            [(each.name, each.version, ", ".join(each.needed_by)) for each in found.packages],
        )
    for package in found.packages:
        if package.built_from is not None:
            click.echo(plain(f"built in a cell: {package.name} {package.version} from {package.built_from}"))
    for names, why in without(found.not_installed):
        click.echo(plain(f"not installed: {names}: {why}"))


@env.command()
@click.argument("one")
@click.argument("other")
@json_option
def diff(one: str, other: str, *, as_json: bool) -> None:
    """Say in which packages two sandboxes differ; exits 1 if they do.

    Example: petri env diff crawler crawler-2
    """
    before, after = (_versions(_found(each, None)) for each in (one, other))
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    rows = [(name, before.get(name), after.get(name)) for name in changed]
    if as_json:
        print_json({name: {"one": theirs, "other": others} for name, theirs, others in rows})
    elif rows:
        print_table(("PACKAGE", one, other), [(name, a or NOTHING, b or NOTHING) for name, a, b in rows])
    sys.exit(_CHANGED if rows else 0)


@env.command()
@click.argument("sandbox")
@run_option
@json_option
def export(sandbox: str, run_id: str | None, *, as_json: bool) -> None:
    """Print a lock, with versions and hashes, that rebuilds the packages of SANDBOX elsewhere.

    Example: petri env export crawler > requirements.txt && pip install --require-hashes -r requirements.txt
    """
    found = _found(sandbox, run_id)
    if as_json:
        print_json({"environment": found.environment, "lock": found.lock})
    else:
        click.echo(found.lock, nl=False)
        if not found.lock:
            click.echo(plain(f"petri: {sandbox} has no packages, and so the lock is empty"), err=True)


def _none(found: "EnvironmentAnswer") -> str:
    if found.not_installed:
        return "none: what is wanted could not be had"
    return "none: nothing that ran here wanted packages"


def _found(sandbox: str, run_id: str | None) -> "EnvironmentAnswer":
    with connect() as petri:
        return petri.environment(petri.sandbox_id(sandbox), run=run_id)


def _versions(found: "EnvironmentAnswer") -> dict[str, str]:
    return {each.name: each.version for each in found.packages}
