"""The pip that a virtual environment has of its own: what it would fetch, the server installs.

pip starts the interpreter that `PIP_PYTHON` names instead of going on itself, with its own runner as the
first word. That is this: it does what is `install`ed from an index, and leaves all else to that pip.
"""

import os

from petri.cell.tools import pip

_STAYS_HERE = frozenset(("--no-index", "-t", "--target", "--prefix", "--root"))
"""Whoever says these wants no index, or another place: pip's own business."""


def main(argv: list[str]) -> int:
    """Do what was typed; return the exit code."""
    runner, words = argv[1], argv[2:]
    venv = pip.venv_of(os.path.dirname(os.path.dirname(runner)))
    if not _is_from_an_index(words):
        python = f"{venv}/bin/python3" if venv else "/usr/bin/python3"
        os.execv(python, [python, runner, *words])
    return pip.main(["pip", *words], venv)


def _is_from_an_index(words: list[str]) -> bool:
    verb = next((word for word in words if not word.startswith("-")), "")
    if verb != "install" or any(word.partition("=")[0] in _STAYS_HERE for word in words):
        return False
    try:
        return bool(pip.wanted(words[words.index(verb) + 1 :], is_files=False))
    except (OSError, ValueError):
        return False
