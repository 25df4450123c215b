"""The Python client: everything the HTTP API offers, typed, and nothing else.

`AsyncClient` is written by hand; `Client` is generated from it by `scripts/generate-sdk`. `folder` keeps a
folder of this machine in step with a sandbox, and needs none of the rest.

Imported by: `cli`; by users as `petri.Client` and `petri.AsyncClient`.
Imports: `petri.syncing`, `petri.trees`, `petri.wire`, `petri.errors`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from petri.sdk.async_admin import AsyncAdmin
    from petri.sdk.async_client import AsyncClient
    from petri.sdk.bodies import Content, Progress, Source
    from petri.sdk.events import Done, Event, Installing, Output, Started, Stream
    from petri.sdk.fields import (
        Change,
        Command,
        Dependencies,
        Lifetime,
        Limits,
        Missing,
        Network,
        Peer,
        Quotas,
        ScopeName,
    )
    from petri.sdk.folder.exchange import Wish
    from petri.sdk.folder.mirror import Mirror
    from petri.sdk.folder.results import Mode, Moved, PathConflict, Prefer, Skipped, Synced, as_text
    from petri.sdk.folder.watching import Watching
    from petri.sdk.naming import folder_name
    from petri.sdk.racing import NotMerged, Race, Racer
    from petri.sdk.sync_admin import Admin
    from petri.sdk.sync_client import Client

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncClient",
    "Change",
    "Client",
    "Command",
    "Content",
    "Dependencies",
    "Done",
    "Event",
    "Installing",
    "Lifetime",
    "Limits",
    "Mirror",
    "Missing",
    "Mode",
    "Moved",
    "Network",
    "NotMerged",
    "Output",
    "PathConflict",
    "Peer",
    "Prefer",
    "Progress",
    "Quotas",
    "Race",
    "Racer",
    "ScopeName",
    "Skipped",
    "Source",
    "Started",
    "Stream",
    "Synced",
    "Watching",
    "Wish",
    "as_text",
    "folder_name",
]

_IN = {
    "async_admin": "AsyncAdmin",
    "async_client": "AsyncClient",
    "bodies": "Content Progress Source",
    "events": "Done Event Installing Output Started Stream",
    "fields": "Change Command Dependencies Lifetime Limits Missing Network Peer Quotas ScopeName",
    "folder.exchange": "Wish",
    "folder.mirror": "Mirror",
    "folder.results": "Mode Moved PathConflict Prefer Skipped Synced as_text",
    "folder.watching": "Watching",
    "naming": "folder_name",
    "racing": "NotMerged Race Racer",
    "sync_admin": "Admin",
    "sync_client": "Client",
}
"""Where each name is. Found on first use: the clients bring httpx and pydantic, and a sync needs neither."""


def __getattr__(name: str) -> object:
    for module, names in _IN.items():
        if name in names.split():
            return getattr(import_module(f"petri.sdk.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
