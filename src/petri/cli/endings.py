"""How every command fails: one sentence on stderr, and an exit code that says whose failure it was."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from petri.cli.plain import plain
from petri.errors import PetriError

COULD_NOT_RUN = 125
"""Petri failed, not the command it was to run; as `docker run` and `timeout` have it."""
INTERRUPTED = 130
NOBODY_READS = 141
"""What a shell shows for a program that SIGPIPE ended."""


@contextmanager
def failing_alike() -> Iterator[None]:
    """Turn whatever fails in here into an exit."""
    try:
        yield
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


def _give_up(sentence: str) -> NoReturn:
    sys.stderr.write(f"petri: {plain(sentence)}\n")
    sys.exit(COULD_NOT_RUN)


def _forget_stdout() -> None:
    # The interpreter flushes stdout on its way out, and would complain there once more.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
