"""HTTP in, HTTP out. No rules: parse, call one operation, shape the answer.

Imported by: `app`. Imports: `operations`, `wire`, `petri.model`, `petri.errors`, and the front doors whose
nouns are shown (`engine`, `ledger`, `workspace`). `problems.py` maps errors, once; `guard.py` says who
may knock.
"""

from typing import Any

from fastapi import FastAPI

from petri import __version__
from petri.api import (
    docs,
    environments,
    exec,
    files,
    keys,
    problems,
    runs,
    sandboxes,
    service,
    snapshots,
    sync,
    tenants,
    trees,
    unbuilt,
)
from petri.api.bodies import BODIES_AT_ONCE, BodyRoom
from petri.api.guard import Guard, scope_for
from petri.api.head import HeadAsGet
from petri.api.shortcut import ShortCut
from petri.operations import Host
from petri.wire import Problem

_ABOUT = (
    "A self-hosted runtime for the code that AI agents write. A sandbox is a workspace; each run is fresh."
)


def build(host: Host, *, max_body_bytes: int) -> FastAPI:
    """Return the HTTP application in front of `host`."""
    app = FastAPI(
        title="Petri",
        version=__version__,
        description=_ABOUT,
        openapi_url=None,
        redirect_slashes=False,
        # Nobody collects any; FastAPI would ask all three anew whether somebody does, at each request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.host = host
    app.state.max_body_bytes = max_body_bytes
    app.state.body_room = BodyRoom(BODIES_AT_ONCE * max_body_bytes)
    # Tried in this order at each request: what is asked most comes first.
    for room in (
        *(exec, sync, files, sandboxes, runs, snapshots, trees, environments, keys, tenants),
        *(service, unbuilt, docs),
    ):
        app.include_router(room.router)
    problems.install(app)
    app.add_middleware(ShortCut, exec.SHORT, sandboxes.SHORT)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Guard, access=host.access)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Put into the OpenAPI document what every route has: the shape of a problem, the scope it takes."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        document = make()
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        parts = problem.pop("$defs", {})
        document["components"]["schemas"] = {"Problem": problem, **parts, **document["components"]["schemas"]}
        # Optional, since a server without keys asks for none; so `/docs` can show one.
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        for path, methods in document["paths"].items():
            for method, described in methods.items():
                if (scope := scope_for(method.upper(), path)) is not None:
                    described["security"] = [{}, {"bearer": []}, {"header": []}]
                    described["x-petri-scope"] = str(scope)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
