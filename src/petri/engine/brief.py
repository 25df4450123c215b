"""What a cell is told once its command is known: words for `cell/init.c` and `cell/python/sitecustomize.py`.

Pure. A cell is made before its command is known, so nothing of a command is in the arguments of bubblewrap.
"""

import os
import struct

from petri.engine import Ahead
from petri.engine.ahead import suits
from petri.model import Command

_HAS_INPUT, _IS_FOR_PROGRAM = 1, 2
BEGUN = b"S"
"""What `init` puts over the beginning of a brief once its command is about to start."""
_NOT_BEGUN = 0
_HEAD = struct.Struct("<IIIII")
_WORD = struct.Struct("<cQ")


def brief(command: Command, ahead: Ahead | None = None) -> bytes:
    """Return what a cell is told of its command, given what was started in it ahead."""
    flags = _HAS_INPUT if command.stdin else 0
    if ahead is not None and suits(ahead, command):
        flags |= _IS_FOR_PROGRAM
    variables = [f"{name}={value}" for name, value in command.env.items()]
    text = os.fsencode("\0".join([command.cwd, *command.argv, *variables]) + "\0")
    return _HEAD.pack(_NOT_BEGUN, len(text), flags, len(command.argv), len(variables)) + text


READ_IT = _WORD.pack(b"B", 0)
"""Says that the brief is there: whoever was started ahead may read it, and then waits for the word."""


def word(file_bytes: int | None) -> bytes:
    """Return the word that lets a command start; no file of it may become larger than `file_bytes`."""
    return _WORD.pack(b"G", file_bytes or 0)
