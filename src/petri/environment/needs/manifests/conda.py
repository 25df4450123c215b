"""environment.yml: what conda would install, as far as the package index has it by a known name."""

import re
from collections.abc import Iterator

from petri.environment.needs.words import names_in

_ENTRY = re.compile(r"^(?P<space>\s*)-\s+[\"']?(?:[\w.-]+::)?(?P<said>[^\"'#]+?)[\"']?\s*(?:#.*)?$")
_CONDA = re.compile(r"(?P<name>[\w.-]+)\s*(?P<versions>(?:[=<>!~].*)?)")
_NAMES = {
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "opencv": "opencv-python-headless",
    "py-opencv": "opencv-python-headless",
    "matplotlib-base": "matplotlib",
    "pytables": "tables",
    "python-graphviz": "graphviz",
    "dask-core": "dask",
    "seaborn-base": "seaborn",
    "psycopg2": "psycopg2-binary",
    "msgpack-python": "msgpack",
    "ruamel.yaml": "ruamel-yaml",
    "pyqt": "pyqt5",
    "tensorflow-cpu": "tensorflow",
}
_NOT_PYTHON = frozenset(
    names_in("""
    python pip nodejs cudatoolkit cuda cudnn mkl blas openblas libblas gcc gxx gfortran make cmake ninja
    git ffmpeg jpeg libpng openssl sqlite zlib pytorch-cuda cpuonly nomkl compilers r-base wheel
    setuptools
""")
)


def requirements(text: str) -> list[str]:
    """Return the requirements below `dependencies:`, those of pip as they are."""
    return list(_requirements(text))


def _requirements(text: str) -> Iterator[str]:
    is_inside, pip_space = False, -1
    for line in text.splitlines():
        if re.match(r"\w", line):
            is_inside = line.startswith("dependencies:")
            continue
        match = _ENTRY.match(line) if is_inside else None
        if match is None:
            continue
        space = len(match["space"])
        if match["said"] == "pip:":
            pip_space = space
        elif 0 <= pip_space < space:
            yield match["said"]
        elif conda := _CONDA.fullmatch(match["said"]):
            pip_space = -1
            yield from _translated(conda["name"], conda["versions"])


def _translated(name: str, versions: str) -> Iterator[str]:
    if name in _NOT_PYTHON or name.startswith(("lib", "_", "r-")):
        return
    exact = re.fullmatch(r"={1,2}\s*([\w.+!]+)(?:=.*)?", versions)
    if exact is None:
        yield _NAMES.get(name, name) + versions.replace(" ", "")
    elif exact[1].count(".") >= 2 or versions.startswith("=="):
        yield f"{_NAMES.get(name, name)}=={exact[1]}"
    else:
        yield f"{_NAMES.get(name, name)}=={exact[1]}.*"
