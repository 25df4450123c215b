"""Hello world, again and again: on the bare machine and over HTTP, by a client that costs next to nothing.

The client shares the processors with what it measures, so one thread drives everything, over bare sockets
and pipes. A lane does one run at a time; `closed` begins the next as soon as one is over, `open_loop` when a
clock says so, whether or not the last one is over by then.
"""

import json
import os
import random
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.bench import Served

PYTHON = "/usr/bin/python3"
HELLO = 'print("hello world")\n'
SAID = b"hello world\n"
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
"""What a cell has too."""


class Lane(Protocol):
    """One who runs hello world."""

    def begin(self) -> int:
        """Begin a run; return the descriptor on which there will be something to read."""

    def advance(self) -> bool:
        """Read what is there; say whether the run is over. It must have said hello."""


@dataclass
class BareLane:
    """Runs `python3 main.py` with no sandbox at all."""

    script: str
    argv: Sequence[str] = ()
    """What to start instead, such as an engine of containers."""
    _reading: int = -1
    _pid: int = -1
    _said: bytes = b""

    def begin(self) -> int:
        self._reading, writing = os.pipe2(os.O_CLOEXEC)
        argv = list(self.argv) or [PYTHON, self.script]
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
        ]
        self._pid = os.posix_spawnp(argv[0], argv, _ENVIRONMENT, file_actions=actions)
        os.close(writing)
        self._said = b""
        return self._reading

    def advance(self) -> bool:
        piece = os.read(self._reading, 4096)
        self._said += piece
        if piece:
            return False
        os.close(self._reading)
        _, status = os.waitpid(self._pid, 0)
        assert (status, self._said) == (0, SAID), (status, self._said)
        return True


@dataclass
class PetriLane:
    """Runs `main.py` in one sandbox after the other, over one kept-alive connection."""

    server: Served
    requests: list[bytes] = field(default_factory=list)
    cell_ms: float = 0
    """Processor time of all its cells so far."""
    _line: socket.socket = field(init=False)
    _turn: int = 0
    _heard: bytes = b""

    def __post_init__(self) -> None:
        self._line = socket.create_connection(self.server.address, timeout=60)
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Hang up."""
        self._line.close()

    def ask(self, method: str, path: str, body: str) -> bytes:
        """Ask for something that must work, and wait for the answer's body."""
        self.send(method, path, body)
        while not self.has_answer():
            pass
        return self.answer()

    def send(self, method: str, path: str, body: str) -> int:
        """Ask for something, and return the descriptor on which the answer will come."""
        self._line.sendall(_request(self.server, method, path, body))
        self._heard = b""
        return self._line.fileno()

    def create(self) -> str:
        """Return the id of a new sandbox."""
        found: str = json.loads(self.ask("POST", "/v1/sandboxes", "{}"))["id"]
        return found

    def fill(self, sandbox: str, name: str = "main.py", program: str = HELLO) -> None:
        """Put hello world into a sandbox, and have it among those to run it in."""
        self.ask("PUT", f"/v1/sandboxes/{sandbox}/files/{name}", program)
        path = f"/v1/sandboxes/{sandbox}/exec"
        self.requests.append(_request(self.server, "POST", path, json.dumps({"filename": name})))

    def begin(self) -> int:
        self._line.sendall(self.requests[self._turn % len(self.requests)])
        self._turn += 1
        self._heard = b""
        return self._line.fileno()

    def advance(self) -> bool:
        if not self.has_answer():
            return False
        self.take_outcome()
        return True

    def take_outcome(self) -> None:
        """Take the answer as that of a run, which must have said hello."""
        told = json.loads(self.answer())
        assert told["stdout"].encode() == SAID, told
        self.cell_ms += told["usage"]["cpu_ms"]

    def answer(self) -> bytes:
        """Return the body of the answer that is there."""
        return self._heard.partition(b"\r\n\r\n")[2]

    def has_answer(self) -> bool:
        """Read some more of an answer; say whether it is whole. It must be that of a success."""
        piece = self._line.recv(1 << 16)
        assert piece, "the server hung up"
        self._heard += piece
        head, end, body = self._heard.partition(b"\r\n\r\n")
        if not end:
            return False
        assert head[9:10] == b"2", self._heard
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        return len(body) >= int(length or 0)  # a 204 has none


def _request(server: Served, method: str, path: str, body: str) -> bytes:
    host, port = server.address
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def once(lane: Lane) -> float:
    """Do one run; return what it took, in ms."""
    begun = time.perf_counter()
    lane.begin()
    while not lane.advance():
        pass
    return (time.perf_counter() - begun) * 1e3


def closed(lanes: Sequence[Lane], for_s: float) -> list[float]:
    """Keep every lane busy for so long; return what each run took, in ms."""
    took = []
    with selectors.EpollSelector() as waiting:
        begun = {id(lane): _begin(waiting, lane) for lane in lanes}
        until = time.perf_counter() + for_s
        while begun:
            for lane, now in _over(waiting):
                took.append((now - begun.pop(id(lane))) * 1e3)
                if now < until:
                    begun[id(lane)] = _begin(waiting, lane)
    return took


def open_loop(lanes: Sequence[Lane], arrivals_s: Sequence[float]) -> list[float]:
    """Begin a run at each of these moments; return what each took from its moment on, in ms."""
    took, free, coming = [], deque(lanes), deque(arrivals_s)
    due: dict[int, float] = {}
    began = time.perf_counter()
    # Not epoll, which waits whole milliseconds, and so begins half a one too late.
    with selectors.SelectSelector() as waiting:
        while coming or due:
            now = time.perf_counter() - began
            while coming and coming[0] <= now and free:
                due[id(free[0])] = coming.popleft()
                _begin(waiting, free.popleft())
            wait_s = max(0.0, coming[0] - now) if coming and free else None
            for lane, at in _over(waiting, wait_s):
                took.append((at - began - due.pop(id(lane))) * 1e3)
                free.append(lane)
    return took


def _begin(waiting: selectors.BaseSelector, lane: Lane) -> float:
    now = time.perf_counter()
    waiting.register(lane.begin(), selectors.EVENT_READ, lane)
    return now


def _over(waiting: selectors.BaseSelector, wait_s: float | None = None) -> Iterator[tuple[Lane, float]]:
    """Wait for something to read, or so long; give each lane whose run is over, and when it was."""
    for key, _ in waiting.select(wait_s):
        waiting.unregister(key.fileobj)
        lane: Lane = key.data
        if lane.advance():
            yield lane, time.perf_counter()
        else:
            waiting.register(key.fileobj, selectors.EVENT_READ, lane)


def poisson(rate: float, for_s: float, seed: int) -> list[float]:
    """Return moments at which independent callers come, so many a second, the same for the same seed."""
    drawn, moments, now = random.Random(seed), [], 0.0
    while (now := now + drawn.expovariate(rate)) < for_s:
        moments.append(now)
    return moments


def spent_ms(pid: int) -> float:
    """Return the processor time a process has taken itself, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")
