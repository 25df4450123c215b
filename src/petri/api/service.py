"""The server itself: is it well, what can it run, how much is going on."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest

from petri import __version__
from petri.api.context import CallerOf, HostOf
from petri.api.problems import DOCUMENTED
from petri.api.shapes import language_answer, layer_answer
from petri.operations import health
from petri.wire import Health, Languages, Metrics

router = APIRouter(responses=DOCUMENTED, tags=["server"])


@router.get("/health")
async def show_health(host: HostOf) -> Health:
    """Say whether code can be run, with one line for each protective layer."""
    layers = await health.layers(host)
    refusing = any(layer.required and not layer.on for layer in layers)
    return Health(
        status="refusing" if refusing else "ok",
        version=__version__,
        layers=[layer_answer(layer) for layer in layers],
    )


@router.get("/v1/languages")
async def list_languages(host: HostOf) -> Languages:
    """Say which languages this host runs, and what the others need."""
    known = await host.languages.all()
    return Languages(languages=[language_answer(each) for each in known.values()])


@router.get("/v1/metrics")
async def show_metrics(host: HostOf, caller: CallerOf) -> Metrics:
    """Count sandboxes and runs, by state: the caller's tenant's, or everybody's for an `admin` key."""
    now = await health.activity(host, caller)
    return Metrics(
        sandboxes={str(state): count for state, count in now.counts.sandboxes.items()},
        runs={str(state): count for state, count in now.counts.runs.items()},
        running=now.running,
        waiting=now.waiting,
        uptime_s=now.uptime_s,
        store_bytes=now.store_bytes,
    )


@router.get("/metrics", response_class=Response, include_in_schema=False)
async def show_prometheus(host: HostOf, caller: CallerOf) -> Response:
    """Give the same counts to Prometheus."""
    now = await health.activity(host, caller)
    registry = CollectorRegistry()
    sandboxes = Gauge("petri_sandboxes", "Sandboxes by state", ["state"], registry=registry)
    runs = Gauge("petri_runs", "Runs since the ledger began, by state", ["state"], registry=registry)
    for state, count in now.counts.sandboxes.items():
        sandboxes.labels(state).set(count)
    for run_state, count in now.counts.runs.items():
        runs.labels(run_state).set(count)
    Gauge("petri_running", "Sandboxes running something now", registry=registry).set(now.running)
    Gauge("petri_waiting", "Runs waiting for their turn", registry=registry).set(now.waiting)
    Gauge("petri_parked_cells", "Cells that stand ready", registry=registry).set(now.parked)
    parked = Counter("petri_parked_cells_used", "Runs that had such a cell", registry=registry)
    parked.inc(now.parked_used)
    fitted = Counter("petri_parked_cells_fitted", "Of these, runs of the kind it was for", registry=registry)
    fitted.inc(now.parked_fitted)
    Gauge("petri_store_bytes", "Disk that kept trees take", registry=registry).set(now.store_bytes)
    Gauge("petri_uptime_seconds", "Time since the server began", registry=registry).set(now.uptime_s)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
