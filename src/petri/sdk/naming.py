"""How sandboxes are named."""

import os
import re

from blake3 import blake3


def is_sandbox_id(text: str) -> bool:
    """Say whether `text` is spelt like the id of a sandbox, rather than like a name."""
    return re.fullmatch(r"sb-[a-z2-7]{20}", text) is not None


def folder_name(folder: str | os.PathLike[str]) -> str:
    """Return the name of a folder's sandbox: the same for the same folder, another for every other."""
    path = os.fspath(os.path.realpath(folder))
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", path.rpartition("/")[2]).strip("-._")[:40] or "folder"
    return f"{readable}-{blake3(os.fsencode(path)).hexdigest(4)}"
