"""Programs on the bare machine: no cell, no init, no seccomp, no cgroup; the same interpreter and paths.

Paths are part of what a program can print, so its folder has to be `/workspace` here too. A mount namespace
of its own gives it that, and the same `/etc`; it is the only thing between the program and the machine.
"""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from petri.operations.command import BASE_ENV, WORKSPACE
from tests.exactly.programs import Program
from tests.exactly.seen import Seen, files_in

PYTHON = "/usr/bin/python3"
UID = 1000
_ENTER = """
set -e
mounts=$1 folder=$2 workspace=$3; shift 3
mount --all --fstab "$mounts"
mount --bind "$folder" "$workspace"
exec "$@"
"""
_MOUNTS = """
/usr {stage}/usr none bind 0 0
{etc} {stage}/etc none bind 0 0
/proc {stage}/proc none bind 0 0
/dev {stage}/dev none rbind 0 0
tmpfs {stage}/tmp tmpfs mode=1777 0 0
"""
_UMASK = 0o022
"""That of a cell."""
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Bare:
    """A root that is the host's own `/usr` and a made `/etc`, so that users have the same names."""

    scratch: Path
    etc: Path
    open_files: int

    @property
    def _stage(self) -> Path:
        return self.scratch / "stage"

    def build(self) -> "Bare":
        """Make the folders that things are mounted on."""
        for name in ("usr", "etc", "proc", "dev", "tmp", "workspace"):
            (self._stage / name).mkdir(parents=True)
        for name, target in _LINKS.items():
            (self._stage / name).symlink_to(target)
        (self.scratch / "mounts").write_text(_MOUNTS.format(stage=self._stage, etc=self.etc))
        return self

    def run(self, program: Program) -> Seen:
        """Run it in a folder of its own, and see what it did."""
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            self._fill(folder, program)
            return self._run(folder, program)
        finally:
            shutil.rmtree(folder)

    def _fill(self, folder: Path, program: Program) -> None:
        for path, content in program.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
            (folder / path).chmod(0o644)
        for path, target in program.links.items():
            (folder / path).symlink_to(target)
        for entry in (folder, *folder.rglob("*")):
            os.chown(entry, UID, UID, follow_symlinks=False)
        if program.before is not None:
            self._enter(folder, ["/bin/sh", "-c", program.before], {}, b"").check_returncode()

    def _run(self, folder: Path, program: Program) -> Seen:
        body = program.body
        stdin = body.get("stdin", "").encode()
        done = self._enter(folder, words(program), body.get("env", {}), stdin, body.get("cwd"))
        code = done.returncode if done.returncode >= 0 else None
        signal = None if done.returncode >= 0 else -done.returncode
        return Seen(code, signal, done.stdout, done.stderr, files_in(folder))

    def _enter(
        self, folder: Path, argv: list[str], env: dict[str, str], stdin: bytes, cwd: str | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        where = str(Path(WORKSPACE) / (cwd or ""))
        variables = {**BASE_ENV, "PWD": where.rstrip("/"), **env}
        with tempfile.TemporaryFile(buffering=0) as source, Path("/dev/null").open("rb") as nothing:
            source.write(stdin)
            source.seek(0)
            return subprocess.run(
                [
                    *("unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh"),
                    *(str(self.scratch / "mounts"), str(folder), str(self._stage / "workspace")),
                    *("prlimit", f"--nofile={self.open_files}"),
                    *("chroot", f"--userspec={UID}:{UID}", "--groups=", str(self._stage)),
                    *("/usr/bin/env", "-i", "--default-signal=INT,QUIT", "-C", where),
                    *(f"{name}={value}" for name, value in variables.items()),
                    *argv,
                ],
                stdin=source if stdin else nothing,
                capture_output=True,
                timeout=_TIMEOUT_S,
                start_new_session=True,
                umask=_UMASK,
            )


def words(program: Program) -> list[str]:
    """Return what one would type for it."""
    body = program.body
    args = body.get("args", [])
    command = body.get("command")
    if isinstance(command, str):
        return ["/bin/sh", "-c", command, "sh", *args]
    if command is not None:
        return [*command, *args]
    if "code" in body:
        return [PYTHON, "-c", body["code"], *args]
    name = f"{WORKSPACE}/{body['filename']}" if "cwd" in body else body["filename"]
    return [PYTHON, name, *args]
