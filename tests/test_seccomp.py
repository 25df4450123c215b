"""The system-call filter: every number, on every ABI, against the table; computed and carried out."""

import errno
import itertools
import json
import platform
import signal
import struct
import textwrap
from pathlib import Path

import pytest

from petri.engine import seccomp
from tests.benches import BOTH_WAYS, Bench, bench

__all__ = ["bench"]

GOLDEN = Path(__file__).parent / "golden" / "seccomp.txt"
ALLOW, KILL, ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
NATIVE = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}[platform.machine()]
I386, ARM = 0x4000_0003, 0x4000_0028
X32 = 0x4000_0000
REFUSED = {
    seccomp.number_of(call): refusal.error
    for refusal in seccomp.REFUSED
    for call in refusal.calls
    if seccomp.number_of(call) >= 0
}
PROGRAM = list(struct.iter_unpack("=HBBI", seccomp.program()))
only_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="x32 and int 0x80 are x86's")


def judge(number: int, arguments: tuple[int, ...] = (), architecture: int = NATIVE) -> int:
    """Return what the filter says to a call, by running its program."""
    return walk(number, arguments, architecture)[0]


def walk(number: int, arguments: tuple[int, ...] = (), architecture: int = NATIVE) -> tuple[int, int]:
    """Return what the filter says to a call, and after how many instructions."""
    words = (*arguments, *([0] * (6 - len(arguments))))
    data = struct.pack("=iIQ6Q", struct.unpack("=i", struct.pack("=I", number))[0], architecture, 0, *words)
    accumulator, at = 0, 0
    for steps in itertools.count(1):
        code, if_true, if_false, value = PROGRAM[at]
        at += 1
        match code:
            case 0x20:
                accumulator = struct.unpack_from("=I", data, value)[0]
            case 0x06:
                return int(value), steps
            case 0x05:
                at += value
            case 0x54:
                accumulator &= value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x25:
                at += if_true if accumulator > value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")
    raise AssertionError("it has no end")


def test_every_native_call_is_judged_as_the_table_says() -> None:
    special = {seccomp.number_of(name) for name in ("clone", "socket", "socketpair", "ioctl", "fallocate")}
    for number in range(seccomp.LAST_REVIEWED + 1):
        expected = ERRNO | REFUSED[number] if number in REFUSED else ALLOW
        if number not in special:
            assert judge(number) == expected, number


def test_a_number_is_found_by_halves() -> None:
    """For each cell the kernel runs the program on every number: one by one, that took as long as a mount."""
    steps = [walk(number)[1] for number in range(seccomp.LAST_REVIEWED + 1)]

    assert sum(steps) / len(steps) < 25


def test_calls_younger_than_the_table_do_not_exist() -> None:
    for number in (*range(seccomp.LAST_REVIEWED + 1, 1024), 2**31, 2**32 - 1):
        assert judge(number) == ERRNO | errno.ENOSYS, number


@only_x86
def test_x32_does_not_exist_and_other_architectures_are_killed() -> None:
    for number in range(1024):
        assert judge(number | X32) == ERRNO | errno.ENOSYS
        assert judge(number, architecture=I386) == KILL
        assert judge(number, architecture=ARM) == KILL


@pytest.mark.parametrize("flag", seccomp.CLONE_NEW.values(), ids=seccomp.CLONE_NEW.keys())
def test_clone_makes_threads_and_processes_but_no_namespaces(flag: int) -> None:
    clone = seccomp.number_of("clone")

    assert judge(clone, (0x11,)) == ALLOW
    assert judge(clone, (0x3D0F00,)) == ALLOW  # what pthread_create passes
    assert judge(clone, (flag | 0x11,)) == ERRNO | errno.EPERM


def test_sockets_are_of_four_families_and_never_raw() -> None:
    socket = seccomp.number_of("socket")
    allowed = {family for family in range(256) if judge(socket, (family, 1)) == ALLOW}

    assert allowed == {1, 2, 10, 16}
    for family in (2, 10):
        for kind in (3, 10, 3 | 0x80000, 3 | 0x800):
            assert judge(socket, (family, kind)) != ALLOW
    assert judge(socket, (40 | 1 << 32, 1)) != ALLOW  # the kernel ignores the upper half of the word


def test_sockets_of_the_internet_speak_what_everybody_speaks() -> None:
    socket = seccomp.number_of("socket")
    usual = {0, 1, 6, 17, 58}

    for family in (2, 10):
        for protocol in (*range(300), 1 << 16, 132 | 1 << 32, 0xFFFF_FFFF):
            expected = ALLOW if protocol in usual else ERRNO | errno.EPROTONOSUPPORT
            assert judge(socket, (family, 1, protocol)) == expected, (family, protocol)
        for kind in range(16):
            for flags in (0, 0o2000000, 0o4000, 1 << 32):
                expected = ERRNO | (errno.EPERM if kind in (3, 10) else errno.ESOCKTNOSUPPORT)
                expected = expected if kind in (3, 5, 6, 10) else ALLOW
                assert judge(socket, (family, kind | flags, 0)) == expected, "by its kind, DCCP or SCTP"
    assert judge(socket, (1, 1, 1)) == ALLOW  # a number that means something else in other families
    assert judge(socket, (1, 5, 0)) == ALLOW


def test_pairs_of_sockets_are_of_one_family() -> None:
    socketpair = seccomp.number_of("socketpair")

    assert judge(socketpair, (1, 1)) == ALLOW
    for family in (0, 2, 10, 16, 38, 40, 255, 1 | 1 << 32):
        assert judge(socketpair, (family, 1)) == ERRNO | errno.EAFNOSUPPORT


