"""JavaScript packages: from what is wanted to a lock, and from a lock to a folder.

They are installed by bun, which is ten times faster than npm. npm fetches it, once, when the first program
wants a package; what comes is started only if it is the very file that was chosen when this was written.
"""

import asyncio
import base64
import hashlib
import platform
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from petri.engine.tools import Finished, Tool, run_tool
from petri.environment.building import bun, prefix
from petri.environment.building.asking import Asking
from petri.environment.building.bun import Bun
from petri.environment.building.failures import NO_SPACE, NotInstalled
from petri.environment.building.locks import Lock, Unreadable
from petri.environment.building.prefix import Weighed
from petri.environment.building.progress import Progress, Tell
from petri.environment.needs.nouns import Wanted
from petri.threads import in_own_thread

_FETCH_S = 300
_RESOLVE_S = 120
_INSTALL_S = 1800
_PROGRAM = "package/bin/bun"


class JavaScriptPackages:
    """Resolves and installs for node, as this host's npm is set up."""

    def __init__(
        self,
        tools: Path,
        cache: Path,
        env: Mapping[str, str],
        has_room: Callable[[], bool],
        min_age_days: int,
    ) -> None:
        self._tools = tools
        self._cache = cache / "bun"
        self._env = env
        self._has_room = has_room
        self._min_age_days = min_age_days
        self._fetching = asyncio.Lock()

    async def platform(self) -> str:
        """Return what decides, beside a lock, what is installed."""
        return f"node_modules linux-{platform.machine()} {'-'.join(platform.libc_ver())}"

    async def resolve(self, wanted: Wanted, asking: Asking) -> Lock:
        """Return the packages that `wanted` comes to; `NotInstalled` says why it comes to none."""
        if bad := bun.unsafe(wanted.requirements):
            raise NotInstalled(
                f"{bad[0].text!r} is no name with versions; packages come from the registry alone, by name",
                names=tuple(each.name for each in bad),
            )
        scratch = asking.scratch
        asking.tell(Progress("resolving", tuple(each.name for each in wanted.requirements)))
        program = await self._bun()
        pins = wanted.lock.pins if wanted.lock is not None else ()
        (scratch / "package.json").write_text(bun.manifest(wanted.requirements, pins))
        argv = program.resolve(self._min_age_days if asking.newest else 0)
        done = await run_tool(Tool(argv, scratch, self._env, _RESOLVE_S))
        if done.status != 0:
            raise _complaint(done, [each.name for each in wanted.requirements])
        try:
            return bun.read_lock((scratch / "bun.lock").read_text(), pins)
        except (Unreadable, OSError) as error:
            raise NotInstalled(str(error)) from error

    async def install(
        self, lock: Lock, folder: Path, tell: Tell
    ) -> tuple[Weighed, dict[str, tuple[str, ...]]]:
        """Fill `folder` with what `lock` says; return what it weighs, and who of it needs whom."""
        program = await self._bun()
        (folder / "package.json").write_text(bun.manifest_of(lock))
        (folder / "bun.lock").write_text(lock.text)
        tell(Progress("installing", tuple(lock.pinned)))
        argv = program.install()
        done = await run_tool(Tool(argv, folder, self._env, _INSTALL_S, may_go_on=self._has_room))
        if not self._has_room():
            raise NotInstalled(NO_SPACE, is_passing=True)
        if done.status != 0 or not (folder / "node_modules").is_dir():
            raise _complaint(done, [])
        return await in_own_thread(prefix.close, folder / "node_modules"), bun.needed_by(lock)

    async def _bun(self) -> Bun:
        """Return bun, fetched now if it is not here."""
        program = self._tools / f"bun-{bun.VERSION}"
        async with self._fetching:
            if not program.exists():
                await self._fetch(program)
        return Bun(program, self._cache)

    async def _fetch(self, program: Path) -> None:
        npm = shutil.which("npm")
        found = bun.BUILDS.get(platform.machine())
        if npm is None or found is None:
            raise NotInstalled(
                "JavaScript packages are installed by bun, which the server fetches with npm: install npm on "
                "its host (apt-get install npm), or upload node_modules",
            )
        name, integrity = found
        packed = self._tools / f"{name.replace('/', '-').removeprefix('@')}-{bun.VERSION}.tgz"
        argv = [npm, "pack", "--silent", "--ignore-scripts", f"{name}@{bun.VERSION}"]
        done = await run_tool(Tool(argv, self._tools, self._env, _FETCH_S))
        try:
            if done.status != 0:
                raise NotInstalled(
                    "the npm registry is out of reach, and bun is not here yet", is_passing=True
                )
            await in_own_thread(_unpack, packed, integrity, program)
        finally:
            packed.unlink(missing_ok=True)


def _unpack(packed: Path, integrity: str, program: Path) -> None:
    """Have the program out of `packed` at `program`, if it is the file that `integrity` names."""
    with packed.open("rb") as file:
        digest = hashlib.file_digest(file, "sha512").digest()
    if integrity != "sha512-" + base64.b64encode(digest).decode():
        raise NotInstalled("what npm fetched is not the bun that was chosen; nothing of it is started")
    new = program.with_suffix(".new")
    with tarfile.open(packed) as archive, new.open("wb") as file:
        content = archive.extractfile(_PROGRAM)
        assert content is not None
        shutil.copyfileobj(content, file, 1 << 20)
    new.chmod(0o755)
    new.rename(program)


def _complaint(done: Finished, names: list[str]) -> NotInstalled:
    said = bun.readable(done.stderr)
    if done.status is None:
        return NotInstalled("the package registry took too long to answer", is_passing=True)
    if "NoSpaceLeft" in said or "ENOSPC" in said:
        return NotInstalled(NO_SPACE, is_passing=True)
    if bun.is_unreachable(said):
        return NotInstalled(f"the package registry is out of reach: {said}", is_passing=True)
    blamed = tuple(name for name in names if name in said)
    return NotInstalled(said or "bun could not install it", names=blamed, is_impossible=True)
