"""Transcript: everything a run wrote, in the order it came, where the run cannot reach it.

Imported by: `operations`, `app`. Imports: `petri.model`, `petri.threads`, `petri.errors`.

One file a run, written as the output comes: frames of (stream, length, bytes). A place in that file is what
the API calls a position, so that a client who lost the line can go on from the last one it saw, while the
run goes on or years later. A crash may leave half a frame at the end; what is before it counts.

`frames.py` is the format, `live.py` a transcript that is being written, `excerpt.py` the head and tail that
fit into an answer.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from petri.errors import InvalidField, NotFound
from petri.model import Stream
from petri.transcript.excerpt import Excerpt
from petri.transcript.frames import Chunk, block, chunks
from petri.transcript.live import Transcript, sync_folder

__all__ = ["Chunk", "Excerpt", "Transcript", "Transcripts"]

_CUT_BYTES = 3
"""What there can be at most of a UTF-8 character that is not whole."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
"""What an id may end with: a folder for each keeps folders small, and all of them are made in advance."""


class Transcripts:
    """Every run's transcript under one root."""

    def __init__(self, root: Path, kept_bytes: int) -> None:
        self._root = root
        self._kept_bytes = kept_bytes
        root.mkdir(mode=0o700, parents=True, exist_ok=True)  # by itself: `parents` would go by the umask
        for letter in _LETTERS:
            (root / letter).mkdir(mode=0o700, exist_ok=True)
        sync_folder(root)

    def begin(self, run_id: str, kept_bytes: int | None = None) -> Transcript:
        """Return a new transcript for a run that is about to start; it may keep less than others do."""
        return Transcript(self._path(run_id), min(self._kept_bytes, kept_bytes or self._kept_bytes))

    def replay(self, run_id: str, position: int = 0) -> Iterator[Chunk]:
        """Yield what is on disk from `position` on; nothing for a run that wrote nothing."""
        try:
            descriptor = os.open(self._path(run_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            yield from chunks(descriptor, position)
        finally:
            os.close(descriptor)

    def block(self, run_id: str, position: int) -> list[Chunk]:
        """Return some of what is on disk from `position` on; nothing at its end."""
        return block(self._path(run_id), position)

    def before(self, run_id: str, position: int) -> dict[Stream, bytes]:
        """Return the last few bytes of each stream before `position`: enough to finish a cut character.

        `InvalidField` unless a frame ends there: inside of one the run's own output would be read as frames.
        """
        ends: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}
        reached = 0
        if position > 0:
            for chunk in self.replay(run_id):
                if chunk.position > position:
                    break
                reached = chunk.position
                ends[chunk.stream] = (ends[chunk.stream] + chunk.content)[-_CUT_BYTES:]
        if reached != position:
            raise InvalidField("from", f"{position} is no position of this run; take one from an event's id")
        return ends

    def stream(self, run_id: str, stream: Stream) -> Iterator[bytes]:
        """Yield the exact bytes of one stream."""
        return (chunk.content for chunk in self.replay(run_id) if chunk.stream == stream)

    def excerpt(self, run_id: str, stream: Stream, limit_bytes: int) -> Excerpt:
        """Return the head and tail of one stream, for a run that has ended."""
        found = Excerpt(limit_bytes)
        for content in self.stream(run_id, stream):
            found.take(content)
        return found

    def _path(self, run_id: str) -> Path:
        if "/" in run_id or "." in run_id:
            raise NotFound(f"there is no run {run_id!r}")
        return self._root / run_id[-1:] / run_id
