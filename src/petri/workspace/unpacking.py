"""From an archive somebody sent to its members, whatever kind it is and whatever state it is in."""

import errno
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import zstandard

from petri.errors import Invalid
from petri.workspace.errand import Errand
from petri.workspace.members import CHUNK_BYTES, Allowance, Flow, Members
from petri.workspace.paths import quoted
from petri.workspace.plan import Bounds
from petri.workspace.untar import untar
from petri.workspace.unzip import unzip

_MAGIC = (
    ("zip", 0, b"PK\x03\x04"),
    ("zip", 0, b"PK\x05\x06"),
    ("gzip", 0, b"\x1f\x8b"),
    ("zstd", 0, b"\x28\xb5\x2f\xfd"),
    ("tar", 257, b"ustar"),
)
_GZIP = 31
"""zlib's way to say: a window of 32 KiB, and gzip's header and checksum around it."""
_MAX_WINDOW_BYTES = 1 << 27
"""What `zstd -d` itself allows; a frame may ask for gigabytes of memory."""
_MAX_GZIP_PARTS = 100_000
"""More than `bgzip` makes of a gigabyte; each costs us time even if it is empty."""
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    zstandard.ZstdError,
    EOFError,
    struct.error,
    ValueError,
    OverflowError,
    IndexError,
    RuntimeError,
)
"""How the readers of the standard library fail on bytes that are no archive. Our own errors are none."""


def members(fd: int, name: str, bounds: Bounds, errand: Errand) -> Members:
    """Return the members of the archive open as `fd`; read them within `refusing_broken`."""
    kind = _kind(os.pread(fd, tarfile.BLOCKSIZE, 0), name)
    allowance = Allowance(bounds, os.fstat(fd).st_size, errand)
    if kind == "zip":
        return unzip(fd, bounds.max_files, allowance)
    return untar(Flow(_UNPACKED[kind](fd), allowance))


@contextmanager
def refusing_broken(name: str) -> Iterator[None]:
    """Say it in a sentence when the bytes read in here turn out to be no archive."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:  # a seek to where no file can be
            raise
        raise Invalid(f"{quoted(name)} is damaged; send it again", detail=repr(error)) from error
    except _BROKEN as error:
        raise Invalid(f"{quoted(name)} is damaged or cut short; send it again", detail=repr(error)) from error


def _kind(head: bytes, name: str) -> str:
    for kind, offset, magic in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return kind
    if name.lower().endswith(".tar"):
        return "tar"  # the oldest have no magic, and an empty one is all zeros
    raise Invalid(
        f"{quoted(name)} is no archive that can be unpacked; send a .zip, .tar, .tar.gz, .tgz or .tar.zst"
    )


def _plain(fd: int) -> Iterator[bytes]:
    offset = 0
    while chunk := os.pread(fd, CHUNK_BYTES, offset):
        offset += len(chunk)
        yield chunk


def _gunzipped(fd: int) -> Iterator[bytes]:
    """Yield what was compressed; a gzip file may be several, one after the other."""
    inflater = zlib.decompressobj(wbits=_GZIP)
    parts = 1
    for chunk in _plain(fd):
        while chunk:
            if inflater.eof:
                if not chunk.strip(b"\0"):
                    break  # padding to a tape's block size
                inflater = zlib.decompressobj(wbits=_GZIP)
                parts += 1
                if parts > _MAX_GZIP_PARTS:
                    raise Invalid("the archive is made of too many gzip parts; compress it in one")
            if unpacked := inflater.decompress(chunk, CHUNK_BYTES):
                yield unpacked
            chunk = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
    if not inflater.eof:
        raise EOFError


def _unzstd(fd: int) -> Iterator[bytes]:
    with (
        os.fdopen(os.dup(fd), "rb") as file,
        zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).stream_reader(
            file, read_size=CHUNK_BYTES, read_across_frames=True
        ) as reader,
    ):
        while chunk := reader.read(CHUNK_BYTES):
            yield chunk


_UNPACKED = {"tar": _plain, "gzip": _gunzipped, "zstd": _unzstd}
