"""A package index on loopback: as small as one can be, and as broken as a test wants it."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LONG_AGO = "2020-01-01T00:00:00.000000Z"


def wheel(
    name: str, version: str, requires: tuple[str, ...] = (), files: Mapping[str, str] | None = None
) -> bytes:
    """Return a wheel with one module of its own name, or with `files`."""
    files = files if files is not None else {f"{name}.py": f"version = {version!r}\n"}
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {each}\n" for each in requires)
    contents = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*contents, f"{info}/RECORD"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in {**contents, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return packed.getvalue()


def sdist(name: str, version: str, files: Mapping[str, str]) -> bytes:
    """Return a source distribution with these files; those in folders above it, too."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}" if not path.startswith(("/", "..")) else path)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def _metadata(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA")))


class PackageIndex:
    """Serves what was `add`ed by the simple API, and counts what was fetched."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, bytes, str, bool]] = {}
        self.fetched: list[str] = []
        self.lies_about_hashes = False
        self.refuses = False
        self.password: str | None = None
        """Of `me`, without which nobody gets anything."""
        self.on_asked: Callable[[], None] = lambda: None
        self.holds = threading.Event()
        self.holds.set()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index._answer(self)

            def do_HEAD(self) -> None:
                index._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        who = f"me:{self.password}@" if self.password else ""
        return f"http://{who}127.0.0.1:{self._server.server_port}/simple"

    def add(self, name: str, version: str, *requires: str, at: str = LONG_AGO, **files: str) -> None:
        """Have another version of a package; `files` are its modules."""
        modules = {f"{module}.py": text for module, text in files.items()} or None
        self.put(name, version, wheel(name, version, requires, modules), at=at)

    def put(
        self, name: str, version: str, content: bytes, *, at: str = LONG_AGO, yanked: bool = False
    ) -> None:
        """Have a wheel of that name and version, whatever is in it."""
        filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        self.files[filename] = (name, content, at, yanked)

    def put_sdist(self, name: str, version: str, content: bytes, *, at: str = LONG_AGO) -> str:
        """Have a source distribution of that name and version, whatever is in it; return its hash."""
        self.files[f"{name.replace('-', '_')}-{version}.tar.gz"] = (name, content, at, False)
        return f"sha256:{hashlib.sha256(content).hexdigest()}"

    def digest(self, filename: str) -> str:
        """Return the hash of a file, as in `sha256:…`."""
        return f"sha256:{hashlib.sha256(self.files[filename][1]).hexdigest()}"

    def stop(self) -> None:
        """Serve no more."""
        self.holds.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.fetched.append(handler.path)
        *_, kind, name = handler.path.rstrip("/").split("/")
        if kind == "files" and not name.endswith(".metadata"):
            self.holds.wait(30)
        self.on_asked()
        shown = handler.headers["Authorization"]
        if self.password and shown != f"Basic {base64.b64encode(f'me:{self.password}'.encode()).decode()}":
            self._send(handler, 401, b"", "text/plain", **{"WWW-Authenticate": 'Basic realm="here"'})
        elif self.refuses:
            self._send(handler, 503, b"", "text/plain")
        elif kind == "files" and name in self.files:
            self._send(handler, 200, self.files[name][1], "application/octet-stream")
        elif kind == "files" and name.removesuffix(".metadata") in self.files:
            self._send(handler, 200, _metadata(self.files[name.removesuffix(".metadata")][1]), "text/plain")
        elif kind == "simple" and any(each[0] == name for each in self.files.values()):
            self._send(handler, 200, self._page(name), "application/vnd.pypi.simple.v1+json")
        else:
            self._send(handler, 404, b"", "text/plain")

    def _page(self, name: str) -> bytes:
        files = [
            {
                "filename": filename,
                "url": f"/files/{filename}",
                "hashes": {
                    "sha256": "0" * 64 if self.lies_about_hashes else hashlib.sha256(content).hexdigest()
                },
                "upload-time": at,
                "size": len(content),
                "core-metadata": filename.endswith(".whl"),
                "yanked": yanked,
            }
            for filename, (owner, content, at, yanked) in self.files.items()
            if owner == name
        ]
        return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": files}).encode()

    def _send(
        self, handler: BaseHTTPRequestHandler, status: int, body: bytes, kind: str, **headers: str
    ) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(body)
