"""Transcript: everything a run wrote, in the order it came, where the run cannot reach it.

Imported by: `operations`, `app`. Imports: `petri.model`, `petri.threads`, `petri.errors`.

Frames of (stream, length, bytes). A place among them is what the API calls a position, so that a client who
lost the line can go on from the last one it saw, while the run goes on or years later. Where they are:

    while the run goes on   in memory as long as they are few; in a file of its own as soon as they are many,
                            somebody follows, or a tenth of a second has passed
    afterwards              in the ledger if they are few, with how the run ended; else in that file

So whoever was shown something finds it again after a crash, and a short run costs no file and no fsync. A
crash may leave half a frame at a file's end; what is before it counts.

`frames.py` is the format, `live.py` a transcript that is being written, `written.py` one that is read,
`excerpt.py` the head and tail that fit into an answer.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from petri.errors import NotFound
from petri.transcript.excerpt import Excerpt
from petri.transcript.frames import Chunk
from petri.transcript.live import FEW_BYTES, Transcript, sync_folder
from petri.transcript.written import Written

__all__ = ["FEW_BYTES", "Chunk", "Excerpt", "Transcript", "Transcripts", "Written"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
"""What an id may end with: a folder for each keeps folders small, and all of them are made in advance."""


class Transcripts:
    """Every run's transcript that has a file, under one root."""

    def __init__(self, root: Path, kept_bytes: int) -> None:
        self._root = root
        self._kept_bytes = kept_bytes
        root.mkdir(mode=0o700, parents=True, exist_ok=True)  # by itself: `parents` would go by the umask
        for letter in _LETTERS:
            (root / letter).mkdir(mode=0o700, exist_ok=True)
        sync_folder(root)

    def begin(self, run_id: str, kept_bytes: int | None = None) -> Transcript:
        """Return a new transcript for a run that is about to start; it may keep less than others do."""
        return Transcript(self._name(run_id), min(self._kept_bytes, kept_bytes or self._kept_bytes))

    def file(self, run_id: str) -> Written:
        """Return what is on disk of a run; that is nothing for one that wrote nothing, or little."""
        return Written(self._name(run_id)())

    def _name(self, run_id: str) -> Callable[[], Path]:
        if "/" in run_id or "." in run_id:
            raise NotFound(f"there is no run {run_id!r}")
        return partial(self._root.joinpath, run_id[-1:], run_id)
