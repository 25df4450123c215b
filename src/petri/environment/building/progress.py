"""What is told while packages are on their way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Phase = Literal["resolving", "downloading", "downloaded", "building", "installing", "installed"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One step on the way to an environment."""

    phase: Phase
    packages: tuple[str, ...]
    size: int | None = None
    """Bytes: of a download that begins, or of all that is installed."""


Tell = Callable[[Progress], None]
"""Takes each step as it happens; must not raise."""
