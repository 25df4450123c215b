"""Small Python programs, read from `tables/*.txt`, and from `with_packages/*.txt` for those that want some.

A table is text. A program begins with a line `==== NAME`; what follows is its `main.py`, up to a line
`---- PATH`, which begins another file, or the next program. Right below its name may stand:

    @args ["a", "b"]      any field of an exec's body, as JSON; without a form it is `filename: main.py`
    @before "ln -s a b"   a shell command that has the files as the program wants to find them
    @blur ["address"]     what must differ from run to run, by its name in `BLURS`; nothing else may
    @known "reason"       why a parked Python is told from a bare one all the same: it must be, then

A file that is no text is `---- PATH = b'...'`, a link is `---- PATH -> TARGET`.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TABLES = Path(__file__).parent / "tables"
WITH_PACKAGES = Path(__file__).parent / "with_packages"
_FORMS = ("filename", "command", "code")
_OURS = frozenset({"before", "blur", "known"})
BLURS = {
    "address": (rb"0x[0-9a-f]{6,16}", b"0xADDRESS"),
    "signals": (rb"(SigIgn:\t0{7})[01][08]", rb"\g<1>00"),
    "large files": (rb"(SigIgn:\t0{9})1", rb"\g<1>0"),
    "thread": (rb"started \d+", b"started NUMBER"),
    "seconds": (rb"\d+\.\d+(e-\d+)?", b"SECONDS"),
}
"""What differs by nature or was decided so, and what stands in its place. `signals` are 32 and 33, which
glibc keeps for itself: what it starts by posix_spawn ignores them, and so may whoever started the tests.
`large files` is SIGXFSZ, which cells ignore, so that whoever writes too large a file is told; Python
itself ignores it anyhow."""


@dataclass(frozen=True)
class Program:
    """One program: its files, how it is run, and what of its output cannot be compared."""

    name: str
    body: dict[str, Any]
    files: dict[str, bytes]
    links: dict[str, str]
    before: str | None = None
    blur: list[str] = field(default_factory=list)
    known: str | None = None

    @property
    def form(self) -> str:
        """How it is run: `filename`, `command` or `code`."""
        return next(name for name in _FORMS if name in self.body)

    def blurred(self, said: bytes) -> bytes:
        """Return what the program said without what differs by nature."""
        for name in self.blur:
            pattern, instead = BLURS[name]
            said = re.sub(pattern, instead, said)
        return said


def programs(tables: Path = TABLES) -> list[Program]:
    """Return every program of every table in a folder, named `table: program`."""
    found = [program for table in sorted(tables.glob("*.txt")) for program in _read(table)]
    names = [program.name for program in found]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
    return found


def _read(table: Path) -> Iterator[Program]:
    preface, *sections = re.split(r"^==== ", table.read_text(), flags=re.MULTILINE)
    assert not preface.strip() or preface.startswith("#"), table
    for section in sections:
        name, _, text = section.partition("\n")
        yield _program(f"{table.stem}: {name.strip()}", text)


def _program(name: str, text: str) -> Program:
    main, *others = re.split(r"^---- ", text, flags=re.MULTILINE)
    said, source = _directives(main)
    files, links = ({"main.py": source.encode()} if source.strip() else {}), {}
    for other in others:
        head, _, content = other.partition("\n")
        if " -> " in head:
            path, _, links[path] = head.partition(" -> ")
        elif " = " in head:
            path, _, literal = head.partition(" = ")
            files[path] = ast.literal_eval(literal)
        else:
            files[head] = content.encode()
    ours = {key: said.pop(key) for key in _OURS & said.keys()}
    if not said.keys() & set(_FORMS):
        said["filename"] = "main.py"
    return Program(name, said, files, links, **ours)


def _directives(text: str) -> tuple[dict[str, Any], str]:
    said = {}
    while match := re.match(r"@(\w+) (.*)\n", text):
        said[match[1]] = json.loads(match[2])
        text = text[match.end() :]
    return said, text
