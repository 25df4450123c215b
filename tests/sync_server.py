"""A server for syncs, in memory: honest HTTP and an honest settlement, with faults on demand.

It stands in for the real one in tests of the client. What it does with records is all a server has to do.
"""

import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from petri.api.problems import STATUS
from petri.errors import BaseUnknown, Invalid, NotFound, PathsConflict, PetriError
from petri.syncing import delta, having
from petri.syncing.growing import Growing
from petri.syncing.ignoring import Ignoring
from petri.syncing.records import (
    Agreed,
    Base,
    ChangedFile,
    Clash,
    End,
    KnownFile,
    Record,
    Said,
    WholeFile,
)
from petri.syncing.settling import Meeting, Settled, settle
from petri.syncing.stream import Incoming, Outgoing
from petri.syncing.telling import NewFile, steps
from petri.trees import EMPTY, File, Folder, FolderObject, Link, address, decode, find, walk

STAMP = b"20261116-120000"
MEDIA = "application/vnd.petri.sync"


def noise(size: int, seed: int = 1) -> bytes:
    """Return bytes that nothing compresses, the same ones each time."""
    return random.Random(seed).randbytes(size)


class Cut(Exception):
    """The connection is to break, here and now."""


class SyncServer:
    """Sandboxes by id, each a tree; one store of contents and folder objects for all of them."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, bytes] = {}
        self.names: dict[str, str] = {}
        self.objects: dict[bytes, bytes] = {}
        self.contents: dict[bytes, bytes] = {}
        self.begun: dict[bytes, bytes] = {}
        self.requests: list[str] = []
        self.received: list[Record] = []
        """The records of the last sync."""
        self.cut_after: int | None = None
        """Break the connection once so many bytes of a body have come; once."""
        self.cut_answer_after: int | None = None
        self.refusals: list[PetriError] = []
        """What to say to the next requests, instead of an answer."""
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens between a request and its answer."""
        self._made = 0
        self._lock = threading.Lock()
        self._port = 0
        self.start()

    # ------------------------------------------------------------------------------- as a fixture

    def start(self) -> None:
        """Listen, at the same address as before."""
        handler = type("Handler", (_Handler,), {"server_state": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._http.daemon_threads = True
        self._port = self._http.server_port
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Listen no more, and hang up on everybody."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        for connection in list(_Handler.connections):
            connection.close_now()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def create(self, name: str = "") -> str:
        """Make a sandbox and return its id."""
        letters = "abcdefghijklmnopqrstuvwxyz234567"
        self._made += 1
        number = self._made
        sandbox = "sb-" + "".join(letters[number >> 5 * place & 31] for place in range(20))
        self.sandboxes[sandbox] = EMPTY
        self.names[name or sandbox] = sandbox
        return sandbox

    def delete(self, sandbox: str) -> None:
        """Have it no more, and its name free."""
        del self.sandboxes[sandbox]
        self.names = {name: each for name, each in self.names.items() if each != sandbox}

    def kinds(self) -> list[str]:
        """Return what the records of the last sync were."""
        return [type(record).__name__ for record in self.received]

    # ------------------------------------------------------------------- what runs do to the files

    def write(self, sandbox: str, path: str, content: bytes | None, mode: int = 6) -> None:
        """Have a file there, as a run would; None removes what is there."""
        growing = Growing(self.fetch, self.sandboxes[sandbox])
        if content is None:
            growing.set(os.fsencode(path), None)
        else:
            growing.set(os.fsencode(path), File(self._keep(content), len(content), mode))
        self.sandboxes[sandbox] = growing.tree(self.put)

    def link(self, sandbox: str, path: str, target: str) -> None:
        """Have a link there."""
        growing = Growing(self.fetch, self.sandboxes[sandbox])
        growing.set(os.fsencode(path), Link(target.encode()))
        self.sandboxes[sandbox] = growing.tree(self.put)

    def make_folder(self, sandbox: str, path: str) -> None:
        """Have an empty folder there."""
        growing = Growing(self.fetch, self.sandboxes[sandbox])
        growing.set(os.fsencode(path), Folder(EMPTY))
        self.sandboxes[sandbox] = growing.tree(self.put)

    def files(self, sandbox: str) -> dict[bytes, bytes]:
        """Return what every file there holds."""
        found = walk(self.fetch, self.sandboxes[sandbox])
        return {path: self.contents[each.digest] for path, each in found if isinstance(each, File)}

    def forge(self, content: bytes, forged: bytes) -> None:
        """Send something else whenever `content` is asked for, under its digest."""
        self.contents[address(content)] = forged

    def forget(self) -> None:
        """Lose every tree but the sandboxes' own, and every content but theirs: as after a clean-up."""
        kept = {}
        for tree in self.sandboxes.values():
            waiting = [tree]
            while waiting:
                wanted = waiting.pop()
                if wanted in self.objects:
                    kept[wanted] = self.objects[wanted]
                    waiting += [each[0] for each in self.fetch(wanted).values() if not isinstance(each, File)]
        self.objects = kept

    # --------------------------------------------------------------------------------- the server

    def fetch(self, wanted: bytes) -> FolderObject:
        if wanted not in self.objects:
            raise NotFound(wanted.hex())
        return decode(self.objects[wanted])

    def put(self, encoded: bytes) -> bytes:
        self.objects[address(encoded)] = encoded
        return address(encoded)

    def _keep(self, content: bytes) -> bytes:
        self.contents[address(content)] = content
        return address(content)

    def have(self, question: bytes) -> bytes:
        asked = having.asked_digests(question)
        begun = {n: len(self.begun[each]) for n, each in enumerate(asked) if each in self.begun}
        return having.encode_held([each in self.contents for each in asked], begun)

    def sync(self, sandbox: str, query: dict[str, str], incoming: Incoming) -> bytes:
        """Take a request and return the answer."""
        mode: Any = query["mode"]
        prefer: Any = query.get("prefer")
        dry_run = query.get("dry_run") == "true"
        agreed, folder = self._read(incoming)
        with self._lock:
            met = Meeting(
                self.fetch,
                self.put,
                agreed,
                folder,
                self.sandboxes[sandbox],
                Ignoring(lambda path: self._rules(path, (folder, agreed))),
            )
            settled = settle(met, mode, prefer, STAMP)
            if not dry_run:
                self._refuse_what_lacks_contents(self.sandboxes[sandbox], settled.sandbox)
                self.sandboxes[sandbox] = settled.sandbox
        self.meanwhile()
        return self._answer(folder, settled, with_contents=not dry_run, whole="whole" in query)

    def _read(self, incoming: Incoming) -> tuple[bytes, bytes]:
        """Take the records of a request; return what was agreed on, and what the folder is."""
        growing: Growing | None = None
        agreed = end = None
        self.received = []
        for record in incoming:
            self.received.append(record)
            if isinstance(record, Base):
                growing = self._started(record.tree)
                agreed = growing.tree(self.put) if agreed is None else agreed
                continue
            if growing is None:
                raise Invalid("a request begins with a Base record")
            if isinstance(record, Agreed | End):
                found = growing.tree(self.put)
                if found != record.tree:
                    raise Invalid("the records do not make the tree they say")
                agreed, end = (found, end) if isinstance(record, Agreed) else (agreed, found)
                continue
            growing.apply(record)
            self._take(record, incoming)
        assert agreed is not None
        assert end is not None
        return agreed, end

    def _started(self, tree: bytes) -> Growing:
        try:
            return Growing(self.fetch, tree)
        except NotFound:
            raise BaseUnknown(f"the tree {tree.hex()} is not known here") from None

    def _take(self, record: Record, incoming: Incoming) -> None:
        if isinstance(record, WholeFile):
            content = bytearray(self.begun.get(record.digest, b"")[: record.offset])
            if len(content) != record.offset:
                raise BaseUnknown("the beginning of a content is not known here")
            for piece in incoming.payload():
                content += piece
                self.begun[record.digest] = bytes(content)
        elif isinstance(record, ChangedFile):
            if record.old not in self.contents:
                raise BaseUnknown(f"the content {record.old.hex()} is not known here")
            old = self.contents[record.old]
            pieces = delta.rebuild(incoming.payload(), lambda at, n: old[at : at + n], record.size)
            content = bytearray(b"".join(pieces))
        else:
            return
        self.begun.pop(record.digest, None)
        if address(bytes(content)) != record.digest or len(content) != record.size:
            raise Invalid(f"the content of {record.path!r} is not the one announced")
        self._keep(bytes(content))

    def _rules(self, path: bytes, trees: tuple[bytes, ...]) -> bytes | None:
        for tree in trees:
            entry = find(self.fetch, tree, path)
            if isinstance(entry, File) and entry.digest in self.contents:
                return self.contents[entry.digest]
        return None

    def _refuse_what_lacks_contents(self, old: bytes, new: bytes) -> None:
        for step in steps(self.fetch, old, new):
            if isinstance(step, NewFile) and step.file.digest not in self.contents:
                raise BaseUnknown(f"the content {step.file.digest.hex()} is not known here")

    def _answer(self, folder: bytes, settled: Settled, *, with_contents: bool, whole: bool) -> bytes:
        sent = bytearray()
        out = Outgoing(sent.extend)
        out.add(Said(json.dumps({"sandbox_tree": settled.sandbox.hex()}).encode()))
        for path, reason in settled.conflicts:
            out.add(Clash(path, reason.encode()))
        if settled.agreed != settled.folder:
            for step in steps(self.fetch, folder, settled.agreed):
                out.add(_known(step) if isinstance(step, NewFile) else step)
            out.add(Agreed(settled.agreed))
            out.add(Base(folder))
        theirs = {each.digest for _, each in walk(self.fetch, folder) if isinstance(each, File)}
        for step in steps(self.fetch, folder, settled.folder):
            if not isinstance(step, NewFile):
                out.add(step)
            elif step.file.digest in theirs or not with_contents:
                out.add(_known(step))
            else:
                out.add(*self._with_content(step, whole=whole))
        out.add(End(settled.folder))
        out.end()
        return bytes(sent)

    def _with_content(self, step: NewFile, *, whole: bool) -> tuple[Record, list[bytes]]:
        path, (digest, size, mode), old = step
        new = self.contents[digest]
        if old is not None and old.digest in self.contents and size >= delta.WORTH_SIGNING and not whole:
            before = self.contents[old.digest]
            signature = delta.sign(lambda at, n: before[at : at + n], len(before))
            made = delta.compare(signature, lambda at, n: new[at : at + n], size)
            record = ChangedFile(path, mode, size, digest, old.digest, made.payload_length())
            return record, list(made.payload(lambda at, n: new[at : at + n]))
        return WholeFile(path, mode, size, digest, 0), [new]


def _known(step: NewFile) -> KnownFile:
    return KnownFile(step.path, step.file.mode, step.file.size, step.file.digest)


class _Body:
    """The body of a request, chunked or not."""

    def __init__(self, handler: "_Handler") -> None:
        self._handler = handler
        self._chunked = "chunked" in (handler.headers.get("Transfer-Encoding") or "")
        self._left = 0 if self._chunked else int(handler.headers.get("Content-Length") or 0)
        self._ended = not self._chunked and not self._left
        self._read = 0

    def read(self, size: int, /) -> bytes:
        if self._ended:
            return b""
        if self._chunked and not self._left:
            self._left = int(self._handler.rfile.readline().strip() or b"0", 16)
            if not self._left:
                self._handler.rfile.readline()
                self._ended = True
                return b""
        data = self._handler.rfile.read1(min(size, self._left))
        if not data:
            raise Cut
        self._left -= len(data)
        if not self._left:
            if self._chunked:
                self._handler.rfile.readline()
            else:
                self._ended = True
        self._read += len(data)
        self._cut()
        return data

    def _cut(self) -> None:
        state = self._handler.server_state
        if state.cut_after is not None and self._read > state.cut_after:
            state.cut_after = None
            raise Cut

    def pieces(self) -> Iterator[bytes]:
        while piece := self.read(2**16):
            yield piece


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: ClassVar[SyncServer]
    connections: ClassVar[set["_Handler"]] = set()

    def setup(self) -> None:
        super().setup()
        self.connections.add(self)

    def finish(self) -> None:
        self.connections.discard(self)
        super().finish()

    def close_now(self) -> None:
        self.connection.close()

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def _handle(self) -> None:
        body = _Body(self)
        try:
            status, media, content = self._content(body)
            for _ in body.pieces():
                pass
        except Cut:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.server_state.cut_answer_after is not None:
            content = content[: self.server_state.cut_answer_after]
            self.server_state.cut_answer_after = None
            self.close_connection = True
        self.wfile.write(content)

    def _content(self, body: _Body) -> tuple[int, str, bytes]:
        state = self.server_state
        address = urlsplit(self.path)
        state.requests.append(f"{self.command} {self.path}")
        try:
            if state.refusals:
                raise state.refusals.pop(0)
            return self._answer(
                address.path, {name: value[0] for name, value in parse_qs(address.query).items()}, body
            )
        except PetriError as error:
            problem = {"code": error.code, "detail": error.message}
            if isinstance(error, PathsConflict):
                problem["conflicts"] = [  # type: ignore[assignment]
                    {"path": path.decode(errors="replace"), "reason": reason}
                    for path, reason in error.conflicts
                ]
            return STATUS[type(error)], "application/problem+json", json.dumps(problem).encode()

    def _answer(self, path: str, query: dict[str, str], body: _Body) -> tuple[int, str, bytes]:
        state = self.server_state
        parts = path.strip("/").split("/")
        if parts == ["v1", "sandboxes"]:
            found = [{"id": state.names[query["name"]]}] if query["name"] in state.names else []
            return 200, "application/json", json.dumps({"sandboxes": found}).encode()
        sandbox = parts[2]
        if sandbox not in state.sandboxes:
            raise NotFound(f"there is no sandbox {sandbox}")
        if parts[3:] == ["sync", "have"]:
            return 200, MEDIA, state.have(b"".join(body.pieces()))
        assert parts[3:] == ["sync"], path
        return 200, MEDIA, state.sync(sandbox, query, Incoming(body, most_bytes=2**40))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
