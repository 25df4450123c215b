"""`petri env show`, `diff` and `export`: which packages runs have, and how to have them elsewhere."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from petri.cli.options import connect, json_before, json_option
from petri.cli.printing import NOTHING, age, plain, print_fields, print_json, print_table, without

if TYPE_CHECKING:
    from petri.wire import EnvironmentAnswer

_MIB = 2**20
_CHANGED = 1
_FILES = frozenset(("requirements.txt", "package.json", "package-lock.json", "bun.lock"))
"""That an export may consist of: whatever a server says, no other is written."""
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
@click.option(
    "--to", "folder", type=click.Path(file_okay=False, path_type=Path), help="Write it there, as files."
)
@json_option
def export(sandbox: str, run_id: str | None, folder: Path | None, *, as_json: bool) -> None:
    """Print a lock, with versions and hashes, that rebuilds the packages of SANDBOX elsewhere.

    With --to it is files: requirements.txt for Python; package.json for JavaScript, with package-lock.json
    for `npm ci` and bun.lock for `bun install --frozen-lockfile`.

    Example: petri env export crawler > requirements.txt && pip install --require-hashes -r requirements.txt
             petri env export site --to elsewhere && cd elsewhere && npm ci --ignore-scripts
    """
    found = _found(sandbox, run_id)
    if folder is not None:
        _write(folder, found.files)
    if as_json:
        print_json({"environment": found.environment, "lock": found.lock, "files": found.files})
    elif folder is None:
        click.echo(found.lock, nl=False)
    if not found.lock:
        click.echo(plain(f"petri: {sandbox} has no packages, and so the lock is empty"), err=True)
    elif folder is None and not as_json and "package.json" in found.files:
        click.echo("petri: JavaScript takes more than this lock; --to DIR writes all of it", err=True)


def _write(folder: Path, files: dict[str, str]) -> None:
    """Have files in a folder; none that is there is written over."""
    named = [name for name in files if name in _FILES]
    if there := [name for name in named if (folder / name).exists() or (folder / name).is_symlink()]:
        raise click.UsageError(plain(f"{folder / there[0]} exists, and is not written over"))
    folder.mkdir(parents=True, exist_ok=True)
    for name in named:
        with (folder / name).open("x", encoding="utf-8") as out:
            out.write(files[name])


def _none(found: "EnvironmentAnswer") -> str:
    if found.not_installed:
        return "none: what is wanted could not be had"
    return "none: nothing that ran here wanted packages"


def _found(sandbox: str, run_id: str | None) -> "EnvironmentAnswer":
    with connect() as petri:
        return petri.environment(petri.sandbox_id(sandbox), run=run_id)


def _versions(found: "EnvironmentAnswer") -> dict[str, str]:
    return {each.name: each.version for each in found.packages}
