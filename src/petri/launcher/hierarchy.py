"""What is asked of cgroups, whichever version a host has; `cgroups.py` has both."""

from typing import NamedTuple, Protocol


class Limits(NamedTuple):
    """What one cell may use."""

    cpus: float
    memory_bytes: int
    processes: int


class Spent(NamedTuple):
    """What one cell used."""

    cpu_ms: float
    peak_memory_bytes: int
    oom_killed: bool


class Hierarchy(Protocol):
    """One way a kernel offers cgroups."""

    version: int
    way_in: str
    """How `cell/gate.c` gets a new process into a group, given the group's doors."""

    def bases(self) -> list[str]:
        """Return the folders that hold our groups."""

    def folders(self) -> dict[str, str]:
        """Return the same by controller, for `known`."""

    def hold(self) -> None:
        """Keep hold of the bases, so that they can be reached once their mounts are out of sight."""

    def make(self, name: str, limits: Limits, *, aside: bool) -> None:
        """Make the group `name` with its limits, before anything is in it.

        With `aside`, it uses processors only as far as nobody else wants them, from the start.
        """

    def doors(self, name: str) -> list[int]:
        """Return open descriptors by which a new process gets into the group; see `cell/gate.c`."""

    def is_empty(self, name: str) -> bool:
        """Say whether nobody is left in the group."""

    def kill(self, name: str) -> None:
        """Send SIGKILL to everybody in the group; again until it is empty."""

    def bound(self, memory_bytes: int, processes: int) -> None:
        """Hold all groups together to so much, whatever each of them may use."""

    def give_way(self, name: str) -> None:
        """Have the group use processors, from now on, only as far as younger ones leave them."""

    def stand_aside(self, name: str) -> None:
        """Have the group use processors only as far as nobody else wants them."""

    def come_first(self, name: str) -> bool:
        """Have a group that stood aside use processors as a young one does; say whether it did."""

    def spent(self, name: str) -> Spent:
        """Return what the group used so far."""

    def remove(self, name: str) -> bool:
        """Remove the group if nobody is left in it; say whether it is gone. Removing twice is fine."""
