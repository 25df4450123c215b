"""A Python that is started before its command is known: with what, and what it can go on with. Pure."""

from collections.abc import Mapping

from petri.engine import Ahead
from petri.engine.confine import WORKSPACE
from petri.model import Command

HOOK = "/etc/petri/python"
"""Where a cell's Python finds `sitecustomize.py`, if it is started ahead."""
ENV: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": HOOK,
}
"""What it is started with. No home: another run may write to the workspace at this moment, and a Python that
started with its home there would run what lies in `.local`, with no run on record."""
_MUST_BE = ("LANG", "PYTHONUNBUFFERED")
_READ_AT_START = (
    "PYTHON",
    "LD_",
    "LC_",
    "LANG",
    "LOCPATH",
    "NLSPATH",
    "GCONV_",
    "MALLOC_",
    "GLIBC_",
    "TZ",
    "__PYVENV",
)
"""Variables that an interpreter, or the C library under it, reads once, when it starts."""
_MOST_FILENAME, _MOST_CODE = 1_000, 4_000
"""Characters there is room for in its own memory; see `cell/python/sitecustomize.py`."""


def words(ahead: Ahead) -> tuple[str, ...]:
    """Return the words it is started with: there is room in the last one for what comes."""
    if ahead.form == "code":
        return (ahead.interpreter, "-c", "#petri-parked" + "." * _MOST_CODE)
    return (ahead.interpreter, "petri-parked" + "." * _MOST_FILENAME)


def suits(ahead: Ahead, command: Command) -> bool:
    """Say whether `command` is one that it can go on with, exactly as if it were started now.

    For any other it makes way: it becomes that command by exec.
    """
    return (
        command.argv[0] == ahead.interpreter
        and _has_room(ahead, command.argv[1:])
        and (ahead.form == "code" or _is_found(command))
        and all(command.env.get(name) == ENV[name] for name in _MUST_BE)
        and not any(name.startswith(_READ_AT_START) for name in command.env if name not in _MUST_BE)
    )


def _is_found(command: Command) -> bool:
    """Say whether the name of a file means the same in the folder that the interpreter was started in."""
    return command.cwd == WORKSPACE or command.argv[1].startswith("/")


def _has_room(ahead: Ahead, words: tuple[str, ...]) -> bool:
    if not words:
        return False
    if ahead.form == "code":
        return words[0] == "-c" and len(words) > 1 and len(words[1]) <= _MOST_CODE
    # What begins with a dash or a dot Python would take otherwise, or write otherwise.
    return not words[0].startswith(("-", ".")) and len(words[0]) <= _MOST_FILENAME
