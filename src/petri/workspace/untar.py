"""Reading tar archives from strangers.

`tarfile` decodes the header blocks; what follows from them is decided here, since it would read a long
name of gigabytes into memory, recurse once for every extension header, and seek where a negative
size sends it.
"""

import re
import stat
import tarfile
from collections.abc import Iterator
from typing import Literal

from petri.errors import Invalid
from petri.workspace.members import Flow, Member, Members
from petri.workspace.paths import quoted

_MAX_EXTENSION_BYTES = 1 << 20
"""Longer than any path, with room for the extended attributes some tools add."""
_RECORD = re.compile(rb"(\d{1,7}) ([^=]{1,256})=")

_HEEDED = frozenset({"path", "linkpath", "size"})
_SPARSE = "GNU.sparse."

_KINDS: dict[bytes, Literal["file", "folder", "link", "hardlink"]] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "link",
    tarfile.LNKTYPE: "hardlink",
}
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)


def untar(flow: Flow) -> Members:
    """Yield the members of a tar archive, names still unchecked."""
    extensions: dict[str, str] = {}
    while (header := _header(flow)) is not None:
        flow.allowance.header()
        if header.type == tarfile.XGLTYPE:
            flow.skip(_padded(_size(header, {})))  # git writes one, with a comment
        elif header.type in (*_PAX, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            extensions.update(_extension(header, flow))
        else:
            yield from _member(header, extensions, flow)
            extensions = {}
    flow.drain()


def _header(flow: Flow) -> tarfile.TarInfo | None:
    block = flow.exactly(tarfile.BLOCKSIZE)
    if not block.strip(b"\0"):
        return None
    return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")


def _member(header: tarfile.TarInfo, extensions: dict[str, str], flow: Flow) -> Members:
    name = extensions.get("path", header.name)
    if header.type not in _KINDS or any(key.startswith(_SPARSE) for key in extensions):
        raise Invalid(
            f"the archive's member {quoted(name)} is a device, FIFO, sparse file or of an unknown type; "
            "only files, folders and links can be unpacked"
        )
    kind = _KINDS[header.type]
    if kind == "file" and name.endswith("/"):
        kind = "folder"  # the way of tars older than the folder type
    size = _size(header, extensions) if kind == "file" else 0
    target = extensions.get("linkpath", header.linkname)
    yield Member(name, kind, stat.S_IMODE(header.mode), target), flow.stream(size)
    flow.skip(_padded(size) - size)


def _size(header: tarfile.TarInfo, extensions: dict[str, str]) -> int:
    size = int(extensions.get("size", header.size))
    if size < 0:
        raise Invalid(f"the archive's member {quoted(header.name)} has a negative size")
    return size


def _extension(header: tarfile.TarInfo, flow: Flow) -> dict[str, str]:
    if not 0 <= header.size <= _MAX_EXTENSION_BYTES:
        raise Invalid(f"the archive has a header of {header.size} bytes; no path is so long")
    body = flow.exactly(_padded(header.size))[: header.size]
    if header.type in _PAX:
        return dict(_records(body))
    text = body.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
    return {"path" if header.type == tarfile.GNUTYPE_LONGNAME else "linkpath": text}


def _records(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield those `LENGTH KEY=VALUE` lines of a pax header that matter here."""
    start = 0
    while start < len(body) and body[start]:
        found = _RECORD.match(body, start)
        end = start + int(found[1]) if found else 0
        if found is None or not found.end() < end <= len(body):
            raise Invalid("the archive has a damaged pax header")
        key = found[2].decode("utf-8", "surrogateescape")
        if key in _HEEDED or key.startswith(_SPARSE):
            yield key, body[found.end() : end - 1].decode("utf-8", "surrogateescape")
        start = end


def _padded(size: int) -> int:
    return -size % tarfile.BLOCKSIZE + size
