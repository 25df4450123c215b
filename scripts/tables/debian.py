"""Which Debian package each command is in: from Debian's own lists of contents, as apt verifies them."""

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from subprocess import run

_TARGET = "Acquire::IndexTargets::deb::Contents-deb"
_OPTIONS = {
    "MetaKey": "$(COMPONENT)/Contents-$(ARCHITECTURE)",
    "ShortDescription": "Contents",
    "Description": "$(RELEASE)/$(COMPONENT) $(ARCHITECTURE) Contents",
    "DefaultEnabled": "true",
    "KeepCompressed": "true",
}
_COMMAND = re.compile(r"^(?:usr/)?s?bin/([A-Za-z0-9_+.\[-]+) +(\S+)$")


def contents() -> Iterator[str]:
    """Yield the lines of every list of contents that apt's sources have."""
    with tempfile.TemporaryDirectory() as folder:
        lists = Path(folder) / "lists"
        (lists / "partial").mkdir(parents=True)
        Path(folder).chmod(0o755)
        settings = [
            f"Dir::State::Lists={lists}",
            *(f"{_TARGET}::{key}={value}" for key, value in _OPTIONS.items()),
        ]
        run(["apt-get", "update", *(word for each in settings for word in ("-o", each))], check=True)
        for path in sorted(lists.glob("*_Contents-*")):
            told = run(["/usr/lib/apt/apt-helper", "cat-file", path], capture_output=True, check=True)
            yield from told.stdout.decode(errors="replace").splitlines()


def commands(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return command → packages, the one that is called like the command first, then the shortest name."""
    found: dict[str, set[str]] = {}
    for line in lines:
        if match := _COMMAND.match(line):
            packages = {each.rpartition("/")[2] for each in match[2].split(",")}
            found.setdefault(match[1], set()).update(packages)
    return {
        command: sorted(those, key=lambda package: (package != command, len(package), package))
        for command, those in sorted(found.items())
    }
