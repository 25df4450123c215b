"""Layers that stood at the start, looked at anew: a host can lose one while the server runs.

No cell is made for it, so that `/health` may be asked as often as anybody likes. Nothing would run bare in
any case: a cell that cannot be made is an error.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from petri.engine import Layer, walls
from petri.engine.rootfs import PROGRAMS

_RESTART = "restart the server"


class Vigil:
    """Keeps an eye on what cells are made of. Begun once a trial cell was made, or could not be."""

    def __init__(self, bwrap: str | None, rootfs: Path, groups: Path) -> None:
        self._bwrap = bwrap
        self._rootfs = rootfs
        self._groups = groups
        self._bearable = walls.forbidden_namespaces()
        """What is forbidden to others, since a cell was made all the same."""
        self._looks: Mapping[str, Callable[[], Layer | None]] = {
            "bubblewrap": self._program_is_gone,
            "namespaces": self._namespaces_are_gone,
            "cgroups": self._groups_are_gone,
        }

    def look(self, layers: Sequence[Layer]) -> list[Layer]:
        """Return `layers` as they are now; one that was off from the start stays so until the next."""
        return [self._now(layer) for layer in layers]

    def _now(self, layer: Layer) -> Layer:
        if not layer.on or layer.name not in self._looks:
            return layer
        gone = self._looks[layer.name]()
        return layer if gone is None else replace(gone, required=layer.required)

    def _program_is_gone(self) -> Layer | None:
        if self._bwrap is None or not os.access(self._bwrap, os.X_OK):
            return walls.no_bubblewrap()
        if not all((self._rootfs / place).is_file() for place in PROGRAMS.values()):
            return Layer("bubblewrap", False, "a cell's root is not whole any more", remedy=_RESTART)
        return None

    def _namespaces_are_gone(self) -> Layer | None:
        forbidden = walls.forbidden_namespaces()
        return None if forbidden == self._bearable else forbidden

    def _groups_are_gone(self) -> Layer | None:
        """Look at where groups are made; the launcher has written that down."""
        try:
            above = [Path(base).parent for base in self._groups.read_text().splitlines()]
        except OSError:
            above = []
        if above and all(os.access(folder, os.W_OK) for folder in above):
            return None
        return Layer("cgroups", False, "no group can be made any more", remedy=_RESTART)
