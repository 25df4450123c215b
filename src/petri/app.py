"""The only file that knows every room: settings → Host → the ASGI app, and the process around it."""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path

import uvicorn

from petri import api
from petri.api.front import Connection, DescriptorWatch, Patience
from petri.api.guard import is_loopback
from petri.api.shapes import layer_answer
from petri.engine.bubblewrap import BubblewrapEngine, Setup, Total
from petri.engine.process import count
from petri.environment import Policy as PackagePolicy
from petri.environment.building import Rules, Shelf
from petri.errors import Invalid
from petri.heap import give_memory_back
from petri.home import held, load_access
from petri.ledger import Ledger
from petri.logs import set_up_logs
from petri.model import Limits, RunEvent
from petri.operations import Host, Policy, Remembering
from petri.operations.desk import Desk
from petri.operations.health import disk_layer
from petri.operations.keys import note_uses, note_uses_forever
from petri.operations.languages import Languages
from petri.operations.outfitter import Installing, open_outfitter
from petri.operations.parking import Parking
from petri.operations.reap import Reaper, recover
from petri.operations.shares import Shares
from petri.operations.tenant_disk import TenantDisk, measure_forever
from petri.settings import OWN_DESCRIPTORS, Settings, for_installers, load
from petri.store import Store
from petri.transcript import Transcripts
from petri.wire import LayerAnswer
from petri.workspace import Bounds, Checkouts, Space, Workspaces, find_holding, look_at_disk

_log = logging.getLogger("petri")
_LAST_ANSWERS_S = 5
"""How long answers may take to be sent once every run has ended."""
_BACKLOG = 1024
_UNSENT_BYTES = 1 << 18
"""What the kernel takes of an answer before the client has room for it; it would hold 4 MiB for each one that
reads nothing. Every connection has this from the listener."""


def serve() -> None:
    """Serve until told to stop. Raises `Invalid` if the settings or the home make no sense."""
    settings = load()
    set_up_logs(settings.log_level)
    _raise_descriptors(settings.max_connections)
    give_memory_back()
    with (
        held(settings, "stop it, or set PETRI_HOME to another folder"),
        _asking_for_a_key(settings),
        _listen(settings.host, settings.port) as listener,
        _one_error(),
        asyncio.Runner(loop_factory=_new_loop) as runner,
    ):
        runner.run(_serve(settings, listener))


@contextmanager
def _asking_for_a_key(settings: Settings) -> Iterator[None]:
    """Refuse to let other machines in where there is no key. Looked up before anybody can knock."""
    if not is_loopback(settings.host) and not asyncio.run(_has_a_key(settings)):
        raise Invalid(
            f"PETRI_HOST={settings.host} would let other machines run code here without a key; make one with "
            "`petri keys create NAME --scope admin`, set PETRI_API_KEY, or listen on 127.0.0.1"
        )
    yield


async def _has_a_key(settings: Settings) -> bool:
    ledger = Ledger.open(settings.ledger)
    try:
        return (await load_access(ledger, settings)).opens_to_somebody
    finally:
        await ledger.close()


def inspect_host() -> list[LayerAnswer]:
    """Return every protective layer as this host has it, by trying each. Needs no server."""

    async def look() -> list[LayerAnswer]:
        with tempfile.TemporaryDirectory(prefix="petri-doctor-") as scratch:
            home = Path(scratch)
            workspaces, checkouts, environments = (home / name for name in ("work", "trees", "shelf"))
            for folder in (workspaces, checkouts, environments):
                folder.mkdir()
            engine = BubblewrapEngine(Setup(home, workspaces, checkouts, environments))
            try:
                await engine.start()
                layers = [*await engine.layers(), disk_layer(find_holding(_nearest(load().workspaces)))]
                return [layer_answer(layer) for layer in layers]
            finally:
                await engine.stop()

    return asyncio.run(look())


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.is_dir()).resolve()


