"""A peer: another sandbox of the same tenant whose files a sandbox's runs may read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """Whose files are seen, where, and as of when."""

    sandbox_id: str
    at: str
    """The path inside the cell, below `/peers/`."""
    tree: str | None = None
    """The tree it is frozen at; None: as it is at the start of each run."""
    snapshot: str | None = None
    """The snapshot that tree was taken from, if it was."""


@dataclass(frozen=True, slots=True)
class SeenPeer:
    """What a run saw of a peer."""

    sandbox_id: str
    at: str
    tree: str
