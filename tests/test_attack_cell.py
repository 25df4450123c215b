"""Attacks from inside a cell, over HTTP, on a server that has something to lose: keys, baits and neighbours.

All of them from a cell that is made for them, and again from one that stood ready.

Each prints `tried` at its end: an attack that was not carried out proves nothing.
"""

import ctypes
import os
import re
import secrets
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.attacks import ATTACKS, PRELUDE
from tests.calls import client_of, create, eventually, put, run
from tests.conftest import Server
from tests.ready import have_one_stand, parked_cells_used, run_ready

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandboxes share its uid")


@dataclass(frozen=True)
class Baits:
    """What the host and a neighbour have, and no cell may get."""

    canary: str
    """Part of the operator's key, of the victim's arguments and environment, and of every bait's content."""
    file: Path
    neighbour: Path
    victim: int
    port: int
    abstract: str
    path_socket: Path
    shm_key: int

    def known_to_the_attacker(self) -> str:
        """Return the baits as Python: an attacker may know where things are, and still not get them."""
        return textwrap.dedent(f"""
            BAIT_FILE, NEIGHBOUR = {str(self.file)!r}, {str(self.neighbour)!r}
            HOME = {str(self.file.parent)!r}
            VICTIM, PORT, SHM_KEY = {self.victim}, {self.port}, {self.shm_key}
            ABSTRACT, PATH_SOCKET = {self.abstract!r}, {str(self.path_socket)!r}
            CANARY_HALVES = {self.canary[:16]!r}, {self.canary[16:]!r}
        """)


@dataclass(frozen=True)
class Field:
    """A server, its baits, and a sandbox to attack from."""

    server: Server
    key: str
    baits: Baits
    http: httpx.Client
    sandbox: str
    run: Callable[..., dict[str, Any]]
    """Runs something, in a cell that stood ready for it or in one that is made for it."""

    def attack(self, source: str, **more: object) -> str:
        """Have an attack carried out; return what it printed."""
        code = PRELUDE + self.baits.known_to_the_attacker() + textwrap.dedent(source) + '\nprint("tried")'
        told = self.run(self.http, self.sandbox, code=code, language="python", timeout_s=60, **more)
        printed: str = told["stdout"]
        assert "tried" in printed, told
        return printed


WAYS: dict[str, tuple[dict[str, str], Callable[..., dict[str, Any]]]] = {
    "a cell made for it": ({"PETRI_PARKED_BYTES": "0"}, run),
    "a cell that stood ready": ({}, run_ready),
}


