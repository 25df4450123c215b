"""Large objects in pieces, cut where the content says so: two versions share all pieces but the changed ones.

Pieces of about 64 KiB are where, for 200 MB of which a little changed, the list of pieces and the new pieces
are equally long. Folder objects are cut finer: one entry in thousands is what usually changes.
"""

from collections.abc import Iterable, Iterator, Mapping

from pyfastcdc import FastCDC

from petri.store.layout import BLOB, FOLDER

WHOLE_BYTES: Mapping[int, int] = {BLOB: 1 << 20, FOLDER: 64 << 10}
"""Objects up to this size are stored in one piece."""
LARGEST_PIECE = max(WHOLE_BYTES.values())
WINDOW_BYTES = 2 << 20
"""What is held of a file while it is cut."""

_AVERAGE_BYTES: Mapping[int, int] = {BLOB: 64 << 10, FOLDER: 8 << 10}


def pieces(kind: int, windows: Iterable[bytes]) -> Iterator[memoryview]:
    """Yield the pieces of a large object that comes in windows; each is good until the next is asked for."""
    cutter = FastCDC(_AVERAGE_BYTES[kind])
    rest = b""
    for window in windows:
        buffer = rest + window
        # The last piece ends where the window does, and may go on in the next.
        *whole, last = cutter.cut_buf(buffer)
        for piece in whole:
            yield piece.data
        rest = bytes(last.data)
    if rest:
        yield memoryview(rest)
