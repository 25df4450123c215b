"""The `petri` command: parse, ask the SDK, print, exit. A rule found in here belongs in an operation.

Nothing heavy is imported until a command runs, so that `petri --help` is there at once; and to sync a folder
that has not changed, not even what reads a command line is.

Imported by: nobody. Imports: `petri.sdk`, `petri.errors`; `petri.app` for `serve` and `doctor` alone, and
`petri.home` for `keys`, `tenants` and `fsck` where no server runs.
"""

import sys
from typing import TYPE_CHECKING

from petri.cli.endings import COULD_NOT_RUN as COULD_NOT_RUN
from petri.cli.endings import INTERRUPTED as INTERRUPTED
from petri.cli.endings import NOBODY_READS as NOBODY_READS
from petri.cli.quick import quickly

if TYPE_CHECKING:
    from petri.cli.commands import main as main


def start() -> None:
    """Be the program `petri`."""
    if not quickly(sys.argv[1:]):
        from petri.cli.commands import main  # on use: click takes as long to load as a whole sync

        main()


def __getattr__(name: str) -> object:
    if name == "main":
        from petri.cli.commands import main

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
