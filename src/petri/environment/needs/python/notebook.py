"""Notebooks: the code in their cells, one after another."""

import json
import re

_MAGIC = re.compile(r"^[ \t]*[%!?].*$", re.MULTILINE)


def code_of(content: bytes) -> bytes:
    """Return a notebook's code without what only a notebook understands; nothing if it is none."""
    try:
        cells = json.loads(content)["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return b""
    return _MAGIC.sub("", "\n".join(code)).encode(errors="replace")