@pytest.fixture(scope="module", params=WAYS)
def battlefield(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    canary, home = secrets.token_hex(16), tmp_path_factory.mktemp("attacked")
    settings, way = WAYS[request.param]
    with ExitStack() as stack:
        server = Server(home, {"PETRI_API_KEY": f"key-{canary}", "CANARY": canary, **settings}).start()
        stack.callback(server.stop)
        http = stack.enter_context(client_of(server, f"key-{canary}"))
        neighbour = create(http)
        put(http, neighbour, "secret.txt", canary)
        baits = _plant(stack, home, canary, home / "petri" / "workspaces" / neighbour / "secret.txt")
        yield Field(server, f"key-{canary}", baits, http, create(http), way)
        _refuse_traces(server, canary)


def _plant(stack: ExitStack, home: Path, canary: str, neighbour: Path) -> Baits:
    file = home / "bait.txt"
    file.write_text(canary)
    file.chmod(0o644)
    victim = subprocess.Popen(["sleep", "600", canary], env={"CANARY": canary}, stderr=subprocess.DEVNULL)
    stack.callback(victim.wait)
    stack.callback(victim.kill)
    tcp = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
    abstract = f"petri-bait-{os.getpid()}"
    hidden = stack.enter_context(socket.socket(socket.AF_UNIX))
    hidden.bind(f"\0{abstract}")
    hidden.listen()
    shown = stack.enter_context(socket.socket(socket.AF_UNIX))
    shown.bind(str(home / "bait.sock"))
    shown.listen()
    (home / "bait.sock").chmod(0o777)
    key = 0x7E57_0000 | os.getpid() & 0xFFFF
    segment = ctypes.CDLL(None).shmget(key, 4096, 0o1666)
    assert segment >= 0
    stack.callback(ctypes.CDLL(None).shmctl, segment, 0, None)
    return Baits(canary, file, neighbour, victim.pid, tcp.getsockname()[1], abstract, home / "bait.sock", key)


def _refuse_traces(server: Server, canary: str) -> None:
    """The key is in no file of the server's, in none of its logs, whatever was tried."""
    word = canary.encode()
    for path in server.home.rglob("*"):
        is_bait = path.name in ("bait.txt", "secret.txt") or "store" in path.parts
        if path.is_file() and not path.is_symlink() and not is_bait:
            assert b"key-" + word not in path.read_bytes(), path


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_from_inside_gets_nothing(battlefield: Field, attack: str) -> None:
    printed = battlefield.attack(ATTACKS[attack])

    assert "GOT" not in printed, printed
    assert battlefield.baits.canary not in printed


def test_the_same_attacks_do_get_something_where_there_is_no_wall(battlefield: Field) -> None:
    """Some of them, run bare: so that their silence inside means something."""
    for attack in (
        *("a file of the host by its path", "a neighbour's file by its path", "the victim by its number"),
        *("the host by every address", "sockets of the host without a path", "sockets of the host with one"),
        *("arguments and variables of every process", "shared memory of the host", "by walking everywhere"),
    ):
        source = ATTACKS[attack].replace('os.walk("/")', "os.walk(HOME)")
        code = PRELUDE + battlefield.baits.known_to_the_attacker() + textwrap.dedent(source)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd="/", check=False
        )
        assert "GOT" in done.stdout, (attack, done)


def test_a_killed_init_or_a_forged_report_changes_no_result(battlefield: Field) -> None:
    forged = """
        for number in range(3, 64):
            can(lambda: os.write(number, b"E\\0\\0\\0\\0"))
            can(lambda: os.write(os.open(f"/proc/1/fd/{number}", os.O_WRONLY), b"E\\0\\0\\0\\0"))
        print('{"exit_code": 0, "state": "done"}')
        [can(os.kill, 1, n) for n in (9, 15, 2, 1)]
        print("tried", flush=True)
        os._exit(3)
    """
    code = PRELUDE + textwrap.dedent(forged)
    told = battlefield.run(battlefield.http, battlefield.sandbox, code=code, language="python")

    assert (told["exit_code"], told["state"], told["signal"]) == (3, "done", None)


@needs_root
def test_seen_from_the_host_the_code_is_nobody(battlefield: Field) -> None:
    with ThreadPoolExecutor(2) as pool:
        others = [create(battlefield.http), create(battlefield.http)]
        for each in others if battlefield.run is run_ready else ():
            have_one_stand(battlefield.server, battlefield.http, each, command="true")
        used = parked_cells_used(battlefield.http)
        waiting = [pool.submit(run, battlefield.http, each, command="sleep 20.5; true") for each in others]
        eventually(lambda: len(_sleepers()) == 2)
        found = _sleepers()
        for each in others:
            battlefield.http.delete(f"/v1/sandboxes/{each}")
        [each.exception() for each in waiting]

    assert parked_cells_used(battlefield.http) - used == (2 if battlefield.run is run_ready else 0)
    assert len({status["Uid"] for status in found}) == 2, "each has a uid of its own"
    for status in found:
        assert len(set(status["Uid"].split())) == 1
        assert int(status["Uid"].split()[0]) >= 100_000
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
        assert (status["NoNewPrivs"].strip(), status["Groups"].strip()) == ("1", "")


