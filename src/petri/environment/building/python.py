"""Python packages: from what is wanted to a lock, and from a lock to a folder."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from petri.engine.tools import Finished, Tool, run_tool
from petri.environment.building import locks, prefix, uv
from petri.environment.building.asking import Asking
from petri.environment.building.failures import NO_SPACE, NotInstalled, NoWheel
from petri.environment.building.locks import Lock
from petri.environment.building.prefix import Interpreter, Weighed
from petri.environment.building.progress import Progress, Tell
from petri.environment.building.uv import Uv
from petri.environment.needs.nouns import Pin, Wanted
from petri.errors import Unavailable
from petri.threads import in_own_thread

_ASK = """
import json, os, platform, site, sys, sysconfig
print(json.dumps(["%d.%d" % sys.version_info[:2], sys.implementation.cache_tag,
                  sysconfig.get_platform(), "-".join(platform.libc_ver()),
                  [folder for folder in site.getsitepackages() if os.path.isdir(folder)]]))
"""
_NOWHERE = "/dev/null"
"""No Python that is told to have its library there comes to run a line."""
_ASK_S = 20
_RESOLVE_S = 120
_INSTALL_S = 1800


class PythonPackages:
    """Resolves and installs for one interpreter."""

    def __init__(self, program: Uv, env: Mapping[str, str], has_room: Callable[[], bool]) -> None:
        self._uv = program
        self._env = {**env, **program.env}
        self._has_room = has_room
        self._interpreter: Interpreter | None = None

    async def interpreter(self) -> Interpreter:
        """Return the interpreter that packages must suit; asked once."""
        if self._interpreter is None:
            argv = [self._uv.python, "-I", "-S", "-c", _ASK]
            done = await run_tool(Tool(argv, Path("/"), {}, _ASK_S))
            try:
                version, tag, platform, libc, packages = json.loads(done.stdout)
            except ValueError:
                raise NotInstalled(f"there is no Python at {self._uv.python}") from None
            platform = f"{tag} {platform} {libc}"
            self._interpreter = Interpreter(self._uv.python, version, tag, platform, tuple(packages))
        return self._interpreter

    async def acquaint(self) -> None:
        """Have uv know the interpreter before anybody waits for packages; never raises."""
        with suppress(Unavailable, OSError):
            await run_tool(Tool(self._uv.acquaint, Path("/"), self._env, _ASK_S))

    async def platform(self) -> str:
        """Return what decides, beside a lock, what is installed."""
        return (await self.interpreter()).platform

    async def resolve(self, wanted: Wanted, asking: Asking) -> Lock:
        """Return the packages that `wanted` comes to; `NotInstalled` says why it comes to none."""
        text = await self.compiled(wanted, asking)
        with readable_lock():
            return locks.held_to(locks.read_pylock(text), pins_of(wanted))

    async def compiled(
        self, wanted: Wanted, asking: Asking, sources: Iterable[str] = (), config: str = ""
    ) -> str:
        """Return the lock that `wanted` comes to, as uv writes it.

        It asks for wheels, and for source distributions of `sources`, which `config` tells the needs of: were
        it not to read that, it would build them to ask, on this host.
        """
        if bad := uv.unsafe(each.text for each in wanted.requirements):
            raise NotInstalled(
                f"{bad[0]!r} is not a name with versions; packages come from the index alone, by name",
                names=tuple(each.name for each in wanted.requirements if each.text in bad),
            )
        scratch = asking.scratch
        asking.tell(Progress("resolving", tuple(each.name for each in wanted.requirements)))
        source, constraints, lock = (scratch / name for name in ("wanted.in", "pins.txt", "pylock.toml"))
        source.write_text(uv.source_text(wanted))
        constraints.write_text(uv.constraints_text(pins_of(wanted)))
        argv = self._uv.resolve(source, constraints, lock, asking.newest, sources)
        env = self._configured(scratch, config) if config else self._env
        done = await run_tool(Tool(argv, scratch, env, _RESOLVE_S))
        if done.status != 0:
            raise _complaint(done, wanted)
        _refuse_yanked(done.stderr, wanted)
        return lock.read_text()

    def _configured(self, scratch: Path, config: str) -> Mapping[str, str]:
        """Have uv read `config` beside what it reads anyhow: it looks where it is started.

        Were that below somebody's project, it would look there instead, but for a project of our own that is
        none. And whatever it looks at, no backend starts: uv asks interpreters what they are with `-I`, which
        has them not look at `PYTHONHOME`, and starts backends without.
        """
        path, theirs = scratch / "uv.toml", self._env.get("UV_CONFIG_FILE")
        (scratch / "pyproject.toml").touch()
        path.touch(mode=0o600)  # theirs may hold a password
        path.write_text((Path(theirs).read_text() + "\n" if theirs else "") + config)
        ours = {"PYTHONHOME": _NOWHERE, **({"UV_CONFIG_FILE": str(path)} if theirs else {})}
        return {**self._env, **ours}

    async def install(
        self, lock: Lock, folder: Path, tell: Tell, links: Path | None = None
    ) -> tuple[Weighed, dict[str, tuple[str, ...]]]:
        """Fill `folder` with what `lock` says; return what it weighs, and who of it needs whom.

        `links` is a folder of wheels that no index has.
        """
        interpreter = await self.interpreter()
        target = folder / "prefix"
        prefix.begin(target, interpreter)
        if not lock.packages:
            return await in_own_thread(self._finish, target, interpreter)
        kept = folder / lock.form
        kept.write_text(lock.text)

        def said(line: str) -> None:
            if (progress := uv.progress_of(line)) is not None:
                tell(progress)

        tell(Progress("installing", tuple(lock.pinned)))
        argv = self._uv.install(kept, target, links)
        done = await run_tool(Tool(argv, folder, self._env, _INSTALL_S, said, self._has_room))
        if not self._has_room():
            raise NotInstalled(NO_SPACE, is_passing=True)
        if done.status != 0:
            raise _complaint(done, None)
        return await in_own_thread(self._finish, target, interpreter)

    def _finish(self, target: Path, interpreter: Interpreter) -> tuple[Weighed, dict[str, tuple[str, ...]]]:
        weighed = prefix.finish(target, interpreter)
        return weighed, prefix.needed_by(target, interpreter.version)


def pins_of(wanted: Wanted) -> tuple[Pin, ...]:
    """Return what the project's own lock pins."""
    return wanted.lock.pins if wanted.lock is not None else ()


