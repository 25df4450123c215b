"""`petri cp`, either way."""

import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from petri.cli.options import connect, json_option
from petri.cli.printing import plain, print_json
from petri.cli.progress import Bar
from petri.errors import Conflict

if TYPE_CHECKING:
    from petri.sdk import Client
    from petri.wire import FileAnswer

_IN_SANDBOX = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """One side of a copy."""

    sandbox: str | None
    """None on this machine."""
    path: str

    @property
    def is_stream(self) -> bool:
        """Whether it is our standard input or output."""
        return self.sandbox is None and self.path == "-"

    @property
    def is_into(self) -> bool:
        """Whether it names the folder to copy into, rather than the copy itself."""
        return self.path in ("", ".") or self.path.endswith("/")

    @property
    def folder(self) -> str:
        """The path, where it names a folder; empty for the top of the workspace."""
        return "" if self.path in (".", "./") else self.path.rstrip("/")


def place(text: str) -> Place:
    """Read `SANDBOX:PATH`, or a path of this machine. As with scp, `./a:b` is a path."""
    found = _IN_SANDBOX.fullmatch(text)
    return Place(found[1], found[2]) if found else Place(None, text)


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("target")
@click.option(
    "-r", "--recursive", is_flag=True, help="Folders are always copied whole; accepted out of habit."
)
@json_option
def cp(sources: tuple[str, ...], target: str, *, recursive: bool, as_json: bool) -> None:
    """Copy files or folders to a sandbox, or from one.

    SANDBOX:PATH is in a sandbox, `-` is standard input or output. A target with a slash at the end is
    the folder to copy into; without, it is the copy itself. A source `pkg/` with a slash is what is in
    pkg. Links that are in a sandbox stay there.

    \b
    Example: petri cp main.py pkg crawler:
             petri cp crawler:out.csv .
             echo hello | petri cp - crawler:data/in.txt
    """
    del recursive
    froms, to = [place(source) for source in sources], place(target)
    with connect() as petri, Bar() as bar:
        if to.sandbox is not None and all(source.sandbox is None for source in froms):
            _refuse_up(froms, to)
            written = _up(petri, [source.path for source in froms], to, bar)
            if as_json:
                print_json({"files": [file.model_dump(mode="json") for file in written]})
        elif to.sandbox is None and all(source.sandbox is not None for source in froms):
            _refuse_down(to)
            landed = [_down(petri, source, to, bar) for source in froms]
            if as_json and not to.is_stream:
                print_json({"files": [str(path) for path in landed]})
        else:
            raise click.UsageError("one side must be SANDBOX:PATH and the other on this machine")


def _refuse_up(sources: list[Place], to: Place) -> None:
    if to.is_into and any(source.is_stream for source in sources):
        raise click.UsageError("standard input has no name: say what to call it, as SANDBOX:PATH")
    if not to.is_into and len(sources) > 1:
        raise click.UsageError(f"many things cannot become one: write {to.sandbox}:{to.path}/ with a slash")


def _up(petri: "Client", sources: list[str], to: Place, bar: Bar) -> "list[FileAnswer]":
    sandbox = petri.sandbox_id(to.sandbox or "")
    if to.is_into:
        return petri.upload(sandbox, *sources, into=to.folder, progress=bar).files
    (source,) = sources
    if source == "-":
        return [petri.write(sandbox, to.path, sys.stdin.buffer, progress=bar)]
    if Path(source).is_dir():
        return petri.upload(sandbox, source.rstrip("/") + "/", into=to.path, progress=bar).files
    return [petri.write(sandbox, to.path, Path(source), progress=bar)]


def _refuse_down(to: Place) -> None:
    if to.path.endswith("/") and not Path(to.path).is_dir():
        raise click.UsageError(f"there is no folder {to.path}")


def _down(petri: "Client", source: Place, to: Place, bar: Bar) -> Path:
    sandbox = petri.sandbox_id(source.sandbox or "")
    if to.is_stream:
        for chunk in petri.read_chunks(sandbox, source.path):
            sys.stdout.buffer.write(chunk)
        return Path("-")
    if not source.is_into:
        with suppress(Conflict):  # a folder has no bytes to download
            return petri.download(sandbox, source.path, Path(to.path), progress=bar)
    return _down_folder(petri, sandbox, source, Path(to.path), bar)


def _down_folder(petri: "Client", sandbox: str, source: Place, target: Path, bar: Bar) -> Path:
    import tempfile  # on use, with the next one: they would make every other command slower to start

    from petri.cli.unpacking import unpack

    name = "" if source.is_into else source.path.rpartition("/")[2]
    into = target / name if target.is_dir() else target
    with tempfile.TemporaryDirectory(prefix="petri-cp-") as scratch:
        archive = petri.download_archive(sandbox, source.folder, Path(scratch, "archive"), progress=bar)
        left_out = unpack(archive, into)
    if left_out:
        click.echo(f"petri: left out {len(left_out)} links, such as {plain(left_out[0])}", err=True)
    return into