@asynccontextmanager
async def open_host(settings: Settings) -> AsyncIterator[Host]:
    """Open every room, finish what an earlier life left, and close them all again in the end."""
    bounds = Bounds(settings.max_upload_bytes, settings.max_upload_files)
    workspaces = Workspaces(settings.workspaces, bounds, settings.disk_reserve_bytes)
    store = Store(settings.home / "store")
    ledger = Ledger.open(settings.ledger)
    checkouts = Checkouts(settings.home / "checkouts", settings.peers_bytes, workspaces.reserve_bytes)
    shelf = Shelf(settings.home / "environments")
    engine = BubblewrapEngine(_setup(settings, checkouts, shelf))
    try:
        # First of all: whatever still runs from an earlier life is ended before its files are touched.
        await engine.start()
        async with asyncio.TaskGroup() as tasks:
            policy = _policy(settings, workspaces.space())
            desk = Desk(settings.max_runs, settings.max_queued_runs)
            host = Host(
                ledger=ledger,
                access=await load_access(ledger, settings),
                workspaces=workspaces,
                store=store,
                engines={engine.name: engine},
                transcripts=Transcripts(settings.home / "runs", settings.kept_output_bytes),
                desk=desk,
                tenant_disk=TenantDisk(ledger, workspaces.measure, desk.is_busy),
                languages=Languages(engine, workspaces, policy.uid_base, policy.limits),
                policy=policy,
                shares=Shares(workspaces, count),
                checkouts=checkouts,
                parking=Parking(settings.parked_bytes, tasks.create_task),
                tasks=tasks,
                outfitter=await open_outfitter(
                    shelf, _installing(settings, workspaces), engine, policy.uid_base, tasks
                ),
            )
            reaper = Reaper(host, await recover(host))
            watching = [
                tasks.create_task(_watch(host, reaper)),
                tasks.create_task(note_uses_forever(ledger, host.access)),
                tasks.create_task(measure_forever(host.tenant_disk, host.access)),
            ]
            if host.outfitter is not None:
                watching.append(tasks.create_task(host.outfitter.sweep_forever(ledger.environments)))
            try:
                yield host
            finally:
                await host.parking.close()
                workspaces.stop()
                checkouts.stop()
                if host.outfitter is not None:
                    host.outfitter.stop()
                for watch in watching:
                    watch.cancel()
                await note_uses(ledger, host.access)
    finally:
        await engine.stop()
        await ledger.close()
        store.close()
        workspaces.close()


async def drain(host: Host, seconds: float) -> None:
    """Start nothing new, let what runs come to its end, and end it when `seconds` are over."""
    host.draining = True
    runs = [live.ended for live in host.live.values()]
    if runs and seconds > 0:
        _log.info("waiting up to %g s for %d runs to end", seconds, len(runs))
        await asyncio.wait(runs, timeout=seconds)
    for live in host.live.values():
        live.cut(RunEvent.INTERRUPTED)
    if remaining := [live.ended for live in host.live.values()]:
        await asyncio.wait(remaining)


async def _watch(host: Host, reaper: Reaper) -> None:
    try:
        await host.languages.all()
    except Exception as error:  # noqa: BLE001 - where nothing can be run now, they are asked for when it can
        _log.info("the languages of this host are not known yet: %s", error)
    await reaper.run()


async def _serve(settings: Settings, listener: socket.socket) -> None:
    async with open_host(settings) as host:
        app = api.build(host, max_body_bytes=settings.max_body_bytes)
        config = uvicorn.Config(
            app,
            http=partial(Connection, _patience(settings)),  # type: ignore[arg-type] # it calls it, no more
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_LAST_ANSWERS_S,
        )
        server = _Server(config, host, settings.drain_s)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, server.stop)
        await _complain_of_layers(host)
        gc.freeze()  # what was loaded stays: collecting rubbish need not look through it again
        await server.serve([listener])


class _Server(uvicorn.Server):
    """uvicorn, with a drain before its end and no opinion on signals."""

    def __init__(self, config: uvicorn.Config, host: Host, drain_s: float) -> None:
        super().__init__(config)
        self._host = host
        self._drain_s = drain_s
        self._descriptors = DescriptorWatch()

    def stop(self) -> None:
        """Begin to stop; asked again, stop at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        if self.force_exit:
            for live in self._host.live.values():
                live.cut(RunEvent.INTERRUPTED)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `_serve`: uvicorn would raise them again and end us before we have cleaned up."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where to go next, once we listen."""
        await super().startup(sockets)
        if sockets:
            print(_welcome(sockets[0], asks_for_a_key=not self._host.access.is_open), flush=True)

    async def on_tick(self, counter: int) -> bool:
        """Look after what nobody would tell us of, ten times a second."""
        if counter % 10 == 0:
            self._descriptors.look()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, drain, then close what is left."""
        for server in self.servers:
            server.close()
        await drain(self._host, self._drain_s)
        await super().shutdown(sockets)


def _raise_descriptors(connections: int) -> None:
    """Allow ourselves as many open files as we may have: each client and each cell takes some."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most != resource.RLIM_INFINITY and connections > most - OWN_DESCRIPTORS:
        raise Invalid(
            f"PETRI_MAX_CONNECTIONS={connections} leaves fewer than {OWN_DESCRIPTORS} of the {most} files "
            "this server may have open; raise that limit (ulimit -n), or allow fewer connections"
        )


