"""How sandboxes are named."""

import re


def is_sandbox_id(text: str) -> bool:
    """Say whether `text` is spelt like the id of a sandbox, rather than like a name."""
    return re.fullmatch(r"sb-[a-z2-7]{20}", text) is not None
