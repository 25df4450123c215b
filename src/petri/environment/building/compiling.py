"""An environment's modules, compiled once for everybody.

A package's text is read by a compiler, and compilers have bugs: so it is done inside a cell, which sees the
environment to read and gives back numbered files. Which number stands for which module is known here alone;
nothing the cell says is a name.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from petri.engine import Engine, Leash, Mount, Place
from petri.environment.building import prefix
from petri.environment.building.prefix import Interpreter
from petri.model import Command, Limits
from petri.threads import in_own_thread

_LIMITS = Limits(cpus=1, memory_bytes=1 << 30, processes=16, timeout_s=900, disk_bytes=4 << 30)
_LARGEST = 64 << 20
_COMPILE = """
import sys
from importlib._bootstrap_external import SourceFileLoader, _code_to_hash_pyc
from importlib.util import source_hash
for number, path in enumerate(sys.stdin.buffer.read().split(b"\\0")):
    path = path.decode("utf-8", "surrogateescape")
    try:
        with open(path, "rb") as file:
            text = file.read()
        code = SourceFileLoader("", path).source_to_code(text, path)
        with open("%d" % number, "wb") as file:
            file.write(_code_to_hash_pyc(code, source_hash(text), False))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        pass
"""
"""Of the kind that is never checked against its source: the source does not change either."""


async def compile_all(
    engine: Engine, shelf: Path, target: Path, interpreter: Interpreter, owner: int | None
) -> int:
    """Have compiled modules beside those of the prefix `target`, as far as they compile; return how many."""
    modules = await in_own_thread(_modules, target, interpreter.version)
    folder = shelf / f"compiling-{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    try:
        if owner is not None:
            os.chown(folder, owner, owner)
        place = Place("compiling", folder, owner, _LIMITS, (Mount(target, prefix.AT),))
        names = b"\0".join(os.fsencode(f"{prefix.AT}/{path.relative_to(target)}") for path in modules)
        argv = (interpreter.path, "-I", "-S", "-c", _COMPILE)
        command = Command(argv, "/workspace", _LIMITS.timeout_s, {"PATH": "/usr/bin:/bin"}, names)
        await engine.exec(place, command, lambda _stream, _chunk: None, Leash.loose())
        return await in_own_thread(_adopt, folder, modules, interpreter.tag)
    finally:
        await in_own_thread(shutil.rmtree, folder, ignore_errors=True)


def _modules(target: Path, version: str) -> list[Path]:
    return sorted(prefix.site_packages(target, version).rglob("*.py"))


def _adopt(folder: Path, modules: Sequence[Path], tag: str) -> int:
    """Take the files that the cell left, each by its number, and put them where they are looked for."""
    adopted = 0
    for number, module in enumerate(modules):
        content = _read(folder / str(number))
        if content is not None:
            cache = module.parent / "__pycache__"
            cache.mkdir(mode=0o755, exist_ok=True)
            new = folder / secrets.token_hex(16)  # not beside it: were we killed now, it would stay there
            with new.open("xb") as file:
                file.write(content)
            new.chmod(0o444)
            new.rename(cache / f"{module.stem}.{tag}.pyc")  # a cell that looks on sees all of it or none
            adopted += 1
    return adopted


def _read(path: Path) -> bytes | None:
    """Return a regular file's content; the cell may have left anything else there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(_LARGEST + 1)
    return content if len(content) <= _LARGEST else None
