"""Where the server is and who is asking, unless the caller says: `PETRI_URL` and `PETRI_API_KEY`."""

import os

import httpx

from petri.errors import Invalid

DEFAULT_URL = "http://127.0.0.1:8000"


def server_url(given: str | None) -> str:
    """Return the server's address without a trailing slash, or raise `Invalid` if it cannot be one."""
    url = (given or os.getenv("PETRI_URL") or DEFAULT_URL).rstrip("/")
    if not _is_address(url):
        raise Invalid(f"{url!r} is not the address of a server; PETRI_URL looks like {DEFAULT_URL}")
    return url


def api_key(given: str | None) -> str | None:
    """Return the key to send, or None: a server on loopback asks for none."""
    key = (given or os.getenv("PETRI_API_KEY") or "").strip()
    if not key.isascii() or not key.isprintable():
        raise Invalid("the API key holds characters that no key of Petri's has; check PETRI_API_KEY")
    return key or None


def is_loopback(url: str) -> bool:
    """Say whether `url` stays on this machine."""
    host = httpx.URL(url).host
    return host in ("localhost", "::1") or host.startswith("127.")


def _is_address(url: str) -> bool:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return parts.scheme in ("http", "https") and bool(parts.host)
