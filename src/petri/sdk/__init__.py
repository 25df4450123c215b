"""The Python client: everything the HTTP API offers, typed, and nothing else.

`AsyncClient` is written by hand; `Client` is generated from it by `scripts/generate-sdk`.

Imported by: `cli`; by users as `petri.Client` and `petri.AsyncClient`.
Imports: `petri.wire`, `petri.errors`.
"""

from petri.sdk.async_admin import AsyncAdmin
from petri.sdk.async_client import AsyncClient
from petri.sdk.bodies import Content, Progress, Source
from petri.sdk.events import Done, Event, Installing, Output, Started, Stream
from petri.sdk.fields import Change, Command, Lifetime, Limits, Network, Quotas, ScopeName
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
    "Done",
    "Event",
    "Installing",
    "Lifetime",
    "Limits",
    "Network",
    "Output",
    "Progress",
    "Quotas",
    "ScopeName",
    "Source",
    "Started",
    "Stream",
]
