"""A progress bar, when there is somebody to see it and something to wait for."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

WORTH_SHOWING_BYTES = 4 * 2**20
"""Anything smaller is over before a bar could be read."""


class Bar:
    """Takes the SDK's reports; shows a bar on stderr once one is worth it."""

    def __init__(self) -> None:
        self._shown: ProgressBar[int] | None = None
        self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, done: int, total: int | None) -> None:
        if done < self._done:
            self.close()  # the next file, or the same one once more
        if self._shown is None and total is not None and total >= WORTH_SHOWING_BYTES and sys.stderr.isatty():
            import click  # on use: it takes longer to load than most transfers

            self._shown = click.progressbar(length=total, file=sys.stderr)
            self._shown.__enter__()
        if self._shown is not None:
            self._shown.update(done - self._done)
        self._done = done

    def close(self) -> None:
        """End the bar's line."""
        if self._shown is not None:
            self._shown.__exit__(None, None, None)
        self._shown, self._done = None, 0
