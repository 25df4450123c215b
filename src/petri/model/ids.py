"""Names nobody can guess: `sb-` and `run-` plus twenty random letters."""

import re
import secrets

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_LENGTH = 20
"""Twenty letters of five bits are 100 random bits: guessing one id is as hard as guessing a key."""

ID_PATTERN = re.compile(rf"(sb|run)-[{_LETTERS}]{{{_LENGTH}}}")


def new_id(kind: str) -> str:
    """Return a fresh id such as `sb-…`; it is a DNS label, since it will be a host name."""
    return f"{kind}-" + "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
