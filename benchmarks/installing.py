"""numpy, pandas, matplotlib and requests: the first time, in a second sandbox, and in fifty."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.bench import Row, Served, interleaved, p50, progress, served
from petri.settings import for_installers

PACKAGES = ("numpy", "pandas", "matplotlib", "requests")
FIRST_TIMES = 10
ROUNDS = 40
SANDBOXES = 50
UV = Path(sys.executable).parent / "uv"
DECLARES = f"# /// script\n# dependencies = {json.dumps(PACKAGES)}\n# ///\n"
"""Wants the packages and imports none: what is timed is having them, not loading them."""


def measure() -> list[Row]:
    """Return what the first, the second and the fiftieth sandbox pay."""
    bare, ours = _first_times()
    with served() as server:
        _once(server, DECLARES)
        _completed(server)
        plain, equipped = _later(server)
        one, fifty = _disk(server)
    over = p50(equipped) - p50(plain)
    ratio = p50(ours) / p50(bare)
    return [
        Row("first time, bare `uv pip install`", f"{p50(bare):.2f} s", f"of {_seconds(bare)}"),
        Row("first time, an exec", f"{p50(ours):.2f} s", f"of {_seconds(ours)}; {ratio:.2f}x, bar: 1.1x"),
        Row("an exec without packages", f"{p50(plain):.1f} ms"),
        Row("an exec with them, in a new sandbox", f"{p50(equipped):.1f} ms", f"+{over:.1f} ms, bar: +5 ms"),
        Row("disk of one sandbox with them", f"{one / 2**20:.0f} MiB"),
        Row(f"disk of {SANDBOXES} more", f"{(fifty - one) / 2**20:.1f} MiB", "bar: the disk of one"),
    ]


def _first_times() -> tuple[list[float], list[float]]:
    """Time bare uv and an exec in turn, each with nothing cached; who goes first alternates."""
    times: dict[Callable[[], float], list[float]] = {_bare: [], _served: []}
    for number in range(FIRST_TIMES):
        for first_time in (_bare, _served) if number % 2 else (_served, _bare):
            times[first_time].append(first_time())
        progress(number + 1, FIRST_TIMES)
    return times[_bare], times[_served]


def _settled() -> None:
    """Have nobody pay for what was written and thrown away before."""
    os.sync()
    time.sleep(1)


def _served() -> float:
    with served() as server:
        _once(server, "pass")  # the server has found out what this host has
        _settled()
        return _timed(lambda: _once(server, DECLARES))


def _bare() -> float:
    with tempfile.TemporaryDirectory(prefix="petri-bench-") as scratch:
        # What the server starts its own uv with: the same certificates, proxies, index and patience.
        env = {**for_installers(), "UV_CACHE_DIR": f"{scratch}/cache"}
        uv = [str(UV), "--quiet"]
        subprocess.run([*uv, "venv", "--python", "/usr/bin/python3", f"{scratch}/env"], env=env, check=True)
        _settled()
        install = [*uv, "pip", "install", "--only-binary", ":all:", "--python", f"{scratch}/env/bin/python"]
        return _timed(lambda: subprocess.run([*install, *PACKAGES], env=env, check=True))


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _once(server: Served, code: str) -> dict[str, Any]:
    return _ask(server, "/v1/exec", {"code": code})


def _ask(server: Served, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = server.connect()
    connection.request("POST", path, json.dumps(body))
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    assert not answer.get("not_installed"), answer["not_installed"]
    return answer


def _completed(server: Served) -> None:
    """Wait until what follows the first use is over: it would be timed with the second."""
    while not list((server.home / "environments" / "shelf").glob("*/whole")):
        time.sleep(0.1)


def _later(server: Served) -> tuple[list[float], list[float]]:
    times = interleaved(
        {"plain": lambda: _once(server, "pass"), "equipped": lambda: _once(server, DECLARES)}, ROUNDS
    )
    return times["plain"], times["equipped"]


def _disk(server: Served) -> tuple[int, int]:
    """Return what the server's home takes with one sandbox that has the packages, and with many."""
    _persistent(server)
    one = _blocks(server.home)
    for number in range(SANDBOXES):
        _persistent(server)
        progress(number + 1, SANDBOXES)
    return one, _blocks(server.home)


def _persistent(server: Served) -> None:
    sandbox = _ask(server, "/v1/sandboxes", {})["id"]
    _ask(server, f"/v1/sandboxes/{sandbox}/exec", {"code": DECLARES})


def _blocks(folder: Path) -> int:
    """Return what a folder takes of the disk, each file once however many names it has."""
    seen = {}
    for here, folders, names in os.walk(folder):
        for name in (*folders, *names):
            status = (Path(here) / name).lstat()
            seen[status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def _seconds(times: list[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in times)
