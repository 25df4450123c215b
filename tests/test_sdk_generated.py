"""One client is written, the other generated: they cannot drift apart, and importing neither is free."""

import runpy
import subprocess
import sys
from inspect import getmembers, isfunction, signature
from pathlib import Path

import petri
from petri.sdk import AsyncClient, Client

SCRIPT = Path(__file__).parent.parent / "scripts" / "generate-sdk"


def test_the_generated_files_are_what_the_script_yields() -> None:
    for path, text in runpy.run_path(str(SCRIPT))["twins"]().items():
        assert path.read_text() == text, f"{path.name} is out of date: run scripts/generate-sdk"


def test_both_clients_offer_the_same_calls() -> None:
    def calls(client: type) -> dict[str, list[str]]:
        return {
            name: list(signature(call).parameters)
            for name, call in getmembers(client, isfunction)
            if not name.startswith("_")
        }

    expected = calls(AsyncClient)
    expected["close"] = expected.pop("aclose")
    assert calls(Client) == expected


def test_every_call_says_what_it_does() -> None:
    for name, call in getmembers(AsyncClient, isfunction):
        assert name.startswith("_") or call.__doc__, name


def test_nothing_asynchronous_is_left_in_the_generated_files() -> None:
    for path in (SCRIPT.parent.parent / "src" / "petri" / "sdk").glob("sync_*.py"):
        assert not any(word in path.read_text() for word in ("async def", "await ", "asyncio", "async for"))


def test_the_package_offers_both_clients() -> None:
    assert (petri.Client, petri.AsyncClient) == (Client, AsyncClient)


def test_importing_the_package_or_the_command_loads_no_http() -> None:
    program = (
        "import petri, petri.cli, sys; sys.exit(bool({'httpx', 'pydantic', 'asyncio'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
