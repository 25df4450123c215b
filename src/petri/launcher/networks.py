"""Networks for cells, when the launcher is root: a loopback and nothing else, for one cell at a time.

The kernel takes more than a millisecond to make a network and nearly as long to take one apart: a tenth of
what a short run costs. Most runs never send anything. A network in which nothing was ever sent, of which
nobody has a socket and where no flow label waits for its end is as it was made, so the sandbox's next cell
gets it. Nobody in a cell may configure it: it is root's, and no cell is.

What somebody else was handed to hold on to, no look can show. It takes two runs at a time in one sandbox, and
there are none: who lets a second one in must not have networks lent to it (decision 46).
"""

import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from petri.launcher.descriptors import all_or_none
from petri.launcher.namespaces import Home
from petri.launcher.terminals import Devpts, Terminals

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_REQUEST = "16sH14x"
"""`struct ifreq`, as far as it is flags."""
_SENT, _SOCKETS = "/proc/self/net/dev", "/proc/self/net/sockstat"
"""What the loopback has sent so far, and how many sockets there are, whoever holds them."""
_LABELS = "/proc/self/net/ip6_flowlabel"
"""Flow labels, which outlive their sockets by minutes; a kernel with no IPv6 has none."""
_MOST_BYTES = 4096
_MOST = 64
_IDLE_S = 2.0
"""How many lie unused, and for how long: the next cell is made within a moment of the last one's end, or not
at all, and nothing is to be left of a sandbox that is no more."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """One network, held open by us."""

    namespace: int
    witnesses: tuple[int, ...]
    """Files that tell what became of it; opened inside, they tell of inside from anywhere."""
    as_made: tuple[bytes, ...]
    devpts: Devpts | None = None
    """The terminals that are lent with it. One that is held by nobody's process is held by a socket."""

    def is_untouched(self) -> bool:
        """Say whether nothing was ever sent, and nothing is held: no connection, no port, no flow label."""
        return _heard(self.witnesses) == self.as_made

    def is_as_made(self) -> bool:
        """Say whether that is so, and the terminals are as they were made."""
        return self.is_untouched() and (self.devpts is None or self.devpts.is_untouched())

    def close(self) -> None:
        """Let go of it: the kernel takes it apart once nobody is inside."""
        for descriptor in (self.namespace, *self.witnesses):
            os.close(descriptor)
        if self.devpts is not None:
            self.devpts.close()


class Networks:
    """Networks that nobody is in, each for the sandbox whose cell had it before.

    Raises `OSError` where one can be made but not left again: by the root of a container that has its host's
    network. To enter the network one is in takes the same right.
    """

    def __init__(self, terminals: Terminals | None = None) -> None:
        self._terminals = terminals
        """Who makes those that are lent with them."""
        self._home = Home("net")
        self._free: dict[Network, tuple[str, float]] = {}
        """Whose it was and since when it is free, the longest first."""

    def take(self, sandbox: str) -> Network:
        """Return a network for a cell of `sandbox`; raises `OSError` when there cannot be one."""
        for network in [network for network, (owner, _) in self._free.items() if owner == sandbox]:
            if _can_tell(network.is_as_made):  # still: to leave a multicast group is told a moment later
                del self._free[network]
                return network
            self._drop(network)
        return self.make()

    def give_back(self, sandbox: str, network: Network) -> None:
        """Keep a network whose cell is gone for the sandbox's next, if it is as good as new."""
        if not _can_tell(network.is_untouched):
            network.close()
            return
        self._free[network] = sandbox, time.monotonic()
        if len(self._free) > _MOST:
            self._drop(next(iter(self._free)))

    def drop_idle(self) -> float | None:
        """Let go of one that has lain unused for long; return after how many seconds to look again, if ever.

        One at a time: to take it apart takes the kernel a while, and somebody may want something meanwhile.
        """
        due_s = self._due_s()
        if due_s is None or due_s > 0:
            return due_s
        self._drop(next(iter(self._free)))
        return self._due_s()

    def _due_s(self) -> float | None:
        """Return in how many seconds the first of those that lie unused has done so for long."""
        for _, since in self._free.values():
            return max(0.0, since + _IDLE_S - time.monotonic())
        return None

    def make(self) -> Network:
        """Make a network, with terminals where there are such."""
        with self._home.elsewhere():
            network = _inside()
        if self._terminals is None:
            return network
        try:
            return replace(network, devpts=self._terminals.make())
        except OSError:
            network.close()
            raise

    def _drop(self, network: Network) -> None:
        del self._free[network]
        network.close()


def _can_tell(is_good: Callable[[], bool]) -> bool:
    """Say whether all is well, as far as can be told: where a look fails, it is not."""
    try:
        return is_good()
    except OSError:
        return False


def _inside() -> Network:
    """Set the loopback up and return the network that this process is in."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        fcntl.ioctl(asking, _SIOCSIFFLAGS, struct.pack(_REQUEST, b"lo", _IFF_UP))
    with all_or_none() as had:
        for path in ("/proc/self/ns/net", _SENT, _SOCKETS, *((_LABELS,) if os.path.exists(_LABELS) else ())):
            had.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        namespace, *witnesses = had
        return Network(namespace, tuple(witnesses), _heard(witnesses))


def _heard(witnesses: Iterable[int]) -> tuple[bytes, ...]:
    """Return what each says, but of sockets only how many there are: some of the rest is the whole host's."""
    said = (os.pread(witness, _MOST_BYTES, 0) for witness in witnesses)
    return tuple(text.partition(b"\n")[0] if text.startswith(b"sockets:") else text for text in said)
