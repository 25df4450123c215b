"""What a cell's root is made of, beyond the host's `/usr`: a made `/etc` and our own two programs.

All are built once, when the engine starts, in a folder of the server's own, and bound read-only into
every cell. Nothing of the host's `/etc` is shown but what programs cannot do without.
"""

import hashlib
import py_compile
import shutil
from pathlib import Path

from petri.engine.process import compile_program
from petri.errors import Unavailable

SOURCES = Path(__file__).parent.parent / "cell"
PROGRAMS = {"gate": "gate", "init": "etc/petri/init"}
"""The gate is only kept here, where the launcher finds it; no cell sees it."""
PROBE = "probe.py"
COMPILERS = ("cc", "gcc", "clang", "tcc")

_ETC = {
    "passwd": "petri:x:1000:1000::/workspace:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n",
    "group": "petri:x:1000:\nnogroup:x:65534:\n",
    "hostname": "sandbox\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "resolv.conf": "",
    "host.conf": "multi on\n",
    "shells": "/bin/sh\n/bin/bash\n",
    "os-release": "",
}
_COPIED = ("ld.so.cache", "ld.so.conf", "mime.types", "protocols", "services", "os-release")
"""Public facts about installed software; the same on every machine of a release."""
_COPIED_FOLDERS = ("alternatives", "ssl/certs", "java-17-openjdk", "fonts")
"""Links between programs, public certificates, and what some programs read at start. Copied and not bound:
a bind costs every cell a quarter of a millisecond."""


def build(folder: Path) -> None:
    """Fill `folder` with `etc/`, which has our init, `gate`, and a `workspace/` to try them in, anew."""
    if folder.exists():
        shutil.rmtree(folder)
    etc = folder / "etc"
    etc.mkdir(parents=True)
    for name, text in _ETC.items():
        (etc / name).write_text(text)
    for name in _COPIED:
        if (Path("/etc") / name).is_file():
            shutil.copyfile(Path("/etc") / name, etc / name)
    for name in _COPIED_FOLDERS:
        if (Path("/etc") / name).is_dir():
            shutil.copytree(Path("/etc") / name, etc / name, symlinks=True)
    for source in Path("/etc").glob("python3*"):  # what the host's own Python does at its start, it does here
        shutil.copytree(source, etc / source.name, symlinks=True)
    _put_hook(folder)
    for name, place in PROGRAMS.items():
        _build_program(folder, name, folder / place)
    _let_everybody_read(folder)


def _put_hook(folder: Path) -> None:
    """Have what parks a Python in `etc/petri/python`, and a script to try it with in `workspace/`."""
    hook = folder / "etc" / "petri" / "python" / "sitecustomize.py"
    hook.parent.mkdir(parents=True)
    shutil.copyfile(SOURCES / "python" / "sitecustomize.py", hook)
    # For a Python like this server's own, as most hosts have one; another one compiles it at every start.
    py_compile.compile(str(hook), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    (folder / "workspace").mkdir()
    shutil.copyfile(SOURCES / "python" / PROBE, folder / "workspace" / PROBE)


def _build_program(folder: Path, name: str, target: Path) -> None:
    """Have a program at `target`; compiled once for each version of its source."""
    source = SOURCES / f"{name}.c"
    text = source.read_bytes() + (SOURCES / "kernel.h").read_bytes()
    version = hashlib.blake2s(text, digest_size=8).hexdigest()
    built = folder.parent / f"{name}-{version}"
    if not built.exists():
        compilers = [found for name in COMPILERS if (found := shutil.which(name))]
        if not compilers:
            raise Unavailable("there is no C compiler to build a cell's first process: apt-get install tcc")
        compile_program(compilers, source, built.with_suffix(".new"))
        built.with_suffix(".new").rename(built)
    shutil.copyfile(built, target)


def _let_everybody_read(folder: Path) -> None:
    """Undo the server's umask: a cell's uid must be able to read what is bound into it."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    for place in PROGRAMS.values():
        (folder / place).chmod(0o755)
