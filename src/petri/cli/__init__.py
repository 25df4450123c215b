"""The `petri` command: parse, ask the SDK, print, exit. A rule found in here belongs in an operation.

Nothing heavy is imported until a command runs, so that `petri --help` is there at once.

Imported by: nobody. Imports: `petri.sdk`, `petri.errors`; `petri.app` for `serve` and `doctor` alone, and
`petri.home` for `keys` and `tenants` where no server runs.
"""

import os
import sys
from typing import Any, NoReturn

import click

from petri import __version__
from petri.cli.access import keys, tenants
from petri.cli.files import cp
from petri.cli.printing import plain
from petri.cli.runs import exec_, logs, run, runs
from petri.cli.sandboxes import create, ls, rm, show
from petri.cli.server import doctor, serve
from petri.errors import PetriError

COULD_NOT_RUN = 125
"""Petri failed, not the command it was to run; as `docker run` and `timeout` have it."""
INTERRUPTED = 130
NOBODY_READS = 141
"""What a shell shows for a program that SIGPIPE ended."""


class _Petri(click.Group):
    """Every command fails alike: one sentence on stderr."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except PetriError as error:
            _give_up(error.message)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            _forget_stdout()
            sys.exit(NOBODY_READS)
        except OSError as error:
            _give_up(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return result


def _give_up(sentence: str) -> NoReturn:
    click.echo(f"petri: {plain(sentence)}", err=True)
    sys.exit(COULD_NOT_RUN)


def _forget_stdout() -> None:
    # The interpreter flushes stdout on its way out, and would complain there once more.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@click.group(cls=_Petri, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="petri")
def main() -> None:
    """Run code in sandboxes whose files stay.

    The server is the one at PETRI_URL (default http://127.0.0.1:8000), asked with PETRI_API_KEY if set.
    Wherever a SANDBOX is wanted, its id or its name will do.

    Example: petri run main.py
    """


for command in (serve, doctor, create, ls, show, rm, cp, exec_, run, runs, logs, keys, tenants):
    main.add_command(command)
