"""Names nobody can guess: `sb-`, `run-` and `snap-` plus twenty random letters."""

import re
import secrets

_LENGTH = 20
"""Letters of five random bits: guessing one id is as hard as guessing a key of 100 bits."""
_LETTERS = b"abcdefghijklmnopqrstuvwxyz234567" * 8
"""One for each byte; each of the 32 comes as often as any other."""

ID_PATTERN = re.compile(rf"(sb|run|snap)-[a-z2-7]{{{_LENGTH}}}")


def new_id(kind: str) -> str:
    """Return a fresh id such as `sb-…`; it is a DNS label, since it will be a host name."""
    return f"{kind}-{secrets.token_bytes(_LENGTH).translate(_LETTERS).decode()}"