def test_of_netlink_only_the_routing_tables_can_be_asked() -> None:
    socket = seccomp.number_of("socket")

    assert judge(socket, (16, 3, 0)) == ALLOW
    for protocol in (*range(1, 24), 1 << 32):
        assert judge(socket, (16, 3, protocol)) == ERRNO | errno.EPERM


def test_keystrokes_cannot_be_pushed_into_a_terminal() -> None:
    ioctl = seccomp.number_of("ioctl")

    assert judge(ioctl, (0, 0x5401)) == ALLOW
    for request in (0x5412, 0x541C, 0x5412 | 1 << 32):
        assert judge(ioctl, (0, request)) == ERRNO | errno.EPERM


def test_space_can_be_given_back_but_not_set_aside() -> None:
    fallocate, ioctl = seccomp.number_of("fallocate"), seccomp.number_of("ioctl")
    keep_size, punch_hole, collapse, zero, insert, unshare = 0x01, 0x02, 0x08, 0x10, 0x20, 0x40

    for mode in (0, keep_size, zero, zero | keep_size, insert, unshare, 1 << 33):
        assert judge(fallocate, (3, mode)) == ERRNO | errno.EOPNOTSUPP
    for mode in (punch_hole | keep_size, collapse):
        assert judge(fallocate, (3, mode)) == ALLOW
    for request in (0x40305828, 0x4030582A, 0x40305839, 0x40305828 | 1 << 32):
        assert judge(ioctl, (3, request)) == ERRNO | errno.EPERM


PROBE = textwrap.dedent("""
    import ctypes, json, os, signal, sys
    libc = ctypes.CDLL(None, use_errno=True)
    base, numbers = int(sys.argv[1]), json.loads(sys.argv[2])
    answers = {}
    for number in numbers:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            ctypes.set_errno(0)
            bad = ctypes.c_long(-1)
            answer = libc.syscall(ctypes.c_long(base + number), bad, bad, bad, bad, bad, bad)
            os.write(writing, str(ctypes.get_errno() if answer == -1 else 0).encode())
            os._exit(0)
        os.close(writing)
        said = os.read(reading, 16)
        os.close(reading)
        _, status = os.waitpid(pid, 0)
        answers[number] = int(said) if said else f"ended with status {status}"
    print(json.dumps(answers))
""")


@pytest.mark.long
@BOTH_WAYS
async def test_a_cell_really_refuses_what_the_table_refuses(bench: Bench) -> None:
    # Whoever returns from these goes on as two, or not at all.
    left_out = {seccomp.number_of(name) for name in ("fork", "vfork", "clone", "exit", "rt_sigreturn")}
    numbers = [number for number in range(520) if number not in left_out]
    await bench.run(("/usr/bin/python3", "-c", PROBE, "0", json.dumps(numbers)), timeout_s=60)

    answers = {int(number): answer for number, answer in json.loads(bench.screen["stdout"]).items()}
    refused = {*REFUSED, *range(seccomp.LAST_REVIEWED + 1, 520)}
    assert {number: answers[number] for number in sorted(refused)} == {
        number: REFUSED.get(number, errno.ENOSYS) for number in sorted(refused)
    }
    # Of the rest, the kernel decides: a signal of the filter's is none of its answers.
    killed = f"ended with status {int(signal.SIGSYS)}"
    assert [number for number in numbers if number not in refused and answers[number] == killed] == []


@pytest.mark.long
@only_x86
@BOTH_WAYS
async def test_a_cell_really_has_no_x32(bench: Bench) -> None:
    await bench.run(("/usr/bin/python3", "-c", PROBE, str(X32), json.dumps(list(range(548)))), timeout_s=60)

    assert set(json.loads(bench.screen["stdout"]).values()) == {errno.ENOSYS}


@pytest.mark.long
@only_x86
@BOTH_WAYS
async def test_every_call_by_another_architecture_s_door_is_fatal(bench: Bench) -> None:
    by_int_80 = textwrap.dedent("""
        import collections, ctypes, mmap, os
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        endings = collections.Counter()
        for number in range(500):
            page.seek(0)  # mov eax, number; int 0x80; ret
            page.write(b"\\xb8" + number.to_bytes(4, "little") + b"\\xcd\\x80\\xc3")
            pid = os.fork()
            if pid == 0:
                call()
                os._exit(0)
            endings[os.waitpid(pid, 0)[1]] += 1
        print(dict(endings))
    """)
    outcome = await bench.run(("/usr/bin/python3", "-c", by_int_80), timeout_s=60)

    assert outcome.exit_code == 0
    assert bench.screen["stdout"] == b"{31: 500}\n"


def test_the_table_is_the_one_that_was_reviewed() -> None:
    """All else here is compared with the table: a line less in it must not go unseen."""
    refused = [f"{errno.errorcode[each.error]:<8} {call}" for each in seccomp.REFUSED for call in each.calls]

    assert "\n".join(sorted(refused)) + "\n" == GOLDEN.read_text()
    assert sum(seccomp.CLONE_NEW.values()) == 0x7E02_0080  # the eight namespaces there are
    assert seccomp.LAST_REVIEWED == 462


def test_every_refusal_has_a_reason() -> None:
    assert all(len(refusal.reason) > 10 for refusal in seccomp.REFUSED)
