"""Networks that the launcher lends to cells: private, as good as new, never two cells' at once."""

import ctypes
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from petri.launcher import networks as module
from petri.launcher.networks import Network, Networks
from tests.scarce import descriptors, room_for
from tests.within import within

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make networks")


IPV6_FLOWLABEL_MGR = 32
CLONE_NEWUSER, CLONE_NEWNET = 0x1000_0000, 0x4000_0000


@pytest.fixture
def networks() -> Iterator[Networks]:
    lending = Networks()
    yield lending
    for network in list(lending._free):
        lending._drop(network)
    os.close(lending._home._here)


def inside(network: Network, act: Callable[[], object]) -> None:
    """Do something in a network, by a process that is gone afterwards."""
    within(network.namespace, act)


def is_open(network: Network) -> bool:
    try:
        for descriptor in (network.namespace, *network.witnesses):
            os.fstat(descriptor)
    except OSError:
        return False
    return True


def connect(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as listening:
        listening.bind((host, 0))
        listening.listen()
        socket.create_connection(listening.getsockname()[:2]).close()


def send_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.sendto(b"x", ("127.0.0.1", 9))


def test_one_that_is_as_it_was_made_serves_its_sandbox_again(networks: Networks) -> None:
    first = networks.take("a")
    networks.give_back("a", first)

    again = networks.take("a")
    networks.give_back("a", again)

    assert again is first


def test_another_sandbox_never_gets_it(networks: Networks) -> None:
    first = networks.take("a")
    networks.give_back("a", first)

    other = networks.take("b")
    networks.give_back("b", other)

    assert os.fstat(other.namespace).st_ino != os.fstat(first.namespace).st_ino


def test_two_cells_of_a_sandbox_are_never_in_one(networks: Networks) -> None:
    first, second = networks.take("a"), networks.take("a")
    networks.give_back("a", first)
    networks.give_back("a", second)

    assert os.fstat(first.namespace).st_ino != os.fstat(second.namespace).st_ino


@pytest.mark.parametrize(
    "act",
    [
        lambda: connect(socket.AF_INET, "127.0.0.1"),
        lambda: connect(socket.AF_INET, "127.8.8.8"),
        lambda: connect(socket.AF_INET6, "::1"),
        send_datagram,
    ],
    ids=["tcp", "tcp-elsewhere-on-loopback", "tcp6", "udp"],
)
def test_one_in_which_anything_was_sent_serves_nobody_again(
    networks: Networks, act: Callable[[], object]
) -> None:
    used = networks.take("a")
    inside(used, act)
    networks.give_back("a", used)

    assert not is_open(used)
    networks.give_back("a", fresh := networks.take("a"))
    assert is_open(fresh)


def test_one_in_which_somebody_only_listened_is_as_it_was_made(networks: Networks) -> None:
    def listen() -> None:
        socket.create_server(("127.0.0.1", 8000))
        socket.socket(socket.AF_UNIX).bind("\0petri")

    network = networks.take("a")
    inside(network, listen)
    networks.give_back("a", network)

    assert networks.take("a") is network
    inside(network, listen)  # nothing of the first is in the way
    networks.give_back("a", network)


def test_one_whose_socket_somebody_still_holds_serves_nobody_again(networks: Networks) -> None:
    """As the kernel does, of a socket that was on its way to another when its cell ended."""
    here, there = socket.socketpair()

    def hand_over() -> None:
        listening = socket.create_server(("127.0.0.1", 8000))
        socket.send_fds(there, [b"x"], [listening.fileno()])

    network = networks.take("a")
    inside(network, hand_over)
    _, (listening,), *_ = socket.recv_fds(here, 1, 1)
    networks.give_back("a", network)
    os.close(listening)
    here.close()
    there.close()

    assert not is_open(network)


def test_one_in_which_a_flow_label_waits_for_its_end_serves_nobody_again(networks: Networks) -> None:
    def label() -> None:
        # struct in6_flowlabel_req: whose it is, the label, get, exclusive, create, how long it is to linger
        wish = struct.pack("!16sI", socket.inet_pton(socket.AF_INET6, "::1"), 0x12345)
        wish += struct.pack("BBHHHI", 0, 1, 1, 60, 60, 0)
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as asking:
            asking.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, wish)

    network = networks.take("a")
    inside(network, label)
    networks.give_back("a", network)

    assert not is_open(network)


