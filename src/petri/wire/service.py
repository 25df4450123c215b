"""The server itself on the wire: what it offers, how it is, and how it says no."""

from petri.wire.values import Answer


class LanguageAnswer(Answer):
    """A language, and whether this host can run it."""

    name: str
    available: bool
    version: str | None
    endings: list[str]
    needs: str | None
    """What is missing, when it is not available."""


class Languages(Answer):
    """What this host can run."""

    languages: list[LanguageAnswer]


class LayerAnswer(Answer):
    """One protective layer."""

    name: str
    on: bool
    says: str
    """What it does, or why it is off."""
    remedy: str | None
    """The command that would switch it on or, where it is on, make it stronger."""


class Health(Answer):
    """Whether Petri can run code, and what protects the host from it."""

    status: str
    """`ok`, or `refusing` when code cannot be run safely here."""
    version: str
    layers: list[LayerAnswer]


class Metrics(Answer):
    """Counts since the ledger began, and what is going on now."""

    sandboxes: dict[str, int]
    """By state."""
    runs: dict[str, int]
    """By state."""
    running: int
    waiting: int
    uptime_s: float
    store_bytes: int = 0
    """What is kept of snapshots and of sandboxes' history takes so much of the disk."""


class PathConflict(Answer):
    """A path that both sides of a sync changed, each in its own way."""

    path: str
    path_base64: str | None = None
    """The path's exact bytes, where it is no UTF-8."""
    reason: str


class Problem(Answer):
    """An error, as RFC 9457 has it (`application/problem+json`)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    """Petri's own stable name for it."""
    field: str | None = None
    """The part of the request that was wrong."""
    conflicts: list[PathConflict] | None = None
    """With `paths_conflict`: every path, and why; the first thousand."""
