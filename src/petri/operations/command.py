"""From what was asked to what is run: the words of a command, its folder, its variables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from petri.errors import Conflict, Invalid, InvalidField, NotFound, TooLarge, counted
from petri.model import Asker, Command, Form, Keep, Limits, Sandbox
from petri.operations import Host
from petri.operations.languages import PATH, Language

Dependencies = Literal["auto", "manifest-only", "off"]
Missing = Literal["report", "repeat", "continue"]
"""What becomes of a run that misses a module."""
WORKSPACE = "/workspace"
_SHOWN = 200
_MOST_WORDS = 8_000
"""A cell's `init` has room for twice as many, variables included."""
_MOST_BYTES = 1_500_000
"""Linux takes 2 MiB where the stack has its usual 8 MiB; each word costs a pointer and an end besides."""
_WORD_BYTES = 9
BASE_ENV = {
    "PATH": PATH,
    "HOME": WORKSPACE,
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
}
"""What every command finds, unless told otherwise. Unbuffered: output is watched while it comes."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a caller wants run: one of `filename`, `command` and `code`."""

    filename: str | None = None
    command: str | list[str] | None = None
    code: str | None = None
    language: str | None = None
    args: list[str] = field(default_factory=list)
    stdin: bytes = b""
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    timeout_s: float | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Those that are to be tighter than the sandbox's."""
    engine: str | None = None
    keep: Keep = "always"
    dependencies: Dependencies | None = None
    """How packages come to be installed for this run; the server's own rule if it is stricter."""
    missing: Missing = "report"
    asker: Asker = field(default_factory=Asker)


@dataclass(frozen=True, slots=True)
class Decided:
    """A command ready to run, and how to put it on record."""

    command: Command
    form: Form
    said: str
    language: str | None
    limits: Limits
    path: str | None = None
    """The file that is run, where one is, as a path of the workspace."""
    dependencies: Dependencies | None = None
    missing: Missing = "report"


_Words = tuple[tuple[str, ...], Form, str, str | None, str | None]
"""The words themselves, how they were given, as what, in which language, and which file they run."""


async def decide(host: Host, sandbox: Sandbox, ask: Ask) -> Decided:
    """Turn what was asked into a command, or say which field of it cannot be."""
    cwd = _folder(host, sandbox, ask.cwd)
    argv, form, said, language, path = await _words(host, sandbox, ask)
    env = {**BASE_ENV, "PWD": cwd, **sandbox.env, **ask.env}
    _refuse_too_much(argv, env)
    timeout_s = _timeout(host, sandbox, ask.timeout_s)
    command = Command(argv, cwd, timeout_s, env, ask.stdin)
    limits = _tightened(sandbox.limits, ask.limits)
    if limits.timeout_s != timeout_s:
        limits = replace(limits, timeout_s=timeout_s)
    return Decided(command, form, said, language, limits, path, ask.dependencies, ask.missing)


async def _words(host: Host, sandbox: Sandbox, ask: Ask) -> _Words:
    if ask.command is not None:
        if ask.language is not None:  # it changes nothing, but a wrong one is not to pass for a right one
            await host.languages.check(ask.language)
        return _by_command(ask.command, ask.args)
    if ask.code is not None:
        language = await host.languages.named(ask.language or sandbox.language)
        argv = (*language.by_code, ask.code, *language.after_code, *ask.args)
        return argv, "code", ask.code, language.name, None
    assert ask.filename is not None
    path = _file(host, sandbox, ask.filename)
    language = await _language(host, sandbox, ask, path)
    argv = (*language.by_file, _as_typed(path, ask.cwd), *ask.args)
    return argv, "filename", ask.filename, language.name, path


def _by_command(command: str | list[str], args: list[str]) -> _Words:
    if isinstance(command, str):
        return ("/bin/sh", "-c", command, "sh", *args), "command", command, None, None
    # Through a shell's `exec`, so that a missing program is an honest exit code 127.
    words = ("/bin/sh", "-c", 'exec "$@"', "sh", *command, *args)
    return words, "command", " ".join(command), None, None


async def _language(host: Host, sandbox: Sandbox, ask: Ask, path: str) -> Language:
    if ask.language is not None:
        return await host.languages.named(ask.language)
    return await host.languages.of_file(path, sandbox.language)


def _refuse_too_much(argv: tuple[str, ...], env: dict[str, str]) -> None:
    words = [*argv, *(f"{name}={value}" for name, value in env.items())]
    size = len("".join(words).encode()) + len(words) * _WORD_BYTES
    if len(argv) + 3 * len(env) > _MOST_WORDS or size > _MOST_BYTES:
        raise TooLarge(
            f"`command`, `args` and `env` come to {counted(len(argv), 'argument')} and {size} bytes; "
            f"a command takes {_MOST_WORDS} and {_MOST_BYTES} at most: send more by `stdin`, or in a file",
            field="args",
        )


def _as_typed(path: str, cwd: str | None) -> str:
    """Return the file's name as one would type it in the command's folder."""
    if cwd is not None:
        return f"{WORKSPACE}/{path}"
    return f"./{path}" if path.startswith("-") else path


def _file(host: Host, sandbox: Sandbox, filename: str) -> str:
    try:
        with _about("filename"):
            return host.workspaces.resolve_file(sandbox.id, filename)
    except NotFound:
        raise InvalidField(
            "filename", f"there is no file {_shown(filename)} in this sandbox; upload it, or list its files"
        ) from None
    except Conflict:
        raise InvalidField(
            "filename", f"{_shown(filename)} is not a regular file; name one, or say by `command` what to run"
        ) from None


@contextmanager
def _about(field: str) -> Iterator[None]:
    """Name the field whose path makes no sense: a request may have two."""
    try:
        yield
    except Invalid as error:
        raise Invalid(error.message, field=field) from error


def _folder(host: Host, sandbox: Sandbox, cwd: str | None) -> str:
    if cwd is None or cwd.rstrip("/") == WORKSPACE:
        return WORKSPACE
    path = cwd.removeprefix(f"{WORKSPACE}/")
    try:
        with _about("cwd"):
            inside = host.workspaces.resolve_folder(sandbox.id, path)
    except (NotFound, Conflict):
        raise InvalidField("cwd", f"there is no folder {_shown(cwd)} in this sandbox") from None
    return f"{WORKSPACE}/{inside}".rstrip("/")


def _shown(path: str) -> str:
    """Return `path` as an answer may show it: in quotes, odd characters escaped, not endless."""
    return repr(path if len(path) <= _SHOWN else path[:_SHOWN] + "…")


def _tightened(limits: Limits, asked: Mapping[str, Any]) -> Limits:
    """Return a sandbox's limits with those of one run: a run may have less, never more."""
    for name, value in asked.items():
        most = getattr(limits, name)
        if value > most:
            raise InvalidField(
                f"limits.{name}",
                f"a run may have {name} of {most} at most in this sandbox, not {value}; "
                "PATCH the sandbox to raise it",
            )
    return replace(limits, **asked) if asked else limits


def _timeout(host: Host, sandbox: Sandbox, asked_s: float | None) -> float:
    if asked_s is None:
        return sandbox.limits.timeout_s
    most_s = host.policy.most.timeout_s
    if asked_s > most_s:
        raise InvalidField(
            "timeout_s", f"a run may take {most_s} s at most here (PETRI_TIMEOUT_MAX_S), not {asked_s}"
        )
    return asked_s
