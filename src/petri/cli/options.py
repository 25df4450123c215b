"""Options that several commands share, and the words their values are written in."""

import functools
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from petri.sdk import Client, Command, Limits

Function = Callable[..., Any]

_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def connect(*, retries: int = 3) -> "Client":
    """Return a client for the server that the environment names."""
    from petri.sdk import Client  # on use: it brings httpx and pydantic, a quarter of a second

    return Client(retries=retries)


def duration(text: str) -> float:
    """Read `90`, `30m` or `2h` as seconds."""
    return _quantity(text, _SECONDS, "90, 30m or 2h")


def size(text: str) -> int:
    """Read `512m` or `2g` as bytes."""
    return int(_quantity(text, _BYTES, "512m or 2g"))


def pair(text: str) -> tuple[str, str]:
    """Read `NAME=VALUE`."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def _quantity(text: str, units: dict[str, int], example: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]*)", text.lower())
    if found is None or found[2] not in units:
        raise click.BadParameter(f"{text!r} is none; write it like {example}")
    return float(found[1]) * units[found[2]]


_LIMITS: tuple[tuple[str, str, Callable[[str], float], str], ...] = (
    ("--cpus", "cpus", float, "Processors a run may use, such as 0.5."),
    ("--memory", "memory_bytes", size, "Memory of a run, such as 512m."),
    ("--processes", "processes", int, "Processes and threads of a run at one time."),
    ("--timeout", "timeout_s", duration, "Time of a run that names no limit of its own."),
    ("--open-files", "open_files", int, "Files that a process may have open."),
    ("--disk", "disk_bytes", size, "Disk space of the workspace, such as 2g."),
    ("--files", "inodes", int, "Files, folders and links in the workspace."),
    ("--tmp", "tmp_bytes", size, "Size of /tmp, and once more of /dev/shm; both are memory."),
    ("--output", "output_bytes", size, "What is kept of each output stream of a run."),
)
"""Each limit by its option, its name in the API, how it is written, and what it bounds."""

_SPEAKS_JSON = "petri.json"
"""Where it is noted that `--json` was given before a command's name."""


def _or_before(context: click.Context, _: click.Parameter, given: bool) -> bool:  # noqa: FBT001 - click's
    return given or speaks_json(context)


def _note(context: click.Context, _: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's
    if given:
        context.meta[_SPEAKS_JSON] = True


def speaks_json(context: click.Context) -> bool:
    """Say whether `--json` was given before the name of the command, or of its group."""
    return _SPEAKS_JSON in context.meta


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_or_before, help="Print one line that a program can read."
)
json_before = click.option(
    "--json", is_flag=True, callback=_note, expose_value=False, help="As behind the command's name."
)
"""For those who write it first: `petri --json ls`."""


def limit_options(function: Function) -> Function:
    """Add the options that bound a sandbox's runs; they arrive together, as `limits`."""

    @functools.wraps(function)
    def gathered(**given: Any) -> Any:
        asked = {limit: given.pop(limit) for _, limit, _, _ in _LIMITS}
        limits = cast("Limits", {limit: value for limit, value in asked.items() if value is not None})
        return function(limits=limits or None, **given)

    for option, limit, kind, says in reversed(_LIMITS):
        gathered = click.option(option, limit, type=kind, help=says)(gathered)
    return gathered


def how_options(function: Function) -> Function:
    """Add the options that say how to run something; they arrive together, as `how`."""

    @click.option(
        "-e",
        "--env",
        type=pair,
        metavar="NAME=VALUE",
        multiple=True,
        help="A variable; may be given many times.",
    )
    @click.option("--cwd", help="The folder of the workspace to run in. Default: its top.")
    @click.option("--timeout", type=duration, help="Stop the run after this long, such as 90 or 30m.")
    @click.option("--language", help="The language of the code, where its file does not say.")
    @click.option(
        "--dependencies",
        type=click.Choice(("auto", "manifest-only", "off")),
        help="Which packages are installed for it. Default: as the server is set up.",
    )
    @click.option(
        "--missing",
        type=click.Choice(("report", "repeat", "continue")),
        help="When a module turns out to be missing: tell, run it once more with it, or go on with it.",
    )
    @click.option("-i", "--stdin", "reads", is_flag=True, help="Pass our standard input on to it.")
    @functools.wraps(function)
    def gathered(
        env: tuple[tuple[str, str], ...],
        cwd: str | None,
        timeout: float | None,
        language: str | None,
        *,
        reads: bool,
        **rest: Any,
    ) -> Any:
        how: Command = {
            "env": dict(env),
            "cwd": cwd,
            "timeout_s": timeout,
            "language": language,
            "dependencies": rest.pop("dependencies"),
            "missing": rest.pop("missing"),
            "stdin": _standard_input() if reads else None,
        }
        return function(how=how, **rest)

    return gathered


def _standard_input() -> str:
    if sys.stdin.isatty():
        raise click.UsageError("-i needs a file or a pipe on standard input: a run cannot be typed into yet")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise click.UsageError(
            "standard input is not UTF-8 text; copy it with `petri cp - SANDBOX:PATH` and read it from there"
        ) from None
