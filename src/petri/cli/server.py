"""`petri serve` and `petri doctor`: the two commands that may run without a server."""

import sys
from typing import TYPE_CHECKING

import click

from petri.cli.options import connect, json_option, speaks_json
from petri.cli.printing import plain, print_json
from petri.errors import Unavailable

if TYPE_CHECKING:
    from petri.wire import LayerAnswer


@click.command()
@click.pass_context
def serve(context: click.Context) -> None:
    """Serve the HTTP API on PETRI_HOST:PETRI_PORT (127.0.0.1:8000) until told to stop.

    Example: PETRI_PORT=9000 petri serve
    """
    if speaks_json(context):
        raise click.UsageError("`petri serve` has no --json: what it says is for people, on stderr")
    from petri.app import serve as serve_for_ever

    serve_for_ever()


@click.command()
@json_option
def doctor(*, as_json: bool) -> None:
    """Say what protects this host, and what would switch on the rest. Exits 1 if something is off.

    Asks the server at PETRI_URL if one answers, else looks for itself.

    Example: petri doctor
    """
    said, layers = _layers()
    if as_json:
        print_json({"asked": said, "layers": [layer.model_dump(mode="json") for layer in layers]})
    else:
        click.echo(f"{said}:")
        for layer in layers:
            _print_layer(layer)
    sys.exit(0 if all(layer.on for layer in layers) else 1)


def _layers() -> tuple[str, "list[LayerAnswer]"]:
    try:
        with connect() as petri:
            return f"the server at {petri.url}", petri.health().layers
    except Unavailable:
        from petri.app import inspect_host

        return "this host (no server is running)", inspect_host()


def _print_layer(layer: "LayerAnswer") -> None:
    mark = click.style("on ", fg="green") if layer.on else click.style("OFF", fg="red")
    click.echo(f"  {mark}  {plain(layer.name)}: {plain(layer.says)}")
    if layer.remedy:
        click.echo(f"       {'stronger' if layer.on else 'try'}: {plain(layer.remedy)}")
