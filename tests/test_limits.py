"""What a run may use: each limit reached for real, inside a cell."""

import os
import textwrap
from dataclasses import replace

import pytest

from petri.model import Limits, Outcome
from tests.benches import BOTH_WAYS, LIMITS, Bench, bench

__all__ = ["bench"]

pytestmark = [pytest.mark.long, BOTH_WAYS]
needs_cgroups = pytest.mark.skipif(os.geteuid() != 0, reason="without root there may be no cgroups")


async def python(bench: Bench, source: str, limits: Limits = LIMITS) -> Outcome:
    bench.place = replace(bench.place, limits=limits)
    return await bench.run(("/usr/bin/python3", "-c", textwrap.dedent(source)))


def said(bench: Bench) -> str:
    return bench.screen["stdout"].decode()


async def test_a_process_may_have_so_many_files_open(bench: Bench) -> None:
    await python(
        bench,
        """
        import os, resource
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            print(len(held) + 3, error.errno)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (65, 65))
        except ValueError:
            print("for good")
        """,
        replace(LIMITS, open_files=64),
    )

    assert said(bench) == "64 24\nfor good\n"


async def test_there_are_no_core_dumps(bench: Bench) -> None:
    await python(bench, "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))")

    assert said(bench) == "(0, 0)\n"


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
async def test_a_full_tmp_is_no_space_left(bench: Bench, folder: str) -> None:
    outcome = await python(
        bench,
        f"""
        written = 0
        try:
            with open("{folder}/big", "wb", buffering=0) as file:
                while True:
                    written += file.write(bytes(1 << 16))
        except OSError as error:
            print(written >> 20, error.errno)
        """,
        replace(LIMITS, tmp_bytes=8 << 20),
    )

    assert said(bench) == "8 28\n"
    assert (outcome.exit_code, outcome.oom_killed) == (0, False)


async def test_a_full_tmp_is_no_space_left_even_if_it_might_be_larger_than_memory(bench: Bench) -> None:
    outcome = await python(
        bench,
        """
        try:
            with open("/tmp/big", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
        except OSError as error:
            print(error.errno)
        """,
        replace(LIMITS, memory_bytes=64 << 20, tmp_bytes=1 << 30),
    )

    assert said(bench) == "28\n"
    assert (outcome.exit_code, outcome.oom_killed) == (0, False)


@needs_cgroups
async def test_what_lies_in_tmp_is_memory_of_the_run(bench: Bench) -> None:
    outcome = await python(
        bench,
        """
        for folder in ("/tmp", "/dev/shm"):
            with open(f"{folder}/big", "wb", buffering=0) as file:
                for _ in range(48):
                    file.write(bytes(1 << 20))
        print("all of it")
        """,
        replace(LIMITS, memory_bytes=96 << 20, tmp_bytes=48 << 20),
    )

    assert said(bench) == ""
    assert (outcome.signal, outcome.oom_killed) == (9, True)


@needs_cgroups
async def test_a_child_that_is_killed_for_its_memory_is_told_of_though_its_parent_ends_well(
    bench: Bench,
) -> None:
    outcome = await python(
        bench,
        """
        import subprocess, sys
        print(subprocess.run([sys.executable, "-c", "bytearray(1 << 30)"]).returncode)
        """,
        replace(LIMITS, memory_bytes=64 << 20),
    )

    assert said(bench) == "-9\n"
    assert (outcome.exit_code, outcome.oom_killed) == (0, True)


async def test_one_file_may_not_be_larger_than_all_the_space_there_is(bench: Bench) -> None:
    outcome = await python(
        bench,
        """
        import os
        fd = os.open("sparse", os.O_CREAT | os.O_RDWR)
        for work in (lambda: os.ftruncate(fd, 1 << 40), lambda: os.pwrite(fd, b"x", 1 << 40)):
            try:
                work()
            except OSError as error:
                print(error.errno)
        os.ftruncate(fd, 16 << 20)
        """,
        replace(LIMITS, disk_bytes=16 << 20),
    )

    assert said(bench) == "27\n27\n"
    assert outcome.exit_code == 0


async def test_a_program_that_writes_too_large_a_file_is_told_and_not_killed(bench: Bench) -> None:
    bench.place = replace(bench.place, limits=replace(LIMITS, disk_bytes=1 << 20))
    outcome = await bench.run(("/usr/bin/truncate", "--size", "1T", "sparse"))

    assert outcome.exit_code == 1
    assert b"File too large" in bench.screen["stderr"]
    assert (bench.place.folder / "sparse").stat().st_size == 0


async def test_a_file_may_be_as_large_as_what_is_left(bench: Bench) -> None:
    bench.place = replace(bench.place, file_bytes=1 << 20)
    outcome = await bench.run(("/bin/sh", "-c", "head -c 2000000 /dev/zero > f; stat -c %s f"))

    assert outcome.exit_code == 0
    assert bench.screen["stdout"] == b"1048576\n"
    assert b"File too large" in bench.screen["stderr"]


async def test_space_is_set_aside_by_writing_or_not_at_all(bench: Bench) -> None:
    await python(
        bench,
        """
        import ctypes, fcntl, os, struct
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open("set-aside", os.O_CREAT | os.O_RDWR)
        for mode in (0, 1):
            failed = libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(1 << 30))
            print(failed, ctypes.get_errno(), os.fstat(fd).st_blocks)
        for request in (0x40305828, 0x4030582A, 0x40305839):
            try:
                fcntl.ioctl(fd, request, struct.pack("hhqqiI4i", 0, 0, 0, 1 << 30, 0, 0, 0, 0, 0, 0))
            except OSError as error:
                print(error.errno, os.fstat(fd).st_blocks)
        os.posix_fallocate(fd, 0, 1 << 20)
        print(os.fstat(fd).st_size >> 20)
        """,
    )

    assert said(bench) == "-1 95 0\n-1 95 0\n1 0\n1 0\n1 0\n1\n"
