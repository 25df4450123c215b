"""Programs in cells, asked for over HTTP as anybody would, in a sandbox that serves one after the other."""

import io
import os
import re
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.calls import create, files_url, put, run, sh, workspaces
from tests.conftest import Server
from tests.exactly.programs import Program
from tests.exactly.seen import Seen, files_in

FITTED = "petri_parked_cells_fitted_total"
"""What `/metrics` calls the parked cells that have served a run of the kind they had been parked for."""
_TRIES = 20
"""For a cell to be parked in time: it takes some 30 ms, and the machine may be busy."""
_PRIMERS: dict[str, dict[str, Any]] = {
    "filename": {"filename": ".primer.py"},
    "code": {"code": "pass"},
    "command": {"command": "true"},
}


@dataclass
class Cells:
    """One sandbox of one server."""

    server: Server
    http: httpx.Client
    must_park: bool
    """Whether a run counts only if a cell served it that had been parked for a run of its form."""
    sandbox: str = field(init=False)
    _last_form: str = ""
    _fitted: float = 0

    def __post_init__(self) -> None:
        self.sandbox = create(self.http)

    @property
    def _folder(self) -> Path:
        return workspaces(self.server) / self.sandbox

    def run(self, program: Program) -> Seen:
        """Run it in an otherwise empty workspace, and see what it did."""
        for _ in range(_TRIES):
            self._fill(program)
            if self.must_park and self._last_form != program.form:
                self._prime(program.form)
            seen = self._seen(run(self.http, self.sandbox, **program.body))
            self._last_form = program.form
            if not self.must_park or self._was_parked():
                return seen
        raise AssertionError(f"no parked cell served it in {_TRIES} tries")

    def _prime(self, form: str) -> None:
        """Run something of a form: the next cell is then parked for another one like it."""
        if form == "filename":
            put(self.http, self.sandbox, ".primer.py", "pass")
        run(self.http, self.sandbox, **_PRIMERS[form])
        self._fitted = self._parked_fitted()
        if form == "filename":
            self._delete(".primer.py")

    def _fill(self, program: Program) -> None:
        for entry in self._folder.iterdir():
            self._delete(entry.name)
        if program.files or program.links:
            sent = self.http.post(
                f"/v1/sandboxes/{self.sandbox}/files?extract=true",
                files={"file": ("files.tar", _packed(program))},
            )
            assert sent.status_code == 201, sent.text
        if program.before is not None:
            sh(self.http, self.sandbox, program.before)
            self._last_form = "before"

    def _delete(self, name: str) -> None:
        gone = self.http.delete(files_url(self.sandbox, os.fsencode(name)))
        assert gone.status_code == 204, gone.text

    def _seen(self, told: dict[str, Any]) -> Seen:
        stdout, stderr = (self._said(told, stream) for stream in ("stdout", "stderr"))
        return Seen(told["exit_code"], told["signal"], stdout, stderr, files_in(self._folder))

    def _said(self, told: dict[str, Any], stream: str) -> bytes:
        text: str = told[stream]
        if "\N{REPLACEMENT CHARACTER}" not in text and not told[f"{stream}_truncated"]:
            return text.encode()
        return self.http.get(f"/v1/runs/{told['run_id']}/{stream}").content

    def _was_parked(self) -> bool:
        """Say whether a cell parked for its form served the last run; nobody but us uses this server."""
        before, self._fitted = self._fitted, self._parked_fitted()
        return self._fitted > before

    def _parked_fitted(self) -> float:
        found = re.search(rf"^{FITTED} (\S+)$", self.http.get("/metrics").text, re.MULTILINE)
        assert found is not None, f"/metrics has no {FITTED}"
        return float(found[1])


def _packed(program: Program) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in program.files.items():
            header = tarfile.TarInfo(path)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
        for path, target in program.links.items():
            header = tarfile.TarInfo(path)
            header.type, header.linkname = tarfile.SYMTYPE, target
            archive.addfile(header)
    return packed.getvalue()
