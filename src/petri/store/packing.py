"""Contents as they are stored: compressed where that helps."""

import threading

import zstandard

from petri.errors import Unavailable
from petri.store.cutting import LARGEST_PIECE
from petri.store.layout import PLAIN, ZSTD
from petri.store.table import Place

HEADER_BYTES = 18
"""A zstd frame says within so many how long its content is."""
_LEVEL = 1
"""Level 3 takes twice as long for 3 % less."""
_TOO_SHORT = 64
_per_thread = threading.local()


def pack(content: bytes | memoryview) -> tuple[bytes, int]:
    """Return `content` as it is stored, and in which form."""
    if len(content) >= _TOO_SHORT:
        packed: bytes = _compressor().compress(content)
        if len(packed) < len(content) - len(content) // 16:
            return packed, ZSTD
    return bytes(content), PLAIN


def unpack(digest: bytes, place: Place, stored: bytes) -> bytes:
    """Return the content that is stored so; `Unavailable` if it is damaged."""
    if place.form == PLAIN:
        return stored
    try:
        # A damaged frame may claim any length, and that much memory would be asked for.
        if size_of(place, stored) <= LARGEST_PIECE:
            content: bytes = _decompressor().decompress(stored)
            return content
    except zstandard.ZstdError:
        pass
    raise damaged(digest, place)


def size_of(place: Place, stored: bytes) -> int:
    """Return how long a content is, by the first `HEADER_BYTES` of what is stored."""
    return zstandard.frame_content_size(stored) if place.form == ZSTD else place.stored


def damaged(digest: bytes, place: Place) -> Unavailable:
    """Return what is said of an object that is not what it was."""
    return Unavailable(f"object {digest.hex()} is damaged, in pack {place.pack} at {place.offset}")


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_per_thread, "compressor"):
        _per_thread.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    compressor: zstandard.ZstdCompressor = _per_thread.compressor
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_per_thread, "decompressor"):
        _per_thread.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _per_thread.decompressor
    return decompressor
