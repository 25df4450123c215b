"""Hello world by engines of containers, where there are any: `docker run` and `podman run`."""

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.lanes import PYTHON, SAID

_IMAGE = "localhost/petri-bench-python"
_PATIENCE_S = 120
_NO_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
"""podman's own ask for more than a container of ours may have to give."""
RUN = {
    "docker": ("docker", "run", "--rm", "--network", "none"),
    "podman": ("podman", "run", "--rm", "--network", "none", *_NO_LIMITS),
}


@contextmanager
def ready(engine: str, folder: Path) -> Iterator[tuple[list[str], str]]:
    """Hold an image with this machine's Python; give what runs `folder`'s main.py in it, or why none can."""
    if shutil.which(engine) is None:
        yield [], f"{engine} is not installed"
        return
    try:
        _import(engine)
        argv = [*RUN[engine], "-v", f"{folder}:/w", "-w", "/w", _IMAGE, PYTHON, "main.py"]
        done = subprocess.run(argv, capture_output=True, timeout=_PATIENCE_S)
        why = "" if done.stdout == SAID else done.stderr.decode(errors="replace").strip().splitlines()[-1]
    except (subprocess.SubprocessError, OSError) as error:
        argv, why = [], _reason(error)
    try:
        yield ([], f"{engine} does not run here: {why}") if why else (argv, "")
    finally:
        subprocess.run([engine, "rmi", "--force", _IMAGE], capture_output=True)


def _import(engine: str) -> None:
    with tempfile.NamedTemporaryFile(suffix=".tar") as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path in _parts():
                archive.add(path, filter=_plain)
        packed.flush()
        command = [engine, "import", packed.name, _IMAGE]
        subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=True)


def _parts() -> list[str]:
    """Return what Python is made of here: itself, its library, and whatever it is linked with."""
    linked = subprocess.run(["ldd", PYTHON], capture_output=True, text=True, check=True).stdout
    libraries = [f"/usr{word.removeprefix('/usr')}" for word in linked.split() if word.startswith("/")]
    real = [str(Path(path).resolve()) for path in (PYTHON, *libraries)]
    return sorted({"/bin", "/lib", "/lib64", PYTHON, *libraries, *real, "/usr/lib/python3.11"})


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "/test/" in member.name or "/dist-packages/" in member.name else member


def _reason(error: Exception) -> str:
    said = getattr(error, "stderr", None)
    return said.decode(errors="replace").strip().splitlines()[-1] if said else str(error)
