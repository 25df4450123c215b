"""A tenant: whose sandboxes and keys they are, and how much there may be of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

DEFAULT_TENANT = "default"
"""Whose everything is where there are no keys, and whom `PETRI_API_KEY` belongs to."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """What a tenant may have at one time. 0 is as much as it likes."""

    sandboxes: int = 0
    """Live ones."""
    runs: int = 0
    """Running and waiting."""
    disk_bytes: int = 0
    """What its live sandboxes' files take."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One row of the ledger."""

    name: str
    created_at: float
    own: Mapping[str, int] = field(default_factory=dict)
    """The quotas that are its own, by name; for the others the operator's settings hold."""

    def quotas(self, defaults: Quotas) -> Quotas:
        """Return what holds for this tenant."""
        return replace(defaults, **self.own)
