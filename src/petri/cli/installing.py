"""A line that shows how packages come along, while somebody waits for them on a terminal."""

import sys
from typing import Any

from petri.cli.printing import plain

_MIB = 2**20
_BAR = 20
_SHOWN = 40
_CLEAR = "\r\x1b[K"


class Installing:
    """Takes a run's `installing` events; shows the latest state on stderr, and nothing where nobody looks."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()
        self._sizes: dict[str, int] = {}
        self._done: set[str] = set()
        self._is_shown = False

    def take(self, detail: Any) -> None:
        """Show what an event says."""
        packages = [str(name) for name in detail.get("packages", ())]
        phase = detail.get("phase")
        if phase == "downloading":
            self._sizes.update(dict.fromkeys(packages, int(detail.get("bytes") or 0)))
        elif phase == "downloaded":
            self._done.update(packages)
        self._show(f"{phase} {', '.join(packages)}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._is_shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_shown = False

    def _show(self, words: str) -> None:
        if self._shows:
            words = words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"
            sys.stderr.write(f"{_CLEAR}{self._bar()}{plain(words)}")
            sys.stderr.flush()
            self._is_shown = True

    def _bar(self) -> str:
        total = sum(self._sizes.values())
        if not total:
            return ""
        done = sum(size for name, size in self._sizes.items() if name in self._done)
        full = _BAR * done // total
        return f"[{'#' * full}{'-' * (_BAR - full)}] {done / _MIB:.0f}/{total / _MIB:.0f} MiB  "