@contextmanager
def readable_lock() -> Iterator[None]:
    """Have a lock that cannot be read, or does not hold, be a reason for not installing."""
    try:
        yield
    except locks.Unreadable as error:
        raise NotInstalled(str(error)) from error


def _refuse_yanked(stderr: str, wanted: Wanted) -> None:
    """Raise for what was taken back by who published it, unless it is what the project was locked with."""
    locked = {(pin.name, pin.version) for pin in pins_of(wanted)}
    for name, version, why in uv.yanked(stderr):
        if (name, version) not in locked:
            raise NotInstalled(
                f"{name} {version} was yanked from the package index{f' ({why})' if why else ''}, and is not "
                "installed: ask for another version",
                names=tuple(uv.blamed(name, [each.name for each in wanted.requirements])),
                is_impossible=True,
            )


def _complaint(done: Finished, wanted: Wanted | None) -> NotInstalled:
    said = uv.readable(done.stderr)
    if done.status is None:
        return NotInstalled("the package index took too long to answer", is_passing=True)
    if "No space left" in said or "os error 28" in said:
        return NotInstalled(NO_SPACE, is_passing=True)
    if "Hash mismatch" in said or "Size mismatch" in said:
        return NotInstalled(f"a package is not the file that was promised, and nothing is installed: {said}")
    if uv.is_unreachable(said) and "No solution found" not in said:
        return NotInstalled(f"the package index is out of reach: {said}", is_passing=True)
    names = tuple(uv.blamed(said, [each.name for each in wanted.requirements]) if wanted else [])
    if (package := uv.without_wheel(said)) is not None:
        why = f"there are only source distributions of {package}, and nothing but wheels will do here"
        return NoWheel(f"{why}: {said.partition(' hint: ')[0]}", package, names)
    return NotInstalled(said, names=names, is_impossible="No solution found" in said)
