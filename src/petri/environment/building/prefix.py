"""A Python environment as a folder: like a virtual environment, for the interpreter that cells have.

It is installed at one path of this host and used at another, `AT`, in every cell. So the interpreter in it
is a link to where cells have theirs, and programs name it where cells find it.
"""

import os
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cache
from pathlib import Path

AT = "/environment/python"
"""Where cells see it."""
_REQUIRES = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(.*)$")
_MOST_METADATA = 1 << 20
_FIRST_LINES = 1 << 16
_HOST = "zz-host.pth"
_CONFIGURED = "home = {}\ninclude-system-site-packages = false\nversion = {}\n"
_CUSTOMIZING = ("sitecustomize", "usercustomize", "apport_python_hook")
"""Modules that a start imports if there are any; the last one by the `sitecustomize` that Debian has."""
_READ_AT_START = ("lib*/python*/*-packages/*", "local/lib*/python*/*-packages/*", "bin/*._pth")
"""Where a start finds more to do. Debian's Python also looks where no installer puts anything, but a wheel
may have files for anywhere in the prefix."""
_PIP = """import os, sys
try:
    os.execv("/environment/bin/pip", ["/environment/bin/pip", *sys.argv[1:]])
except OSError:
    sys.exit("petri: nothing that this run was seen to start names pip, so it cannot ask for packages: "
             "declare them in requirements.txt, or run pip by a command of its own")
"""
_LEFT_BY_UV = ("CACHEDIR.TAG", ".lock", ".gitignore")


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a folder holds."""

    size: int
    files: int


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that cells use."""

    path: str
    version: str
    """As in `3.11`."""
    tag: str
    """As in `cpython-311`: what its compiled files are called by."""
    platform: str
    """Everything about it and this host that decides which packages suit it."""
    packages: tuple[str, ...] = ()
    """Where the host has packages of its own for it."""


def begin(prefix: Path, interpreter: Interpreter) -> None:
    """Have an empty prefix for an interpreter."""
    python, version = interpreter.path, interpreter.version
    (prefix / "bin").mkdir(parents=True)
    site_packages(prefix, version).mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to(python)
    for name in ("python3", f"python{version}"):
        (prefix / "bin" / name).symlink_to("python")
    _configure(prefix, interpreter)


def _configure(prefix: Path, interpreter: Interpreter) -> None:
    """Say where the standard library is: whoever could say otherwise would have every start run theirs."""
    configured = prefix / "pyvenv.cfg"
    configured.unlink(missing_ok=True)  # a package's own would be a link into the installer's cache
    configured.write_text(_CONFIGURED.format(Path(interpreter.path).parent, interpreter.version))


def site_packages(prefix: Path, version: str) -> Path:
    """Return where packages lie in a prefix."""
    return prefix / "lib" / f"python{version}" / "site-packages"


@cache
def runs_code_at_start(folder: Path) -> bool:
    """Say whether an environment's packages have every start of Python run something of theirs.

    Looked up once: what lies in an environment's folder never changes.
    """
    return any(_has_a_say(each) for pattern in _READ_AT_START for each in folder.glob(f"prefix/{pattern}"))


def _has_a_say(found: Path) -> bool:
    """Say whether a start of Python may run something because of a file that is there.

    A line of a `.pth` need not be code for that: a folder it names is searched for what a start imports.
    """
    if found.name == _HOST and found.parent.name == "site-packages":
        return False  # it is ours
    return found.name.endswith((".pth", "._pth")) or found.name.partition(".")[0] in _CUSTOMIZING


def finish(prefix: Path, interpreter: Interpreter) -> Weighed:
    """Make what was installed fit for cells: found at `AT`, readable by all."""
    # The host's own packages come last. Not by `include-system-site-packages`: that would also run every
    # `.pth` the host has, and some look for a package that is only found because of this environment.
    host = "".join(f"{folder}\n" for folder in interpreter.packages)
    ours = site_packages(prefix, interpreter.version) / _HOST
    ours.unlink(missing_ok=True)
    ours.write_text(host)
    _configure(prefix, interpreter)
    _add_pip(site_packages(prefix, interpreter.version))
    for name in _LEFT_BY_UV:
        (prefix / name).unlink(missing_ok=True)
    for script in (prefix / "bin").iterdir():
        _point_at_cell(script, interpreter)
    return weigh(prefix)


def _add_pip(packages: Path) -> None:
    """Have `python -m pip` do what a `pip` that is typed does, unless somebody wants pip itself."""
    if not (packages / "pip").exists():
        (packages / "pip").mkdir()
        (packages / "pip" / "__init__.py").write_text("")
        (packages / "pip" / "__main__.py").write_text(_PIP)


def weigh(folder: Path) -> Weighed:
    """Let everybody read all of `folder`, and nobody but its owner write to it; return what it holds.

    What the installer leaves is so already, so this is to look at each file, no more: somebody waits for it.
    """
    return _through(folder, lambda mode: mode in (0o644, 0o755, 0o444, 0o555))


def close(folder: Path) -> Weighed:
    """Let everybody read all of `folder` and nobody write to it; return what it holds."""
    return _through(folder, lambda mode: mode in (0o444, 0o555))


def _through(folder: Path, will_do: Callable[[int], bool]) -> Weighed:
    """Give what is in `folder` the right mode, but for files of which the mode `will_do`."""
    size = files = 0
    folder.chmod(0o755)
    waiting = [str(folder)]  # as text: of thousands of files, somebody waits for each
    for here in waiting:
        with os.scandir(here) as found:
            for entry in found:
                status = entry.stat(follow_symlinks=False)
                mode = stat.S_IMODE(status.st_mode)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(entry.path)
                    if mode != 0o755:
                        os.chmod(entry.path, 0o755)  # noqa: PTH101
                elif stat.S_ISREG(status.st_mode):
                    size += status.st_size
                    files += 1
                    if not will_do(mode):
                        os.chmod(entry.path, 0o555 if mode & stat.S_IXUSR else 0o444)  # noqa: PTH101
    return Weighed(size, files)


def needed_by(prefix: Path, version: str) -> dict[str, tuple[str, ...]]:
    """Return for each installed package which others of them name it as a requirement."""
    wants = {}
    for metadata in sorted(site_packages(prefix, version).glob("*.dist-info/METADATA")):
        with metadata.open("rb") as file:
            said = file.read(_MOST_METADATA).replace(b"\r\n", b"\n").partition(b"\n\n")[0]
        head = HeaderParser().parsestr(said.decode(errors="replace"))
        wants[normal(str(head["Name"]))] = {
            normal(found[1])
            for each in head.get_all("Requires-Dist") or ()
            if (found := _REQUIRES.match(str(each))) and "extra ==" not in found[2]
        }
    return {name: tuple(who for who, theirs in wants.items() if name in theirs) for name in wants}


def normal(name: str) -> str:
    """Return a package's name the way indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _point_at_cell(script: Path, interpreter: Interpreter) -> None:
    """Have a program started by the interpreter of its environment, not by the one it was installed for."""
    begins = re.compile(rb"#![ \t]*%s(?=\s)" % re.escape(interpreter.path.encode()))
    if script.is_symlink() or not script.is_file():
        return
    with script.open("rb") as old:
        if (found := begins.match(old.read(_FIRST_LINES))) is None:
            return
        script.unlink()  # it may be one file with another by now
        old.seek(found.end())
        with script.open("xb") as new:
            new.write(f"#!{AT}/bin/python".encode())
            shutil.copyfileobj(old, new)  # in pieces: a package can have a program of gigabytes
    script.chmod(0o555)
