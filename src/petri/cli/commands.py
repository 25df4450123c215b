"""Every command of `petri`, and what they have in common."""

from typing import Any

import click

from petri import __version__
from petri.cli.access import keys, tenants
from petri.cli.diffs import blame, diff
from petri.cli.endings import failing_alike
from petri.cli.environments import env
from petri.cli.files import cp
from petri.cli.folder_commands import pull, push, sync, watch
from petri.cli.options import json_before
from petri.cli.races import merge, race
from petri.cli.runs import exec_, logs, run, runs
from petri.cli.sandboxes import create, ls, rm, show
from petri.cli.server import doctor, serve
from petri.cli.snapshots import fork, restore, snapshot, snapshots, undo
from petri.cli.store import fsck


class _Petri(click.Group):
    """Every command fails alike: one sentence on stderr."""

    def invoke(self, ctx: click.Context) -> Any:
        with failing_alike():
            return super().invoke(ctx)


@click.group(cls=_Petri, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="petri")
@json_before
def main() -> None:
    """Run code in sandboxes whose files stay.

    The server is the one at PETRI_URL (default http://127.0.0.1:8000), asked with PETRI_API_KEY if set.
    Wherever a SANDBOX is wanted, its id or its name will do.

    Example: petri run main.py
    """


for command in (
    *(serve, doctor, create, ls, show, rm, cp, exec_, run, runs, logs, keys, tenants),
    *(push, pull, sync, watch),
    *(snapshot, snapshots, restore, undo, fork, diff, blame, merge, race, fsck, env),
):
    main.add_command(command)