@contextmanager
def _one_error() -> Iterator[None]:
    """Raise what went wrong by itself: a task group wraps even a single error."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else "there is no such address"
        raise Invalid(f"cannot listen on {host}:{port}: {why}; set PETRI_HOST and PETRI_PORT") from error
    return listener


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _installing(settings: Settings, workspaces: Workspaces) -> Installing:
    allow, deny = settings.allow_packages or frozenset(), settings.deny_packages or frozenset()
    policy = PackagePolicy(settings.dependencies, allow, deny)
    rules = Rules(settings.exclude_newer_days, settings.environments_bytes, settings.index_url, deny)
    rules = replace(rules, builds=settings.builds)

    def has_room() -> bool:
        return not look_at_disk(settings.home).is_short(workspaces.reserve_bytes)

    return Installing(policy, rules, for_installers(), has_room)


def _setup(settings: Settings, checkouts: Checkouts, shelf: Shelf) -> Setup:
    home = settings.home / "engine"
    home.mkdir(mode=0o700, exist_ok=True)
    total = Total(settings.total_memory_bytes, settings.total_processes)
    folders = (settings.workspaces, checkouts.trees, shelf.folder)
    return Setup(
        *(home, *folders),
        lends_networks=settings.parked_bytes > 0,
        require_cgroups=settings.cgroups == "required",
        total=total,
    )


def _patience(settings: Settings) -> Patience:
    return Patience(
        connections=settings.max_connections,
        head_s=settings.client_head_s,
        idle_s=settings.client_idle_s,
        body_s=settings.client_body_s,
        take_s=settings.client_take_s,
    )


def _policy(settings: Settings, disk: Space) -> Policy:
    most = _ceilings(settings, disk)
    wanted = Limits(
        cpus=settings.cpus,
        memory_bytes=settings.memory_bytes,
        processes=settings.processes,
        timeout_s=settings.timeout_s,
        open_files=settings.open_files,
        disk_bytes=settings.disk_bytes,
        inodes=settings.inodes,
        tmp_bytes=settings.tmp_bytes,
        output_bytes=settings.kept_output_bytes,
    )
    limits = Limits(*map(min, astuple(wanted), astuple(most)))  # a small host has small defaults
    uid_base = settings.uid_base if os.geteuid() == 0 else None
    remembering = Remembering(settings.undo_runs, settings.undo_bytes, settings.gc_s, settings.gc_grace_s)
    return Policy(limits, most, uid_base, settings.answer_output_bytes, remembering)


def _ceilings(settings: Settings, disk: Space) -> Limits:
    """Return the most anybody may ask for: what the host has, or less if the operator says so."""
    memory_bytes = min(settings.memory_max_bytes, settings.total_memory_bytes)
    return Limits(
        cpus=float(len(os.sched_getaffinity(0))),
        memory_bytes=memory_bytes,
        processes=settings.total_processes,
        timeout_s=settings.timeout_max_s,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        disk_bytes=disk.total_bytes,
        inodes=disk.total_inodes,
        tmp_bytes=memory_bytes,
        output_bytes=settings.kept_output_bytes,
    )


async def _complain_of_layers(host: Host) -> None:
    for engine in host.engines.values():
        for layer in await engine.layers():
            if not layer.on:
                effect = "code will not be run" if layer.required else "weaker"
                _log.warning("%s is off (%s): %s. %s", layer.name, effect, layer.says, layer.remedy or "")


def _welcome(listener: socket.socket, *, asks_for_a_key: bool) -> str:
    host, port = listener.getsockname()[:2]
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    key = ' -H "Authorization: Bearer $PETRI_API_KEY"' if asks_for_a_key else ""
    return f"""
Petri is ready at http://{where}

  curl{key} -X POST {where}/v1/sandboxes -d '{{"language": "python"}}'
  curl{key} -X POST {where}/v1/sandboxes/$ID/files -F "file=@main.py"
  curl{key} -X POST {where}/v1/sandboxes/$ID/exec -d '{{"filename": "main.py"}}'

Everything else: http://{where}/docs, or .venv/bin/petri --help. Ctrl-C stops the server.
"""