def _sleepers() -> list[dict[str, str]]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (place / "cmdline").read_bytes() == b"sleep\x0020.5\0":
                found.append(dict(line.split(":", 1) for line in (place / "status").read_text().splitlines()))
        except OSError:
            continue  # it ended while we looked
    return found


def test_two_cells_do_not_meet(battlefield: Field) -> None:
    """Not on a port, not on a socket without a path, not in shared memory, not in /tmp."""
    hidden = """
        tcp = socket.create_server(("127.0.0.1", 47011))
        unix = socket.socket(socket.AF_UNIX); unix.bind("\\0meet"); unix.listen()
        libc.shmget(0x3333, 4096, 0o1666)
        open("/tmp/meet", "w").write("x"); open("/dev/shm/meet", "w").write("x")
        print("there", flush=True)
        deadline = time.time() + 20
        while not os.path.exists("/workspace/enough") and time.time() < deadline:
            time.sleep(0.02)
    """
    seek = """
        can(lambda: (socket.create_connection(("127.0.0.1", 47011), 1), got("port")))
        can(lambda: (socket.socket(socket.AF_UNIX).connect("\\0meet"), got("abstract")))
        libc.shmget(0x3333, 4096, 0o666) >= 0 and got("shm")
        [got(p) for p in ("/tmp/meet", "/dev/shm/meet") if os.path.exists(p)]
    """
    one = create(battlefield.http)
    with ThreadPoolExecutor(1) as pool:
        code = PRELUDE + textwrap.dedent(hidden)
        waiting = pool.submit(run, battlefield.http, one, code=code, language="python")
        eventually(lambda: _said(battlefield, one) == b"there\n")
        printed = battlefield.attack(seek)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", 47011), 1)
        put(battlefield.http, one, "enough", b"")
        assert waiting.result()["exit_code"] == 0

    assert "GOT" not in printed


def _said(battlefield: Field, sandbox: str) -> bytes:
    runs = battlefield.http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"]
    return battlefield.http.get(f"/v1/runs/{runs[0]['run_id']}/stdout").content if runs else b""


def test_nothing_of_one_run_but_its_files_is_seen_by_the_next(battlefield: Field) -> None:
    battlefield.attack("""
        for place in ("/tmp/x", "/dev/shm/x", "/workspace/kept"):
            open(place, "w").write("x")
        libc.shmget(0x4444, 4096, 0o1666)
    """)
    printed = battlefield.attack("""
        [got(p) for p in ("/tmp/x", "/dev/shm/x") if os.path.exists(p)]
        libc.shmget(0x4444, 4096, 0o666) >= 0 and got("shm")
        print(os.path.exists("/workspace/kept"))
    """)

    assert printed == "True\ntried\n"


def test_the_key_is_nowhere_in_a_cell_or_an_answer(battlefield: Field) -> None:
    """Searched for while a run goes on, in what the kernel shows of every process of its cell."""
    sandbox = create(battlefield.http, env={"MINE": "visible"})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, battlefield.http, sandbox, command="sleep 21.5; true", timeout_s=60)
        eventually(lambda: _inside(b"21.5") != [])
        for pid in _inside(b"21.5"):
            for name in ("environ", "cmdline"):
                assert battlefield.baits.canary.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        battlefield.http.delete(f"/v1/sandboxes/{sandbox}")
        waiting.exception()
    for path in (
        "/health",
        "/v1/metrics",
        "/v1/keys",
        "/v1/sandboxes",
        "/openapi.json",
        "/v1/events",
        "/no/such",
    ):
        assert battlefield.baits.canary not in battlefield.http.get(path).text
    assert battlefield.baits.canary not in battlefield.server.log()


def _inside(word: bytes) -> list[int]:
    """Return the processes that run a command with `word` in it, their bubblewrap and init included."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            said = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if word in said and re.search(rb"sleep|bwrap|init", said) and b"pytest" not in said:
            found.append(int(place.name))
    return found
