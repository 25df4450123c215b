"""What this host can run: which languages, found by asking inside a cell."""

import asyncio
import re
from dataclasses import dataclass

from petri.engine import Engine, Leash, Place
from petri.errors import InvalidField, Unavailable
from petri.model import Command, Limits, Stream
from petri.threads import in_own_thread
from petri.workspace import Workspaces

PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where programs are looked for inside a cell."""
NAMES = ("python", "javascript", "typescript", "bash")
_SCRATCH = "languages"
_NODE_STRIPS_TYPES = (22, 6)
_NODE_STRIPS_BY_ITSELF = ((22, 18), (23, 6))
"""From 22.6 behind a flag; without one from 22.18 in the old line and 23.6 in the new."""
_PROBE = """
for program in python3 node bash; do
    path=$(command -v "$program") || continue
    printf '%s\\t%s\\t%s\\n' "$program" "$path" "$("$program" --version 2>&1 | head -n 1)"
done
exit 0
"""


@dataclass(frozen=True, slots=True)
class Language:
    """A language and how to run it here, or what it lacks."""

    name: str
    endings: tuple[str, ...]
    by_file: tuple[str, ...] = ()
    """The words before the file's name."""
    by_code: tuple[str, ...] = ()
    """The words before the source text."""
    after_code: tuple[str, ...] = ()
    """The words between the source text and its arguments."""
    version: str | None = None
    needs: str | None = None


class Languages:
    """What the host offers; asked once, when somebody first needs to know."""

    def __init__(self, engine: Engine, workspaces: Workspaces, owner: int | None, limits: Limits) -> None:
        self._engine = engine
        self._workspaces = workspaces
        self._owner = owner
        self._limits = limits
        self._asking = asyncio.Lock()
        self._known: dict[str, Language] | None = None

    async def all(self) -> dict[str, Language]:
        """Return every language Petri knows, available here or not."""
        async with self._asking:
            if self._known is None:
                self._known = _decide(await self._probe())
            return self._known

    async def check(self, name: str) -> None:
        """Refuse a language a sandbox cannot have. Where nothing can be run now, any known one may be."""
        try:
            await self.named(name)
        except Unavailable:
            if name not in NAMES:
                offered = ", ".join(NAMES)
                raise InvalidField(
                    "language", f"there is no language {name!r}; there are: {offered}"
                ) from None

    async def named(self, name: str, field: str = "language") -> Language:
        """Return an available language, or raise `InvalidField` that names those there are."""
        known = await self.all()
        language = known.get(name)
        if language is not None and language.needs is None:
            return language
        lacks = (
            f"there is no language {name!r} here" if language is None else f"{name} needs {language.needs}"
        )
        offered = ", ".join(sorted(each.name for each in known.values() if each.needs is None))
        raise InvalidField(field, f"{lacks}; this host offers: {offered}")

    async def of_file(self, path: str, otherwise: str) -> Language:
        """Return the language a file's ending says, or the sandbox's own."""
        for language in (await self.all()).values():
            if path.endswith(language.endings):
                return await self.named(language.name, "filename")
        return await self.named(otherwise)

    async def _probe(self) -> dict[str, tuple[str, str]]:
        said = bytearray()

        def take(stream: Stream, chunk: bytes) -> None:
            if stream == "stdout":
                said.extend(chunk)

        await in_own_thread(self._workspaces.create, _SCRATCH, self._owner)
        try:
            place = Place(_SCRATCH, self._workspaces.folder(_SCRATCH), self._owner, self._limits)
            command = Command(("/bin/sh", "-c", _PROBE), "/workspace", 60, {"PATH": PATH})
            await self._engine.exec(place, command, take, Leash.loose())
        finally:
            await in_own_thread(self._workspaces.remove, _SCRATCH)
        rows = [line.split("\t") for line in said.decode(errors="replace").splitlines()]
        return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}


def _decide(found: dict[str, tuple[str, str]]) -> dict[str, Language]:
    languages = [_python(found), _javascript(found), _typescript(found), _bash(found)]
    return {language.name: language for language in languages}


def _python(found: dict[str, tuple[str, str]]) -> Language:
    if "python3" not in found:
        return Language("python", (".py",), needs="python3 under /usr: apt-get install python3")
    path, version = found["python3"]
    return Language("python", (".py",), (path,), (path, "-c"), (), version)


def _javascript(found: dict[str, tuple[str, str]]) -> Language:
    endings = (".js", ".mjs", ".cjs")
    if "node" not in found:
        return Language("javascript", endings, needs="node under /usr: apt-get install nodejs")
    path, version = found["node"]
    return Language("javascript", endings, (path,), (path, "-e"), ("--",), f"Node.js {version}")


def _typescript(found: dict[str, tuple[str, str]]) -> Language:
    endings = (".ts", ".mts", ".cts")
    path, version = found.get("node", ("", "no node"))
    numbers = _numbers(version)
    if numbers < _NODE_STRIPS_TYPES:
        return Language("typescript", endings, needs=f"node 22.6 or newer, and this host has {version}")
    flags = () if _strips_by_itself(numbers) else ("--experimental-strip-types", "--no-warnings")
    by_code = (path, *flags, "--input-type=module-typescript", "-e")
    says = f"Node.js {version}, types stripped"
    return Language("typescript", endings, (path, *flags), by_code, ("--",), says)


def _bash(found: dict[str, tuple[str, str]]) -> Language:
    if "bash" not in found:
        return Language("bash", (".sh", ".bash"), needs="bash under /usr: apt-get install bash")
    path, version = found["bash"]
    return Language("bash", (".sh", ".bash"), (path,), (path, "-c"), ("bash",), version)


def _numbers(version: str) -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _strips_by_itself(numbers: tuple[int, int]) -> bool:
    old_line, new_line = _NODE_STRIPS_BY_ITSELF
    return numbers >= new_line or (numbers[0] == old_line[0] and numbers >= old_line)
