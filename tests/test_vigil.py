"""A layer that vanishes while the server runs is seen to be gone, and seen again when it is back."""

import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from petri.engine import Layer, walls
from petri.engine.process import Hello
from petri.engine.rootfs import PROGRAMS
from petri.engine.vigil import Vigil
from tests.calls import ask, create, refused, sh
from tests.conftest import Server

LAYERS = [
    Layer("bubblewrap", True, "x"),
    Layer("namespaces", True, "x"),
    Layer("cgroups", True, "x", required=False),
    Layer("seccomp", False, "was never there"),
]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A folder with all that a vigil looks at."""
    (tmp_path / "bwrap").touch(mode=0o755)
    (tmp_path / "rootfs" / "etc" / "petri").mkdir(parents=True)
    for place in PROGRAMS.values():
        (tmp_path / "rootfs" / place).touch()
    (tmp_path / "groups" / "petri-x").mkdir(parents=True)
    (tmp_path / "cgroups").write_text(str(tmp_path / "groups" / "petri-x"))
    return tmp_path


def vigil(host: Path) -> Vigil:
    return Vigil(str(host / "bwrap"), host / "rootfs", host / "cgroups")


def test_no_path_of_the_host_is_told_with_a_complaint() -> None:
    told = walls.no_namespaces(
        "bwrap: Can't bind mount /root/.petri/engine/rootfs/etc on /newroot/etc: No such file"
    )

    assert "/root" not in told.says
    assert "bind mount …/etc" in told.says


def test_what_stands_is_left_as_it_is(host: Path) -> None:
    assert vigil(host).look(LAYERS) == LAYERS


@pytest.mark.parametrize(
    ("vanishing", "name"),
    [
        ("bwrap", "bubblewrap"),
        ("rootfs/etc/petri/init", "bubblewrap"),
        ("rootfs/gate", "bubblewrap"),
        ("groups", "cgroups"),
    ],
)
def test_what_vanishes_is_off_until_it_is_back(host: Path, vanishing: str, name: str) -> None:
    watching = vigil(host)

    (host / vanishing).rename(host / "elsewhere")
    off = [layer for layer in watching.look(LAYERS) if not layer.on]
    (host / "elsewhere").rename(host / vanishing)

    assert [layer.name for layer in off] == [name, "seccomp"]
    assert off[0].remedy
    assert off[0].required == next(layer.required for layer in LAYERS if layer.name == name)
    assert watching.look(LAYERS) == LAYERS


def off(http: httpx.Client) -> set[str]:
    return {layer["name"] for layer in http.get("/health").json()["layers"] if not layer["on"]}


def test_health_tells_and_nothing_runs_bare(new_server: Callable[..., Server]) -> None:
    server = new_server()
    init = server.home / "petri" / "engine" / "rootfs" / "etc" / "petri" / "init"
    with server.client() as http:
        sandbox = create(http)
        before = off(http)

        init.rename(init.with_name("elsewhere"))
        assert off(http) - before == {"bubblewrap"}
        assert http.get("/health").json()["status"] == "refusing"
        refused(ask(http, sandbox, command="echo bare"), 503)

        init.with_name("elsewhere").rename(init)
        assert off(http) == before
        assert http.get("/health").json()["status"] == "ok"
        assert sh(http, sandbox, "echo works") == "works\n"


@pytest.mark.parametrize(
    ("release", "counts"),
    [
        ("6.18.44-fc", True),
        ("5.14.0-70.el9.x86_64", True),
        ("5.13.19", False),
        ("4.18.0-513", False),
        ("x", False),
    ],
)
def test_processes_are_bounded_where_the_kernel_counts_them_for_each_cell(
    monkeypatch: pytest.MonkeyPatch, release: str, *, counts: bool
) -> None:
    ours = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*ours[:2], release, *ours[3:])))

    assert walls.counts_in_cells() == counts
    told = walls.cgroups(Hello(None, "none here", None, None), required=False).says
    assert ("processes of each cell are bounded" in told) == counts
