"""Packages without a wheel, through HTTP: told while they are built, and never half."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import PETRI, Server
from tests.package_index import PackageIndex
from tests.test_api_environments import events, run, script, served
from tests.test_builds import SLOWLY, is_building, listed, source

pytestmark = pytest.mark.long
USES = script("homemade", body="import homemade; print(homemade.version)")


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    """An index of our own, with packages that have no wheel."""
    index = PackageIndex()
    index.put_sdist("homemade", "1.0", source("homemade"))
    index.put_sdist("broken", "1.0", source("broken", before="raise SystemExit('there is no libfoo here')"))
    index.put_sdist("slow", "1.0", source("slow", before=SLOWLY.format(3)))
    yield index
    index.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, index: PackageIndex) -> Iterator[Server]:
    """A server that asks that index."""
    yield from served(tmp_path_factory.mktemp("builds"), index)


def test_a_stream_tells_that_it_is_being_built(http: httpx.Client, sandbox: str) -> None:
    ask = {"code": script("homemade>=1", body="import homemade; print(homemade.version)")}
    answer = http.post(
        f"/v1/sandboxes/{sandbox}/exec", json=ask, headers={"Accept": "text/event-stream"}, timeout=60
    )

    told = events(answer)
    assert ("installing", {"phase": "building", "packages": ["homemade==1.0"], "bytes": None}) in told
    assert told[-1][1]["stdout"] == "1.0\n", told[-1]
    assert told[-1][1]["installed"] == ["homemade==1.0"]


def test_the_record_says_what_it_was_built_from_and_rebuilds_elsewhere(
    http: httpx.Client, server: Server, sandbox: str, index: PackageIndex, tmp_path: Path
) -> None:
    digest = index.put_sdist("homemade", "1.0", source("homemade"))
    run(http, sandbox, code=USES)

    shown = http.get(f"/v1/sandboxes/{sandbox}/environment").json()
    assert shown["packages"][0]["built_from"] == digest
    typed = [str(PETRI), "env", "export", sandbox]
    exported = subprocess.run(
        typed, env={"PETRI_URL": server.url}, capture_output=True, text=True, check=True
    )
    assert digest in exported.stdout
    lock = tmp_path / "requirements.txt"
    lock.write_text(exported.stdout)
    uv = str(Path(sys.executable).parent / "uv")
    argv = [uv, "pip", "install", "--require-hashes", "-r", str(lock), "--target", str(tmp_path / "there")]
    argv += ["--default-index", index.url, "--cache-dir", str(tmp_path / "cache"), "--quiet"]
    subprocess.run(argv, check=True)  # builds it here: it is a package of our own
    assert (tmp_path / "there/homemade.py").exists()


def test_a_build_that_fails_is_a_sentence_with_its_last_words_and_the_run_starts(
    http: httpx.Client, sandbox: str
) -> None:
    answer = run(http, sandbox, code=script("broken", body="print('started')"))

    assert answer["stdout"] == "started\n"
    assert [each["name"] for each in answer["not_installed"]] == ["broken"]
    assert "building it from source failed: there is no libfoo here" in answer["not_installed"][0]["why"]


def test_what_is_typed_is_built_too(http: httpx.Client, sandbox: str) -> None:
    answer = run(http, sandbox, command="pip install homemade && python3 -c 'import homemade'")

    assert answer["exit_code"] == 0, answer["stderr"]
    assert answer["installed"] == ["homemade==1.0"]


def test_switched_off_nothing_is_built(new_server: Callable[..., Server], index: PackageIndex) -> None:
    server = new_server(PETRI_INDEX_URL=index.url, PETRI_BUILDS="off")
    fetched = len(index.fetched)
    with server.client() as http:
        answer = http.post("/v1/exec", json={"code": USES}).json()

    assert answer["installed"] == []
    assert "only source distributions of homemade" in answer["not_installed"][0]["why"]
    assert not any(path.endswith(".tar.gz") for path in index.fetched[fetched:])


def test_killed_while_it_builds_the_next_life_starts_clean(
    new_server: Callable[..., Server], index: PackageIndex
) -> None:
    server = new_server(PETRI_INDEX_URL=index.url)
    places = server.home / "petri/environments"
    with server.client() as http:
        threading.Thread(target=_ask, args=(http, script("slow"))).start()
        _until(lambda: is_building(places))
        server.stop(signal.SIGKILL)
    server.start()

    assert listed(places / "shelf/.building") == []
    assert list(places.glob("staging/*")) == []
    assert list(places.glob("built/*")) == []
    with server.client() as http:
        answer = http.post("/v1/exec", json={"code": script("slow", body="import slow")}).json()
    assert (answer["exit_code"], answer["installed"]) == (0, ["slow==1.0"])


def _ask(http: httpx.Client, code: str) -> None:
    with pytest.raises(httpx.HTTPError):
        http.post("/v1/exec", json={"code": code})


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
