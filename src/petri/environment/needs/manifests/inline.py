"""PEP 723: a script that says itself what it wants."""

import re

from petri.environment.needs.manifests.declared import Declaration, Declared
from petri.environment.needs.manifests.parsing import string, strings, toml

_BLOCK = re.compile(r"^# /// script[ \t]*\n((?:#(?> [^\n]*+)?+\n)*?)# ///[ \t]*$", re.MULTILINE)


def inline(source: bytes, path: str) -> Declared | None:
    """Return what the block at the head of a script declares; None for a script without one, or with two."""
    text = source.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    blocks = list(_BLOCK.finditer(text)) if "# /// script" in text else []
    if len(blocks) != 1:
        return None
    said = toml(
        "".join(line[2:] if line.startswith("# ") else line[1:] for line in blocks[0][1].splitlines(True))
    )
    first = text.count("\n", 0, blocks[0].start()) + 1
    declarations = [Declaration(each, path, first) for each in strings(said.get("dependencies"))]
    return Declared("pep723", path, declarations, python=string(said.get("requires-python")))
