"""Where the server is, who is asking, and where clients keep what they remember, unless the caller says."""

import os
import re
from typing import NamedTuple

from petri.errors import Invalid

DEFAULT_URL = "http://127.0.0.1:8000"

_ADDRESS = re.compile(
    r"(https?)://(\[[0-9a-fA-F:.]+\]|[^\s/:@?#\[\]]+)(?::(\d{1,5}))?(/[^\s?#]*)?", re.IGNORECASE
)


class Address(NamedTuple):
    """The parts of a server's address."""

    is_secure: bool
    host: str
    port: int
    prefix: str
    """What stands before the paths of the API, without a slash at its end."""


def server_url(given: str | None) -> str:
    """Return the server's address without a trailing slash, or raise `Invalid` if it cannot be one."""
    url = (given or os.getenv("PETRI_URL") or DEFAULT_URL).rstrip("/")
    address(url)
    return url


def address(url: str) -> Address:
    """Return the parts of `url`, or raise `Invalid` if it is not the address of a server."""
    found = _ADDRESS.fullmatch(url)
    port = int(found[3] or 0) if found else 0
    if found is None or port > 65535:
        raise Invalid(f"{url!r} is not the address of a server; PETRI_URL looks like {DEFAULT_URL}")
    is_secure = found[1].lower() == "https"
    host = found[2].strip("[]").lower()
    return Address(is_secure, host, port or (443 if is_secure else 80), (found[4] or "").rstrip("/"))


def api_key(given: str | None) -> str | None:
    """Return the key to send, or None: a server on loopback asks for none."""
    key = (given or os.getenv("PETRI_API_KEY") or "").strip()
    if not key.isascii() or not key.isprintable():
        raise Invalid("the API key holds characters that no key of Petri's has; check PETRI_API_KEY")
    return key or None


def is_loopback(url: str) -> bool:
    """Say whether `url` stays on this machine."""
    host = address(url).host
    return host in ("localhost", "::1") or host.startswith("127.")


def state_folder() -> str:
    """Return the folder where clients keep what they remember: `$XDG_STATE_HOME/petri`."""
    home = os.getenv("XDG_STATE_HOME") or ""
    # The specification: a relative path there is to be ignored.
    if not home.startswith("/"):
        home = os.path.expanduser("~/.local/state")  # noqa: PTH111 - pathlib takes longer to load than a sync takes
    return f"{home}/petri"
