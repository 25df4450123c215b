"""Names nobody can guess: `sb-`, `run-` and `snap-` plus twenty random letters."""

import base64
import re
import secrets

_LENGTH = 20
_RANDOM_BYTES = 13
"""Twenty letters of five bits are 100 random bits: guessing one id is as hard as guessing a key."""

ID_PATTERN = re.compile(rf"(sb|run|snap)-[a-z2-7]{{{_LENGTH}}}")


def new_id(kind: str) -> str:
    """Return a fresh id such as `sb-…`; it is a DNS label, since it will be a host name."""
    letters = base64.b32encode(secrets.token_bytes(_RANDOM_BYTES)).decode().lower()
    return f"{kind}-{letters[:_LENGTH]}"
