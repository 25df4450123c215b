"""Terminals that the launcher lends to cells: as good as new, never two cells' at once, but not too many."""

import ctypes
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from petri.launcher import terminals as module
from petri.launcher.libc import mount
from petri.launcher.networks import Network, Networks
from petri.launcher.terminals import Devpts, Terminals
from tests.scarce import descriptors, room_for
from tests.within import within

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount what has a limit")


MS_PRIVATE = 1 << 18
CLONE_FS = 0x200


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder from which no mount spreads, as from none in the launcher's view."""
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.TemporaryDirectory() as made:
        mount(libc, "petri", made, "tmpfs", 0, "size=64k")
        mount(libc, "none", made, None, MS_PRIVATE, None)
        yield made
        assert libc.umount2(made.encode(), 0) == 0


def names(folder: str) -> list[str]:
    return sorted(each.name for each in Path(folder).iterdir())


@pytest.fixture
def networks(folder: str) -> Iterator[Networks]:
    # A launcher has one thread; here others share the current folder, and so could be moved by ours alone.
    assert ctypes.CDLL(None).unshare(CLONE_FS) == 0
    terminals = Terminals(folder)
    lending = Networks(terminals)
    yield lending
    for network in list(lending._free):
        lending._drop(network)
    os.close(lending._home._here)
    os.close(terminals._home._here)


def lent(network: Network) -> Devpts:
    assert network.devpts is not None
    return network.devpts


def inside(network: Network, act: Callable[[], object]) -> None:
    """Do something among a network's terminals, by a process that is gone afterwards."""
    within(lent(network).namespace, act)


def test_those_that_nobody_looked_for_serve_their_sandbox_again(networks: Networks) -> None:
    first = networks.take("a")
    networks.give_back("a", first)

    again = networks.take("a")
    networks.give_back("a", again)

    assert lent(again) is lent(first)


def test_another_sandbox_and_another_cell_have_others(networks: Networks) -> None:
    first = networks.take("a")
    others = [networks.take("a"), networks.take("b")]
    namespaces = {os.fstat(lent(each).namespace).st_ino for each in (first, *others)}
    devices = {os.fstat(lent(each).folder).st_dev for each in (first, *others)}
    for each in (first, *others):
        each.close()

    assert (len(namespaces), len(devices)) == (3, 3)


def test_after_a_terminal_that_is_gone_the_next_cell_begins_at_the_first_again(
    networks: Networks, folder: str
) -> None:
    def open_one() -> None:
        end = os.open(f"{folder}/ptmx", os.O_RDWR | os.O_NOCTTY)
        assert Path(f"{folder}/0").exists()
        os.close(end)

    first = networks.take("a")
    inside(first, open_one)
    networks.give_back("a", first)
    again = networks.take("a")
    inside(again, open_one)
    networks.give_back("a", again)

    assert again is first


def test_those_of_which_somebody_holds_one_serve_nobody_again(networks: Networks) -> None:
    network = networks.take("a")
    held = os.open("ptmx", os.O_RDWR | os.O_NOCTTY, dir_fd=lent(network).folder)
    networks.give_back("a", network)
    other = networks.take("a")
    networks.give_back("a", other)
    os.close(held)

    assert other is not network


@pytest.mark.parametrize(
    "act",
    [names, lambda folder: os.utime(f"{folder}/ptmx")],
    ids=["looked-in", "touched"],
)
def test_those_that_somebody_left_a_time_on_serve_nobody_again(
    networks: Networks, folder: str, act: Callable[[str], object]
) -> None:
    network = networks.take("a")
    os.utime(lent(network).folder, ns=(0, 0))  # long ago: times are as coarse as a clock's tick
    os.utime("ptmx", ns=(0, 0), dir_fd=lent(network).folder)
    object.__setattr__(lent(network), "as_made", module._seen(lent(network).folder))
    inside(network, lambda: act(folder))
    networks.give_back("a", network)

    other = networks.take("a")
    networks.give_back("a", other)
    assert other is not network


def test_to_ask_leaves_no_trace(networks: Networks) -> None:
    network = networks.take("a")
    os.utime(lent(network).folder, ns=(0, 1))

    before = module._seen(lent(network).folder)
    assert module._seen(lent(network).folder) == before
    network.close()


def test_there_are_no_more_than_their_limit(networks: Networks) -> None:
    network = networks.take("a")
    ends: list[int] = []
    with pytest.raises(OSError, match="No space left") as refused:
        while len(ends) < 500:
            ends.append(os.open("ptmx", os.O_RDWR | os.O_NOCTTY, dir_fd=lent(network).folder))
    for end in ends:
        os.close(end)
    network.close()

    assert (refused.value.errno, len(ends)) == (errno.ENOSPC, 64)


def test_whoever_makes_some_stays_among_its_own_mounts(networks: Networks, folder: str) -> None:
    before = Path("/proc/self/ns/mnt").readlink(), Path("/proc/self/mountinfo").read_text()
    networks.take("a").close()

    assert (Path("/proc/self/ns/mnt").readlink(), Path("/proc/self/mountinfo").read_text()) == before
    assert names(folder) == []


@pytest.mark.parametrize("room", range(6))
def test_of_a_network_whose_terminals_could_not_be_made_nothing_stays_open(
    networks: Networks, room: int
) -> None:
    """Network and terminals take six descriptors: each is refused once."""
    before = descriptors()

    with room_for(room), pytest.raises(OSError, match="Too many open files"):
        networks.take("a")

    assert descriptors() == before
