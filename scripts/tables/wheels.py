"""Wheels, seen through their directories: which modules they would install. No code is fetched."""

import asyncio
import html
import re
import struct
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import httpx

AT_ONCE = 24
_TAIL = 65_536
"""Most wheels have their whole directory in the last 64 KiB."""
_MOST_DIRECTORY = 16 << 20
_END = b"PK\5\6"
_ENTRY = b"PK\1\2"
_LINK = re.compile(r'<a\s[^>]*href="([^"#]+)[^>]*>\s*([^<]+?)\s*</a>')
_FINAL = re.compile(r"[0-9.]+(\.?post[0-9]+)?(\+.*)?")
_PYTHONS = re.compile(r"(?<!py)py3|abi3|cp31[1-3]")
"""Not PyPy's, which would be the last in every list."""


@dataclass(frozen=True)
class Wheel:
    """The newest wheel of a project that a current CPython on Linux can use, and the files in it."""

    filename: str
    names: tuple[str, ...]


async def read_wheels(index: str, projects: Iterable[str]) -> dict[str, Wheel | None]:
    """Return what each project's newest wheel contains; None for a project that has none."""
    found: dict[str, Wheel | None] = {}
    turns = asyncio.Semaphore(AT_ONCE)
    limits = httpx.Limits(max_connections=AT_ONCE)

    async def read(client: httpx.AsyncClient, project: str) -> None:
        async with turns:
            found[project] = await _patiently(client, index, project)
            if len(found) % 500 == 0:
                print(f"{len(found)} projects", flush=True)

    async with (
        httpx.AsyncClient(timeout=60, follow_redirects=True, limits=limits) as client,
        asyncio.TaskGroup() as tasks,
    ):
        for project in projects:
            tasks.create_task(read(client, project))
    return found


async def _patiently(client: httpx.AsyncClient, index: str, project: str) -> Wheel | None:
    for pause_s in (1, 5, 20):
        try:
            return await _newest(client, index, project)
        except (httpx.HTTPError, struct.error):
            await asyncio.sleep(pause_s)
    return None


async def _newest(client: httpx.AsyncClient, index: str, project: str) -> Wheel | None:
    page = await client.get(f"{index.rstrip('/')}/{project}/")
    if page.status_code != 200:
        return None
    best = max(_usable(page.text), default=None)
    if best is None:
        return None
    _, filename, link = best
    address = urllib.parse.urljoin(str(page.url), html.unescape(link))
    return Wheel(filename, tuple(await _directory(client, address)))


def _usable(page: str) -> Iterator[tuple[tuple[bool, tuple[int, ...]], str, str]]:
    for anchor in _LINK.finditer(page):
        link, filename = anchor[1], html.unescape(anchor[2])
        parts = filename.removesuffix(".whl").split("-")
        if not filename.endswith(".whl") or len(parts) < 5 or "data-yanked" in anchor[0]:
            continue
        version, python, abi, platform = parts[1], parts[-3], parts[-2], parts[-1]
        if platform != "any" and not ("linux" in platform and "x86_64" in platform):
            continue
        if not _PYTHONS.search(f"{python}-{abi}"):
            continue
        numbers = tuple(int(each) for each in re.findall(r"\d+", version)[:6])
        yield (_FINAL.fullmatch(version) is not None, numbers), filename, link


async def _directory(client: httpx.AsyncClient, address: str) -> list[str]:
    answer = await client.get(address, headers={"Range": f"bytes=-{_TAIL}"})
    answer.raise_for_status()
    tail = answer.content
    end = tail.rfind(_END)
    if end < 0:
        return []
    size, offset = struct.unpack_from("<II", tail, end + 12)
    whole = int(answer.headers.get("content-range", f"/{len(tail)}").rpartition("/")[2])
    start = whole - len(tail)
    if offset >= start:
        return list(entries(tail[offset - start : offset - start + size]))
    if size > _MOST_DIRECTORY:
        return []
    span = {"Range": f"bytes={offset}-{offset + size - 1}"}
    return list(entries((await client.get(address, headers=span)).content))


def entries(directory: bytes) -> Iterator[str]:
    """Yield the names in a zip's central directory."""
    at = 0
    while directory[at : at + 4] == _ENTRY:
        name, extra, comment = struct.unpack_from("<HHH", directory, at + 28)
        yield directory[at + 46 : at + 46 + name].decode(errors="replace")
        at += 46 + name + extra + comment
