"""What is about to be run: from a file, code or the words of a command to programs in a language."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from petri.environment.needs.bounds import MOST_SOURCE_BYTES
from petri.environment.needs.nouns import Ask, Because, Code, File, Words
from petri.environment.needs.project import Project, parent, within
from petri.environment.needs.shell import Command, commands, unwrapped
from petri.environment.needs.tools import TOOLS

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ash"))
_NODE = frozenset(("node", "nodejs", "tsx", "ts-node", "bun"))
_NODE_TOOLS = frozenset(("npm", "npx", "yarn", "pnpm", "bunx"))
_JAVASCRIPT = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx")
_TAKES_A_WORD = frozenset(
    ("-W", "-X", "--check-hash-based-pycs", "-r", "--require", "--import", "--loader", "--env-file")
)
_DEEPEST = 4
"""Scripts that start scripts."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program in one language."""

    language: Literal["python", "javascript", "bash"]
    folder: str
    """Where it is started."""
    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    code: str | None = None
    tests: tuple[str, ...] | None = None
    """For a run of tests: the files and folders named, none for wherever tests are."""
    tools: tuple[tuple[str, Because], ...] = ()
    """Distributions whose own command is typed."""
    command: Command | None = None
    """For a program that is in no language of ours: its words."""
    asks: bool = False
    """It is an installer of packages."""


def programs(project: Project, ask: Ask) -> list[Program]:
    """Return what `ask` would run, in order."""
    language = "javascript" if ask.language == "typescript" else ask.language
    match ask.entry:
        case Words(argv):
            return list(_from_words(project, argv, ask.folder, "", 0))
        case Code(text) if language == "bash":
            return list(_from_shell(project, text, ask.folder, "", 0))
        case Code(text):
            return [Program(language, ask.folder, code=text)]
        case File(path) if language == "bash":
            return list(_from_script(project, path, ask.folder, 0))
        case File(path):
            return [Program(language, ask.folder, files=(path,))]


def _from_script(project: Project, path: str, folder: str, depth: int) -> Iterator[Program]:
    content = project.reader.read(path, MOST_SOURCE_BYTES)
    if content is not None and depth < _DEEPEST:
        yield from _from_shell(project, content.decode(errors="replace"), folder, path, depth + 1)


def _from_shell(project: Project, text: str, folder: str, path: str, depth: int) -> Iterator[Program]:
    for command in commands(text):
        words = unwrapped(command.words)
        if words[:1] == ("cd",) and len(words) == 2:
            folder = _elsewhere(folder, words[1])
        else:
            yield from _from_command(project, command, folder, path, depth)


def _from_command(
    project: Project, command: Command, folder: str, path: str, depth: int
) -> Iterator[Program]:
    if words := unwrapped(command.words):
        found = list(_from_words(project, words, folder, path, depth + 1))
        yield from found or [Program("bash", folder, command=replace(command, words=words))]


def _elsewhere(folder: str, named: str) -> str:
    inner = within(folder, named)
    return folder if inner is None else inner


def _from_words(
    project: Project, argv: tuple[str, ...], folder: str, path: str, depth: int
) -> Iterator[Program]:
    argv = unwrapped(argv)
    if not argv or depth > _DEEPEST:
        return
    name = argv[0].rpartition("/")[2]
    because = Because(path, None, " ".join(argv)[:200])
    if name in _SHELLS:
        yield from _from_shell_words(project, argv, folder, depth)
    elif name in ("uv", "poetry", "pipenv", "pdm", "hatch") and argv[1:2] == ("run",):
        yield from _run_by_tool(project, argv, folder, path, depth)
    elif _PYTHON.fullmatch(name):
        yield from _python(argv[1:], folder, because)
    elif name in TOOLS:
        yield from _tool(name, argv[1:], folder, because)
    elif name in _NODE:
        yield from _node(argv[1:], folder)
    elif name in _NODE_TOOLS:
        yield Program("javascript", folder, asks=True)
    elif (file := within(folder, argv[0])) is not None and argv[0].endswith((".py", ".sh", *_JAVASCRIPT)):
        yield from _by_ending(project, file, folder, depth)


