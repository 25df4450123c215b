"""Every knob of the server. The only place there that reads the environment; see `docs/settings.md`."""

import difflib
import os
import re
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from petri.errors import Invalid

PREFIX = "PETRI_"
CLIENT_ONLY = frozenset({"PETRI_URL"})
"""Read by the CLI and the SDK; a server may find it in its environment and ignores it."""

_MIB = 2**20
_GIB = 2**30

OWN_DESCRIPTORS = 128
"""What a server keeps for itself of the files it may have open: the ledger, its launcher, a few cells."""


def _connections() -> int:
    """Return how many clients can be served at one time, each with the files and pipes its request needs."""
    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return 1024
    return min(1024, max(16, (descriptors - 4 * OWN_DESCRIPTORS) // 4))


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


Names = Annotated[
    frozenset[str],
    BeforeValidator(
        lambda given: (
            frozenset(name.strip().lower() for name in given.split(",") if name.strip())
            if isinstance(given, str)
            else given
        )
    ),
]
"""Names with commas between them."""


class Settings(BaseModel):
    """Set as `PETRI_PORT=9000` and so on. Units are in the names."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback needs a key: `PETRI_API_KEY`, or `petri keys create`."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one and prints it."""
    api_key: str | None = Field(default=None, min_length=16)
    """An `admin` key of tenant `default`, 16 characters or more. Without a key only this machine may call."""
    home: Path = Field(default_factory=lambda: Path.home() / ".petri")
    """Where the ledger, kept output and everything else of the server's own lies."""
    workspace_root: Path | None = None
    """Where the sandboxes' folders lie; `$PETRI_HOME/workspaces` unless set."""
    ledger_url: str | None = None
    """Database of the ledger as an SQLAlchemy URL; a SQLite file under `PETRI_HOME` unless set."""
    cgroups: Literal["required", "optional"] = "required"
    """`optional` runs code even where processor and memory cannot be limited."""
    uid_base: int = Field(default=0x7000_0000, ge=100_000, le=0x7FFE_0000)
    """As root, sandbox number N runs as this host uid + N; the default range is reserved by nobody."""
    cpus: float = Field(default=1.0, gt=0)
    """Processors each run may use, when its sandbox names no limit."""
    memory_bytes: int = Field(default=512 * _MIB, ge=16 * _MIB)
    """Memory and swap each run may use, when its sandbox names no limit."""
    processes: int = Field(default=256, ge=4)
    """Processes and threads each run may have, when its sandbox names no limit."""
    open_files: int = Field(default=1024, ge=32)
    """Files each process of a run may have open, when its sandbox names no limit."""
    disk_bytes: int = Field(default=4 * _GIB, ge=_MIB)
    """Disk space each workspace may take, when its sandbox names no limit."""
    inodes: int = Field(default=200_000, ge=16)
    """Files, folders and links each workspace may hold, when its sandbox names no limit."""
    timeout_s: float = Field(default=120, gt=0)
    """Longest a run may take, when neither it nor its sandbox names a limit."""
    timeout_max_s: float = Field(default=86_400, gt=0)
    """Longest limit a run or a sandbox may name."""
    memory_max_bytes: int = Field(default_factory=_host_memory_bytes, ge=16 * _MIB)
    """Largest memory limit a sandbox may name."""
    tmp_bytes: int = Field(default=256 * _MIB, ge=_MIB)
    """Size of a run's `/tmp` and of its `/dev/shm`, when its sandbox names no limit; both are memory."""
    parked_bytes: int = Field(default=128 * _MIB, ge=0)
    """Memory for cells that stand ready before anybody asks, 8 MiB for each; 0 has none stand."""
    total_memory_bytes: int = Field(default_factory=lambda: _host_memory_bytes() * 4 // 5, ge=64 * _MIB)
    """Memory and swap that all runs together may use."""
    total_processes: int = Field(default=16_384, ge=64)
    """Processes and threads that all runs together may have; a run may not ask for more either."""
    disk_reserve_bytes: int | None = Field(default=None, ge=0)
    """Free space that runs and uploads may not touch; 1 GiB unless set, or 2 % of a disk below 50 GiB."""
    peers_bytes: int = Field(default=16 * _GIB, ge=_MIB)
    """Bytes that copies of a tenant's trees may take while its runs see them as peers."""
    dependencies: Literal["auto", "manifest-only", "off"] = "auto"
    """Which packages are installed by themselves: those that are imported, those in a manifest, or none."""
    allow_packages: Names | None = None
    """Names of packages, with commas, that are fine whatever Petri knows of them."""
    deny_packages: Names | None = None
    """Names of packages, with commas, that are never installed, whoever names them."""
    index_url: str | None = None
    """Package index for Python, as in `https://…/simple`; unless set, the one that uv is configured for."""
    exclude_newer_days: int = Field(default=7, ge=0, le=3650)
    """Days a package must have been published for; 0 takes any, and suits an index that tells no dates."""
    builds: Literal["cell", "off"] = "cell"
    """Where a package without a wheel is built: in a `cell`, which has no network, or not at all (`off`)."""
    environments_bytes: int = Field(default=20 * _GIB, ge=_MIB)
    """Disk space that installed packages may take; what has not been used for longest goes first."""
    max_runs: int = Field(default_factory=lambda: 16 * (os.cpu_count() or 1), ge=1)
    """Sandboxes that may run something at one time; one more waits for its turn."""
    max_queued_runs: int = Field(default=1024, ge=0)
    """Runs that may wait for their turn, in all sandboxes; one more is told to come back (429)."""
    tenant_sandboxes: int = Field(default=0, ge=0)
    """Live sandboxes a tenant may have, when it has no quota of its own; 0 is as many as it likes."""
    tenant_runs: int = Field(default=0, ge=0)
    """Runs of a tenant, running and waiting, when it has no quota of its own; 0 is as many as it likes."""
    tenant_disk_bytes: int = Field(default=0, ge=0)
    """Disk a tenant's live sandboxes may take, when it has no quota of its own; 0 is as much as it likes."""
    undo_runs: int = Field(default=20, ge=0)
    """Runs of each sandbox whose files, before and after, can be had again."""
    undo_bytes: int = Field(default=16 * _GIB, ge=0)
    """What those may take of the disk for each tenant; what does not fit is let go, the oldest first."""
    gc_s: float = Field(default=600, gt=0)
    """How often what nothing needs any more is swept from the store."""
    gc_grace_s: float = Field(default=3600, ge=1)
    """How long what is put into the store, or asked for, is not swept, whether anything needs it or not."""
    answer_output_bytes: int = Field(default=_MIB, ge=1024)
    """Output of one stream in an answer: beyond it, the head and the tail are kept."""
    kept_output_bytes: int = Field(default=256 * _MIB, ge=1024)
    """Output of one stream kept on disk; what comes after is counted and thrown away."""
    max_body_bytes: int = Field(default=32 * _MIB, ge=1024)
    """Largest JSON body of a request."""
    max_upload_bytes: int = Field(default=16 * _GIB, ge=1024)
    """Largest upload of files, and the most an archive may unpack to."""
    max_upload_files: int = Field(default=50_000, ge=1)
    """Most files in one upload, and the most an archive may unpack to."""
    max_connections: int = Field(default_factory=_connections, ge=1)
    """Connections at one time; one more is told to come back (503). Must leave 128 descriptors free."""
    client_head_s: float = Field(default=10, gt=0)
    """How long the head of a request may take to come, from the connection or its first byte on."""
    client_idle_s: float = Field(default=75, gt=0)
    """How long a connection is kept for another request."""
    client_body_s: float = Field(default=30, gt=0)
    """Of a body we wait for, a kibibyte a second must come in any time this long (else 408)."""
    client_take_s: float = Field(default=60, gt=0)
    """Of an answer, a kibibyte a second must be taken in any time this long, or the client is cut off."""
    drain_s: float = Field(default=10, ge=0)
    """How long SIGTERM waits for runs to end before it ends them."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much the server says on stderr."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.timeout_s > self.timeout_max_s:
            raise ValueError("PETRI_TIMEOUT_S is larger than PETRI_TIMEOUT_MAX_S")
        if "memory_bytes" in self.model_fields_set and self.memory_bytes > self.memory_max_bytes:
            raise ValueError("PETRI_MEMORY_BYTES is larger than PETRI_MEMORY_MAX_BYTES")
        return self

    @property
    def workspaces(self) -> Path:
        """Where the sandboxes' folders lie."""
        return self.workspace_root or self.home / "workspaces"

    @property
    def ledger(self) -> str:
        """Database of the ledger."""
        return self.ledger_url or f"sqlite:///{self.home / 'ledger.db'}"


def load() -> Settings:
    """Read the environment; a misspelt name stops the server instead of being ignored."""
    known = {PREFIX + name.upper(): name for name in Settings.model_fields}
    given = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    if unknown := sorted(given.keys() - known.keys() - CLIENT_ONLY):
        raise Invalid("; ".join(_unknown(name, known.keys()) for name in unknown))
    try:
        settings = Settings.model_validate({known[name]: given[name] for name in known.keys() & given.keys()})
    except ValidationError as error:
        raise Invalid("; ".join(_wrong(each) for each in error.errors())) from error
    return settings.model_copy(update=_absolute(settings))


_CERTIFICATES = Path("/etc/ssl/certs")
"""Where Debian, and most others, have every certificate, and a bundle of them all."""
_BUNDLED_S = 60.0
"""What makes the bundle goes on to make links beside it, which is no change of what it holds."""
INSTALLERS_READ = re.compile(
    r"(?i)(PATH|HOME|LANG|TMPDIR|XDG_CONFIG_HOME|SSL_CERT_FILE|SSL_CERT_DIR|NODE_EXTRA_CA_CERTS"
    r"|(HTTPS?|ALL|NO)_PROXY|NPM_CONFIG_.*"
    r"|UV_(INDEX.*|DEFAULT_INDEX|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|OFFLINE|CONFIG_FILE|KEYRING_PROVIDER"
    r"|INSECURE_HOST|SYSTEM_CERTS|NATIVE_TLS|HTTP_.*|REQUEST_TIMEOUT|CONCURRENT_.*))"
)
"""What the installers of packages may know of this server's environment: how to reach an index, no more."""


def for_installers() -> dict[str, str]:
    """Return the environment that installers of packages are started with."""
    ours = {"UV_SYSTEM_CERTS": "1", "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "1"}
    given = {name: value for name, value in os.environ.items() if INSTALLERS_READ.fullmatch(name)}
    return ours | _with_one_bundle(given, _CERTIFICATES)


def _with_one_bundle(given: dict[str, str], certificates: Path) -> dict[str, str]:
    """Return `given`, naming the bundle of all certificates instead of the folder they lie in one by one.

    uv reads both at each of its starts, and the folder takes it a tenth of a second. It stays where it is
    not `certificates`, or has changed since the bundle was made of it, and where a crash left that one empty.
    """
    bundle = certificates / "ca-certificates.crt"
    named = (given.get("SSL_CERT_FILE"), given.get("SSL_CERT_DIR"))
    if named not in ((None, None), (str(bundle), str(certificates))):
        return given
    try:
        made = bundle.stat()
        is_of_them_all = made.st_size > 0 and certificates.stat().st_mtime - made.st_mtime < _BUNDLED_S
    except OSError:
        return given
    if not is_of_them_all:
        return given
    return {name: value for name, value in given.items() if name != "SSL_CERT_DIR"} | {
        "SSL_CERT_FILE": str(bundle)
    }


def _absolute(settings: Settings) -> dict[str, Path]:
    return {
        "home": settings.home.expanduser().absolute(),
        "workspace_root": settings.workspaces.expanduser().absolute(),
    }


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"there is no setting {name}; the nearest is {near[0]}"


def _wrong(error: object) -> str:
    assert isinstance(error, dict)
    where = "_".join(str(part) for part in error["loc"]).upper()
    name = f"{PREFIX}{where}: " if where else ""
    return f"{name}{error['msg']}"
