"""Petri: a self-hosted runtime for the code that AI agents write."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from petri.sdk import AsyncClient as AsyncClient
    from petri.sdk import Client as Client

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # On first use only: the launcher imports this package too, and must stay small and quick.
    if name in ("AsyncClient", "Client"):
        from petri import sdk

        return getattr(sdk, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