def _run_by_tool(
    project: Project, argv: tuple[str, ...], folder: str, path: str, depth: int
) -> Iterator[Program]:
    rest = argv[2:]
    while rest[:1] and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in ("--with", "--python", "-p", "--group", "--extra") else rest[1:]
    if rest[:1] and rest[0].endswith(".py"):
        rest = ("python", *rest)
    yield from _from_words(project, rest, folder, path, depth + 1)


def _by_ending(project: Project, file: str, folder: str, depth: int) -> Iterator[Program]:
    if file.endswith(".sh"):
        yield from _from_script(project, file, folder, depth)
    else:
        yield Program("python" if file.endswith(".py") else "javascript", folder, files=(file,))


def _from_shell_words(project: Project, argv: tuple[str, ...], folder: str, depth: int) -> Iterator[Program]:
    for index, word in enumerate(argv[1:], 1):
        if word.startswith("-") and word.endswith("c") and len(argv) > index + 1:
            text, rest = argv[index + 1], argv[index + 3 :]
            if text.strip() == 'exec "$@"':
                yield from _from_command(project, Command(rest, 1), folder, "", depth)
            else:
                yield from _from_shell(project, text, folder, "", depth)
            return
        if not word.startswith(("-", "+")):
            if (file := within(folder, word)) is not None:
                yield from _from_script(project, file, folder, depth)
            return


def _python(words: tuple[str, ...], folder: str, because: Because) -> Iterator[Program]:
    while words:
        word, words = words[0], words[1:]
        if word in _TAKES_A_WORD:
            words = words[1:]
        elif not word.startswith("-"):
            if (file := within(folder, word)) is not None:
                yield Program("python", folder, files=(file,))
            return
        elif not word.startswith("--") and (flag := re.fullmatch(r"-\w*?([cm])(.*)", word, re.DOTALL)):
            said = flag[2] or (words[0] if words else "")
            rest = words if flag[2] else words[1:]
            yield from (
                _module(said, rest, folder, because)
                if flag[1] == "m"
                else [Program("python", folder, code=said)]
            )
            return


def _module(module: str, rest: tuple[str, ...], folder: str, because: Because) -> Iterator[Program]:
    if module == "unittest":
        yield Program("python", folder, tests=_paths(rest, folder))
    elif module in ("pip", "uv"):
        yield Program("python", folder, asks=True)
    elif module in TOOLS:
        yield from _tool(module, rest, folder, because)
    elif re.fullmatch(r"[\w.]{1,400}", module):
        yield Program("python", folder, modules=(module, f"{module}.__main__"))


def _tool(name: str, rest: tuple[str, ...], folder: str, because: Because) -> Iterator[Program]:
    """Yield the program that a command of some distribution's runs, besides the distribution itself."""
    tool = TOOLS[name]
    tools = ((tool.distribution, because),)
    if tool.runs == "tests":
        yield Program("python", folder, tests=_paths(rest, folder), tools=tools)
    elif tool.runs == "a file":
        files = [file for word in rest if word.endswith(".py") and (file := within(folder, word)) is not None]
        yield Program("python", folder, files=tuple(files[:1]), tools=tools)
    elif tool.runs == "a module":
        named = [word.partition(":")[0] for word in rest if re.fullmatch(r"[A-Za-z_][\w.]*:[\w.()]+", word)]
        yield Program("python", folder, modules=tuple(named[:1]), tools=tools)
    else:
        yield Program("python", folder, tools=tools)


def _paths(rest: tuple[str, ...], folder: str) -> tuple[str, ...]:
    found = [within(folder, word.partition("::")[0]) for word in rest if not word.startswith("-")]
    return tuple(path for path in found if path)


def _node(words: tuple[str, ...], folder: str) -> Iterator[Program]:
    while words:
        word, words = words[0], words[1:]
        if word in ("-e", "--eval", "-p", "--print") and words:
            yield Program("javascript", folder, code=words[0])
            return
        if word in _TAKES_A_WORD:
            words = words[1:]
        elif not word.startswith("-"):
            if (file := within(folder, word)) is not None:
                yield Program("javascript", folder, files=(file,))
            return


def home(program: Program) -> str:
    """Return the folder whose manifest speaks for a program: where its file is, or where it is started."""
    return parent(program.files[0]) if program.files else program.folder
