"""`petri push`, `pull`, `sync`, `watch`."""

import sys
from typing import TYPE_CHECKING, Any

import click

from petri.cli.options import Function, json_option

if TYPE_CHECKING:
    from petri.sdk import Mode, Prefer


def _options(function: Function) -> Function:
    for option in (
        json_option,
        click.option("--dry-run", is_flag=True, help="Say what would move, and move nothing."),
        click.option(
            "--prefer",
            type=click.Choice(["local", "sandbox"]),
            help="Whose version of a path counts that both changed; the other one stays beside it.",
        ),
    ):
        function = option(function)
    return function


@click.command()
@click.argument("folder", metavar="DIR")
@click.argument("sandbox")
@_options
def push(folder: str, sandbox: str, **options: Any) -> None:
    """Send what changed in DIR to SANDBOX; all of it appears there at once, or nothing.

    Only changes travel: a rename is a line, a kilobyte changed in a large file is a kilobyte. What
    .gitignore and .petriignore name is left out. Exits 1, with nothing sent, if the sandbox changed the
    same paths; `--prefer local` then keeps its versions beside ours.

    Example: petri push . crawler
    """
    _exchange("push", folder, sandbox, **options)


@click.command()
@click.argument("sandbox")
@click.argument("folder", metavar="DIR")
@_options
def pull(sandbox: str, folder: str, **options: Any) -> None:
    """Bring what runs changed in SANDBOX to DIR, which is made if it is not there.

    A path that changed here too is left alone and told, and the command exits 1; `--prefer sandbox` takes
    the sandbox's version and keeps ours beside it.

    Example: petri pull crawler results
    """
    _exchange("pull", folder, sandbox, **options)


@click.command()
@click.argument("folder", metavar="DIR")
@click.argument("sandbox")
@_options
def sync(folder: str, sandbox: str, **options: Any) -> None:
    """Send what changed in DIR and bring what changed in SANDBOX, in one request.

    A path that both changed is a conflict: it is told, stays as it was on both sides, and the command exits
    1. With `--prefer`, that side's version counts and the other one stays beside it.

    Example: petri sync . crawler --prefer local
    """
    _exchange("sync", folder, sandbox, **options)


@click.command()
@click.argument("folder", metavar="DIR")
@click.argument("sandbox")
@click.option(
    "--prefer",
    type=click.Choice(["local", "sandbox"]),
    help="Whose version of a path counts that both changed; the other one stays beside it.",
)
@json_option
def watch(folder: str, sandbox: str, prefer: "Prefer | None", *, as_json: bool) -> None:
    """Keep DIR and SANDBOX in step until Ctrl-C: what is saved in DIR is there in a moment.

    Prints each time something moves. A server that is away is waited for.

    Example: petri watch . crawler
    """
    from petri.cli import folders  # on use, as all of the SDK

    folders.watch(folder, sandbox, prefer, as_json=as_json)


def _exchange(mode: "Mode", folder: str, sandbox: str, **options: Any) -> None:
    from petri.cli.folders import Asked, exchange  # on use, as all of the SDK

    sys.exit(exchange(Asked(mode, folder, sandbox, **options)))
