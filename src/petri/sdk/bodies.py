"""Files on their way to a sandbox: what to send, and sending it piece by piece from the disk.

Nothing is ever read whole, so a folder of any size costs one piece of memory and one open file.
"""

import base64
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from petri.errors import Invalid

PIECE_BYTES = 256 * 1024

Content = bytes | str | os.PathLike[str] | BinaryIO
"""What one file shall hold: bytes, text, a file of this machine (as a `Path`), or an open binary file."""
Source = str | os.PathLike[str] | Mapping[str, bytes | str | os.PathLike[str]]
"""A file or folder of this machine; or paths in the sandbox, each with what it shall hold."""
Progress = Callable[[int, int | None], None]
"""Called as bytes pass: how many have, and of how many, where that is known."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of an upload."""

    path: str
    """Where it goes in the workspace."""
    content: bytes | Path
    size: int


def parts(sources: Iterable[Source], into: str = "", skip: Iterable[str] = ()) -> list[Part]:
    """Return every file that `sources` stand for, with its path in the sandbox under the folder `into`.

    A folder stands for all regular files beneath it, under its own name; written with a slash at the
    end, or if it has no name (`.`), under none.
    A link to a file counts as that file; links to folders are not followed, they could lead in circles;
    entries named in `skip` are left out at every depth.
    """
    prefix = into.strip("/") + "/" if into.strip("/") else ""
    found: list[Part] = []
    for source in sources:
        if isinstance(source, Mapping):
            found += [_part(prefix + path, content) for path, content in source.items()]
        else:
            found += [_part(prefix + name, path) for name, path in _beneath(source, frozenset(skip))]
    if not found:
        raise Invalid("there is nothing to upload: no files were given, or none are in the folders")
    return found


def _part(path: str, content: bytes | str | os.PathLike[str]) -> Part:
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, bytes):
        return Part(path, content, len(content))
    status = Path(content).stat()
    if not stat.S_ISREG(status.st_mode):
        raise Invalid(f"{content} is not a regular file")
    return Part(path, Path(content), status.st_size)


def _beneath(source: str | os.PathLike[str], skip: frozenset[str]) -> Iterator[tuple[str, Path]]:
    top = Path(source)
    if not top.is_dir():
        yield top.name, top
        return
    nameless = top.name in ("", "..") or os.fspath(source).endswith("/")
    base = top if nameless else top.parent
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in skip)
        for name in sorted(set(names) - skip):
            path = Path(folder, name)
            if path.is_file():  # a FIFO or a device would hold the upload for ever
                yield path.relative_to(base).as_posix(), path


class Multipart:
    """Many files in one request, each a part named `file` whose filename holds its folders."""

    def __init__(self, files: list[Part], progress: Progress | None = None) -> None:
        self._boundary = secrets.token_hex(16)
        self._end = f"--{self._boundary}--\r\n".encode()
        self._files = [(self._head(file.path), file) for file in files]
        self._progress = progress
        self._total = len(self._end) + sum(len(head) + file.size + 2 for head, file in self._files)
        self.repeatable = True
        self.headers = {
            "Content-Type": f"multipart/form-data; boundary={self._boundary}",
            "Content-Length": str(self._total),
        }

    def chunks(self) -> Iterator[bytes]:
        return counted(self._chunks(), self._total, self._progress)

    def _chunks(self) -> Iterator[bytes]:
        for head, file in self._files:
            yield head
            yield from _pieces_of(file)
            yield b"\r\n"
        yield self._end

    def _head(self, path: str) -> bytes:
        if "\r" in path or "\n" in path:
            raise Invalid(f"{path!r} has a line break in its name; give it another, or use `write`")
        name = path.replace("\\", "\\\\").replace('"', '\\"')
        return os.fsencode(
            f'--{self._boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )


class OneFile:
    """The bytes of one file, as they are."""

    def __init__(self, content: Content, progress: Progress | None = None) -> None:
        self._part, self._stream = _part_or_stream(content)
        self._progress = progress
        self.repeatable = self._stream is None
        self.headers = {"Content-Type": "application/octet-stream"}
        if self._part is not None:
            self.headers["Content-Length"] = str(self._part.size)

    def chunks(self) -> Iterator[bytes]:
        if self._part is not None:
            return counted(_pieces_of(self._part), self._part.size, self._progress)
        assert self._stream is not None
        return counted(_pieces(self._stream), None, self._progress)


def as_text_or_base64(files: Mapping[str, bytes | str | os.PathLike[str]]) -> dict[str, Any]:
    """Return `files` as JSON can hold them."""
    return {path: _text_or_base64(content) for path, content in files.items()}


def _text_or_base64(content: bytes | str | os.PathLike[str]) -> str | dict[str, str]:
    if isinstance(content, str):
        return content
    exact = content if isinstance(content, bytes) else Path(content).read_bytes()
    try:
        return exact.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(exact).decode()}


def counted(chunks: Iterator[bytes], total: int | None, progress: Progress | None) -> Iterator[bytes]:
    """Yield `chunks`, telling `progress` about each."""
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        if progress is not None:
            progress(done, total)


def _part_or_stream(content: Content) -> tuple[Part | None, BinaryIO | None]:
    if isinstance(content, bytes | str | os.PathLike):
        return _part("", content), None
    return None, content


def _pieces_of(part: Part) -> Iterator[bytes]:
    if isinstance(part.content, bytes):
        yield part.content
        return
    left = part.size
    with part.content.open("rb") as file:
        while left > 0 and (piece := file.read(min(PIECE_BYTES, left))):
            left -= len(piece)
            yield piece
    if left:
        # Its length was announced before its bytes were sent, and nothing else can be made of them now.
        raise Invalid(f"{part.content} became shorter while it was being sent")


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    while piece := stream.read(PIECE_BYTES):
        yield piece
