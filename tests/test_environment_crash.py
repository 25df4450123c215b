"""kill -9 around installs, then start: what was acknowledged is there, whole, and nothing half-built is."""

import base64
import hashlib
import io
import itertools
import json
import random
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from petri.environment.building.completing import first_wrong
from tests.calls import eventually
from tests.conftest import Server
from tests.package_index import PackageIndex, wheel

pytestmark = pytest.mark.slow

ROUNDS = 4
PARTS = 40
INSTALLERS = 3


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    index = PackageIndex()
    yield index
    index.stop()


@dataclass
class Acknowledged:
    """What runs were told they have."""

    environments: dict[str, str] = field(default_factory=dict)
    """Package → the address of its environment."""
    whole: dict[str, int] = field(default_factory=dict)
    """Package → the inode of its environment's folder, of those that were whole before the kill."""
    numbers: Iterator[int] = field(default_factory=itertools.count)


def publish(index: PackageIndex, name: str) -> None:
    """Have a package of many files, each of which its record knows by its hash."""
    files = {f"{name}/part{n}.py": f"value = {n}  # {'x' * 2_000}\n" for n in range(PARTS)}
    files[f"{name}/__init__.py"] = ""
    old = zipfile.ZipFile(io.BytesIO(wheel(name, "1.0", files=files)))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        rows = []
        for path in old.namelist():
            if not path.endswith("/RECORD"):
                content = old.read(path)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                rows.append(f"{path},sha256={digest},{len(content)}\n")
                new.writestr(path, content)
        new.writestr(f"{name}-1.0.dist-info/RECORD", "".join(rows) + f"{name}-1.0.dist-info/RECORD,,\n")
    index.put(name, "1.0", packed.getvalue())


def program(name: str) -> str:
    """Return a program that reads every file of the package."""
    return (
        f'# /// script\n# dependencies = ["{name}"]\n# ///\nimport importlib\n'
        f"parts = [importlib.import_module('{name}.part%d' % n) for n in range({PARTS})]\n"
        "print(sum(part.value for part in parts))\n"
    )


def install(http: httpx.Client, acknowledged: Acknowledged, name: str) -> None:
    answer = http.post("/v1/exec", json={"code": program(name)}).json()
    assert answer["installed"] == [f"{name}==1.0"], answer
    assert answer["stdout"] == f"{sum(range(PARTS))}\n"
    acknowledged.environments[name] = answer["environment"]


def install_more(
    http: httpx.Client, index: PackageIndex, acknowledged: Acknowledged, stop: threading.Event
) -> None:
    """Have one package after another installed, until the server dies."""
    try:
        while not stop.is_set():
            name = f"more{next(acknowledged.numbers)}"
            publish(index, name)
            install(http, acknowledged, name)
    except httpx.TransportError:
        return


def shelf_of(server: Server) -> Path:
    return server.home / "petri/environments/shelf"


def live_through(server: Server, index: PackageIndex, acknowledged: Acknowledged, seconds: float) -> None:
    """Have things installed, and kill the server in the middle of it."""
    stop = threading.Event()
    with server.client() as http, ThreadPoolExecutor(INSTALLERS) as pool:
        busy = [pool.submit(install_more, http, index, acknowledged, stop) for _ in range(INSTALLERS)]
        time.sleep(seconds)
        for name, address in list(acknowledged.environments.items()):
            folder = shelf_of(server) / address
            if (folder / "whole").exists():
                acknowledged.whole[name] = folder.stat().st_ino
        server.stop(9)
        stop.set()
        for each in busy:
            each.result()


def check(server: Server, index: PackageIndex, acknowledged: Acknowledged) -> None:
    """Hold a new life to what the one before it said, without anybody to ask."""
    assert list((server.home / "petri/environments/staging").iterdir()) == []
    for folder in shelf_of(server).iterdir():
        if not folder.name.startswith("."):
            assert json.loads((folder / "record.json").read_text())["address"] == folder.name
            packages = next((folder / "prefix/lib").glob("python3*/site-packages"))
            assert first_wrong(packages) is None
    for name, inode in acknowledged.whole.items():
        assert (shelf_of(server) / acknowledged.environments[name]).stat().st_ino == inode, "built again"
    index.refuses = True
    try:
        with server.client() as http:
            for name, address in acknowledged.environments.items():
                install(http, acknowledged, name)
                assert acknowledged.environments[name] == address
    finally:
        index.refuses = False


def test_what_was_acknowledged_is_there_whenever_the_server_was_killed(
    new_server: Callable[..., Server], index: PackageIndex
) -> None:
    server = new_server(PETRI_INDEX_URL=index.url, UV_HTTP_RETRIES="0")
    acknowledged, chance = Acknowledged(), random.Random(5)
    for number in range(ROUNDS):
        publish(index, f"first{number}")
        with server.client() as http:
            install(http, acknowledged, f"first{number}")
        address = acknowledged.environments[f"first{number}"]
        if number % 2:
            eventually(lambda address=address: (shelf_of(server) / address / "whole").exists(), 30)  # type: ignore[misc]
        live_through(server, index, acknowledged, chance.uniform(0, 2))

        server.start()
        check(server, index, acknowledged)
    assert len(acknowledged.whole) >= ROUNDS // 2