def test_one_in_which_something_was_sent_later_serves_nobody_again(networks: Networks) -> None:
    """As the kernel does on its own, up to two seconds after somebody has left a multicast group."""
    network = networks.take("a")
    networks.give_back("a", network)
    inside(network, send_datagram)

    networks.give_back("a", other := networks.take("a"))
    assert other is not network


@pytest.mark.parametrize("room", range(4))
def test_of_one_that_could_not_be_made_nothing_stays_open(networks: Networks, room: int) -> None:
    """It takes four descriptors: each is refused once."""
    here = Path("/proc/self/ns/net").readlink()
    before = descriptors()

    with room_for(room), pytest.raises(OSError, match="Too many open files"):
        networks.take("a")

    assert descriptors() == before
    assert Path("/proc/self/ns/net").readlink() == here


def test_there_is_a_loopback_and_nothing_else_and_nobody_outside_is_reached(networks: Networks) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()

    def look() -> None:
        assert [name for _, name in socket.if_nameindex()] == ["lo"]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        with pytest.raises(OSError, match="unreachable"):
            socket.create_connection(("192.0.2.1", 80))

    network = networks.take("a")
    inside(network, look)
    network.close()
    listening.close()


def test_whoever_makes_one_stays_where_they_were(networks: Networks) -> None:
    before = Path("/proc/self/ns/net").readlink()
    networks.give_back("a", networks.take("a"))

    assert Path("/proc/self/ns/net").readlink() == before


def test_whoever_could_not_come_back_makes_none(networks: Networks) -> None:
    """As the root of a container that has its host's network: it may make one, and is caught in it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            libc = ctypes.CDLL(None)
            assert libc.unshare(CLONE_NEWUSER) == 0
            with pytest.raises(PermissionError):
                Networks()
            assert libc.unshare(CLONE_NEWNET) == 0
            code = 0
        finally:
            os._exit(code)

    assert os.waitpid(child, 0)[1] == 0


def test_few_lie_unused_and_the_oldest_goes_first(
    networks: Networks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    made = {name: networks.take(name) for name in "abc"}
    for name, network in made.items():
        networks.give_back(name, network)

    assert [is_open(network) for network in made.values()] == [False, True, True]


def test_none_lies_unused_for_long(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    assert networks.drop_idle() is None
    network = networks.take("a")
    networks.give_back("a", network)

    again_s = networks.drop_idle()
    assert again_s is not None
    assert 0 < again_s <= module._IDLE_S
    assert is_open(network)
    monkeypatch.setattr(module, "_IDLE_S", 0.0)
    assert networks.drop_idle() is None
    assert not is_open(network)


def test_those_that_lay_unused_for_long_go_one_by_one(
    networks: Networks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes each apart while the launcher waits, and somebody may want something of it."""
    lent = [networks.take(name) for name in "ab"]
    for name, network in zip("ab", lent, strict=True):
        networks.give_back(name, network)
    monkeypatch.setattr(module, "_IDLE_S", 0.0)

    assert networks.drop_idle() == 0
    assert [is_open(network) for network in lent] == [False, True]
    assert networks.drop_idle() is None
    assert [is_open(network) for network in lent] == [False, False]


def test_one_that_cannot_be_looked_at_is_let_go_and_nobody_fails_for_it(networks: Networks) -> None:
    unreadable = os.open("/", os.O_PATH | os.O_CLOEXEC)
    given, kept = networks.take("a"), networks.take("b")
    networks.give_back("b", kept)
    for witness in (*given.witnesses, *kept.witnesses):
        os.dup2(unreadable, witness)

    networks.give_back("a", given)
    assert not is_open(given)
    other = networks.take("b")

    assert other is not kept
    assert not networks._free
    other.close()
    os.close(unreadable)
