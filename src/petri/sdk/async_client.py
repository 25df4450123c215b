"""The Python client, for programs with an event loop.

`sync_client.py` is generated from this file by `scripts/generate-sdk`: change this one, run that.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from petri.errors import Conflict, NotFound, PathsConflict
from petri.sdk.asking import Ask, file_path, segment
from petri.sdk.async_admin import AsyncAdmin
from petri.sdk.async_connection import AsyncConnection
from petri.sdk.async_folders import AsyncFolders
from petri.sdk.async_races import AsyncRaces
from petri.sdk.bodies import Content, Multipart, OneFile, Progress, Source, as_text_or_base64, parts
from petri.sdk.config import is_loopback
from petri.sdk.events import Event, Stream
from petri.sdk.fields import Change, Command, Lifetime, Limits, Network, Peer, given
from petri.sdk.following import Following, events_of
from petri.sdk.landing import Landing
from petri.sdk.mirrors import Folder
from petri.sdk.naming import folder_name, is_sandbox_id
from petri.sdk.waiting import in_thread
from petri.wire import (
    EnvironmentAnswer,
    EventAnswer,
    EventList,
    ExecAnswer,
    FileAnswer,
    FilesWritten,
    Health,
    Languages,
    Listing,
    Metrics,
    RunAnswer,
    RunList,
    SandboxAnswer,
    SandboxList,
)


class AsyncClient(AsyncFolders, AsyncRaces):
    """A Petri server, asked from Python.

    Answers are the models of `petri.wire`, refusals the classes of `petri.errors`; a command that fails
    is an answer, not an error. Calls take a sandbox's id; `sandbox` finds one by its name.

        async with AsyncClient() as petri:
            sandbox = await petri.create(language="python")
            await petri.upload(sandbox.id, "main.py")
            answer = await petri.exec(sandbox.id, filename="main.py")
            print(answer.exit_code, answer.stdout)

    `url` and `api_key` default to `PETRI_URL` and `PETRI_API_KEY`. `timeout_s` is the longest silence
    to bear from the server, not the length of a run. `retries` is how often a call that started nothing
    (the server was full, or not there) is made again; 0 is never.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 60.0,
        retries: int = 3,
    ) -> None:
        self._connection = AsyncConnection(url, api_key, timeout_s, retries)
        super().__init__(self.url, api_key, retries)
        self._met: dict[str, str] = {}
        """The sandboxes that folders were run in, by their names."""
        self.admin = AsyncAdmin(self._connection)
        """Keys, tenants and quotas; for `admin` keys."""

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._connection.url

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine, as its address has it."""
        return is_loopback(self.url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections to the server. Runs go on without us."""
        await in_thread(self._mirrors.close)
        await self._connection.aclose()

    # -------------------------------------------------------------------------------------- sandboxes

    async def create(  # noqa: PLR0913 - one argument for each field of the request
        self,
        *,
        language: str | None = None,
        name: str | None = None,
        engine: str | None = None,
        lifetime: Lifetime | None = None,
        ttl_s: float | None = None,
        idle_s: float | None = None,
        limits: Limits | None = None,
        network: Network | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        peers: Sequence[Peer] | None = None,
        created_by: str | None = None,
        agent: str | None = None,
        from_snapshot: str | None = None,
    ) -> SandboxAnswer:
        """Create a sandbox, or return the live one that already has this `name`."""
        fields = {
            "language": language,
            "name": name,
            "engine": engine,
            "lifetime": lifetime,
            "ttl_s": ttl_s,
            "idle_s": idle_s,
            "limits": limits,
            "network": network,
            "env": env,
            "metadata": metadata,
            "peers": peers,
            "created_by": created_by,
            "agent": agent,
            "from_snapshot": from_snapshot,
        }
        return await self._connection.ask(Ask("POST", "/v1/sandboxes", json=given(fields)), SandboxAnswer)

    async def sandboxes(
        self,
        *,
        state: str | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[SandboxAnswer, None]:
        """Yield sandboxes, newest first, `limit` at most: those that live, or those in `state`, or `all`."""
        wanted = {f"metadata.{key}": value for key, value in (metadata or {}).items()}
        wanted |= {key: value for key, value in (("state", state), ("name", name)) if value is not None}
        async for page in self._connection.pages(
            Ask("GET", "/v1/sandboxes", params=wanted), SandboxList, limit
        ):
            for sandbox in page.sandboxes:
                yield sandbox

    async def sandbox(self, id_or_name: str) -> SandboxAnswer:
        """Return the sandbox with this id, even if it has ended, or the live one of this name."""
        if is_sandbox_id(id_or_name):
            return await self._connection.ask(Ask("GET", _sandbox(id_or_name)), SandboxAnswer)
        async for found in self.sandboxes(state="ready", name=id_or_name):
            return found
        raise NotFound(f"there is no sandbox {id_or_name!r}")

    async def sandbox_id(self, id_or_name: str) -> str:
        """Return the id to make calls with; what is an id already costs nothing."""
        return id_or_name if is_sandbox_id(id_or_name) else (await self.sandbox(id_or_name)).id

    async def update(self, sandbox: str, **change: Unpack[Change]) -> SandboxAnswer:
        """Change what is given; None clears `name`, `ttl_s` or `idle_s`."""
        return await self._connection.ask(Ask("PATCH", _sandbox(sandbox), json=change), SandboxAnswer)

    async def delete(self, sandbox: str) -> None:
        """End a sandbox and remove its files. Its history stays; deleting twice is fine."""
        await self._connection.tell(Ask("DELETE", _sandbox(sandbox)))

    async def events(self, sandbox: str) -> AsyncGenerator[EventAnswer, None]:
        """Yield a sandbox's history, oldest first."""
        async for page in self._connection.pages(Ask("GET", _sandbox(sandbox) + "/events"), EventList):
            for event in page.events:
                yield event

    # ------------------------------------------------------------------------------------------ files

    async def upload(
        self,
        sandbox: str,
        *sources: Source,
        into: str = "",
        skip: Iterable[str] = (),
        extract: bool = False,
        progress: Progress | None = None,
    ) -> FilesWritten:
        """Upload many files in one request, streamed from the disk; all appear, or none.

        A source is a file, a folder (all files beneath it, under its name; under none for `"pkg/"` with
        a slash), or paths in the sandbox with what they shall hold:
        `upload(id, "main.py", "pkg", {"data/in.csv": b"1,2"})`. `into` is the folder of the workspace
        they go to; names in `skip` are left out of folders; `extract` unpacks archives.
        """
        body = Multipart(await in_thread(parts, sources, into, skip), progress)
        ask = Ask("POST", _sandbox(sandbox) + "/files", params=_flag("extract", on=extract), body=body)
        return await self._connection.ask(ask, FilesWritten)

    async def write(
        self,
        sandbox: str,
        path: str,
        content: Content,
        *,
        if_match: str | None = None,
        progress: Progress | None = None,
    ) -> FileAnswer:
        """Make `path` hold `content`: bytes, text, a `Path` of this machine, or an open binary file.

        With `if_match`, only if the file there still has that digest; else `PreconditionFailed`.
        """
        body = await in_thread(OneFile, content, progress)
        headers = {} if if_match is None else {"If-Match": f'"{if_match}"'}
        return await self._connection.ask(
            Ask("PUT", _file(sandbox, path), body=body, headers=headers), FileAnswer
        )

    async def read(self, sandbox: str, path: str) -> bytes:
        """Return what a file holds."""
        return b"".join([chunk async for chunk in self.read_chunks(sandbox, path)])

    def read_chunks(self, sandbox: str, path: str) -> AsyncGenerator[bytes, None]:
        """Yield what a file holds, piece by piece, for files too large to hold at once."""
        return self._connection.chunks(Ask("GET", _file(sandbox, path)))

    async def download(
        self, sandbox: str, path: str, to: str | Path, *, progress: Progress | None = None
    ) -> Path:
        """Copy a file to this machine and return where it is: `to`, or in it if that is a folder.

        It appears there whole or not at all.
        """
        landing = await in_thread(Landing, Path(to), path.rstrip("/").rpartition("/")[2])
        return await self._land(Ask("GET", _file(sandbox, path)), landing, progress)

    async def download_archive(
        self,
        sandbox: str,
        path: str,
        to: str | Path,
        *,
        archive: str = "tar.zst",
        progress: Progress | None = None,
    ) -> Path:
        """Copy a folder to this machine as one archive; `""` is the whole workspace."""
        name = (path.strip("/").rpartition("/")[2] or sandbox) + "." + archive
        landing = await in_thread(Landing, Path(to), name)
        ask = Ask("GET", _file(sandbox, path.strip("/")), params={"archive": archive})
        return await self._land(ask, landing, progress)

    async def list_files(self, sandbox: str, path: str = "", *, recursive: bool = False) -> Listing:
        """Return what is in a folder of the workspace."""
        params = {"path": path, **_flag("recursive", on=recursive)}
        return await self._connection.ask(Ask("GET", _sandbox(sandbox) + "/files", params=params), Listing)

    async def delete_file(self, sandbox: str, path: str) -> None:
        """Remove a file, or a folder with everything in it."""
        await self._connection.tell(Ask("DELETE", _file(sandbox, path)))

    # ------------------------------------------------------------------------------------------- runs

    async def exec(self, sandbox: str, **command: Unpack[Command]) -> ExecAnswer:
        """Run something in a sandbox and return how it ended, however long that takes.

        `exec(id, filename="main.py")`, `exec(id, command=["pytest", "-q"])` or `exec(id, code="print(1)")`,
        and what else `petri.sdk.Command` has.
        """
        ask = Ask("POST", _sandbox(sandbox) + "/exec", json=given(command), patient=True)
        return await self._connection.ask(ask, ExecAnswer)

    def stream(self, sandbox: str, **command: Unpack[Command]) -> AsyncGenerator[Event, None]:
        """Run something and yield what happens as it happens: `Started`, `Output`…, `Done`.

        A connection that breaks after `Started` is made again and goes on where it broke. Leaving the
        loop early leaves the run running: `cancel` ends it.
        """
        ask = Ask("POST", _sandbox(sandbox) + "/exec", json=given(command), streams=True)
        return self._connection.follow(ask, Following())

    async def run_once(
        self,
        *,
        files: Mapping[str, bytes | str | Path] | None = None,
        **command: Unpack[Command],
    ) -> ExecAnswer:
        """Run something in a sandbox of its own that is gone afterwards: files in, outcome out."""
        packed = await in_thread(as_text_or_base64, files or {})
        fields = {**given(command), "files": packed}
        return await self._connection.ask(Ask("POST", "/v1/exec", json=fields, patient=True), ExecAnswer)

    async def runs(self, sandbox: str, *, limit: int | None = None) -> AsyncGenerator[RunAnswer, None]:
        """Yield what ran in a sandbox, newest first; `limit` of them at most."""
        async for page in self._connection.pages(Ask("GET", _sandbox(sandbox) + "/runs"), RunList, limit):
            for run in page.runs:
                yield run

    async def run(
        self,
        folder: Folder,
        filename: str,
        /,
        *,
        sandbox: str | None = None,
        progress: Progress | None = None,
        **command: Unpack[Command],
    ) -> ExecAnswer:
        """Push a folder and run a file of it: two requests, or only the second if nothing changed here.

        Without a `sandbox`, in one of the folder's own, which is made if it is not there, and kept. To find
        it, or one by its name, takes one more request the first time.
        """
        command["filename"] = filename
        name = sandbox or folder_name(folder)
        before = self._met.get(name)
        chosen = before or await self._meet(name, make=sandbox is None)
        try:
            await self._push_if_changed(folder, chosen, progress)
            return await self.exec(chosen, **command)
        except (NotFound, Conflict) as error:
            if before is None or isinstance(error, PathsConflict):
                raise
            chosen = await self._meet(name, make=sandbox is None)
            if chosen == before:  # else the one that had the name is gone, and another one has it by now
                raise
        await self._push_if_changed(folder, chosen, progress)
        return await self.exec(chosen, **command)

    async def _meet(self, name: str, *, make: bool) -> str:
        self._met[name] = (await self.create(name=name)).id if make else await self.sandbox_id(name)
        return self._met[name]

    async def show_run(self, run_id: str) -> RunAnswer:
        """Return one run: who asked, what ran, when, and how it ended."""
        return await self._connection.ask(Ask("GET", _run(run_id)), RunAnswer)

    async def environment(self, sandbox: str, *, run: str | None = None) -> EnvironmentAnswer:
        """Return the packages of a sandbox's last run that wanted some, or of `run`: who needs each."""
        params = given({"run": run})
        ask = Ask("GET", _sandbox(sandbox) + "/environment", params=params)
        return await self._connection.ask(ask, EnvironmentAnswer)

    async def run_output(self, run_id: str, stream: Stream = "stdout") -> bytes:
        """Return the exact bytes a run wrote to `stream`."""
        return b"".join([chunk async for chunk in self.run_output_chunks(run_id, stream)])

    def run_output_chunks(self, run_id: str, stream: Stream = "stdout") -> AsyncGenerator[bytes, None]:
        """Yield the exact bytes a run wrote to `stream`, piece by piece."""
        return self._connection.chunks(Ask("GET", f"{_run(run_id)}/{stream}"))

    def attach(self, run_id: str, *, from_: int = 0) -> AsyncGenerator[Event, None]:
        """Yield a run's events as `stream` does, beginning after the `position` of an earlier one."""
        return self._connection.follow(events_of(run_id, from_), Following(run_id, from_))

    async def cancel(self, run_id: str) -> RunAnswer:
        """End a run and return when nothing of it is left; `Conflict` if it had ended already."""
        return await self._connection.ask(Ask("POST", _run(run_id) + "/cancel", patient=True), RunAnswer)

    # ------------------------------------------------------------------------------------- the server

    async def languages(self) -> Languages:
        """Return which languages this server can run."""
        return await self._connection.ask(Ask("GET", "/v1/languages"), Languages)

    async def health(self) -> Health:
        """Return whether this server can run code, and what protects it from that code."""
        return await self._connection.ask(Ask("GET", "/health"), Health)

    async def metrics(self) -> Metrics:
        """Return how much there is and what is going on now."""
        return await self._connection.ask(Ask("GET", "/v1/metrics"), Metrics)

    async def _land(self, ask: Ask, landing: Landing, progress: Progress | None) -> Path:
        try:
            async with self._connection.answered(ask) as response:
                landing.expects(response.headers.get("content-length"), progress)
                async for chunk in self._connection.body(response):
                    await in_thread(landing.add, chunk)
            return await in_thread(landing.keep)
        finally:
            await in_thread(landing.discard)


def _sandbox(sandbox: str) -> str:
    return f"/v1/sandboxes/{segment(sandbox)}"


def _file(sandbox: str, path: str) -> str:
    return f"{_sandbox(sandbox)}/files/{file_path(path)}"


def _run(run_id: str) -> str:
    return f"/v1/runs/{segment(run_id)}"


def _flag(name: str, *, on: bool) -> dict[str, str]:
    return {name: "true"} if on else {}
