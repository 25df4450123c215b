"""What a build leaves is read within bounds, whatever it says of itself."""

import base64
import hashlib
import time
import zipfile
import zlib
from pathlib import Path

import pytest

from petri.environment.building.locks import Unreadable, read_sources
from petri.environment.building.sources import Metadata, Source, with_credentials
from petri.environment.building.wheels import NotAWheel, checked

HOMEMADE = Source("homemade", "1.0", "", "")
INFO = "homemade-1.0.dist-info"
FILES = {
    "homemade.py": b"",
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: homemade\nVersion: 1.0\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
}
SOON_S = 5
LOCK = """
[[packages]]
name = "homemade"
version = "1.0"
sdist = {{ url = "x", hashes = {{ sha256 = "{digest}" }} }}
"""


def row(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(content)}\n"


def packed(path: Path, *, packing: int = zipfile.ZIP_DEFLATED, lies: str = "") -> Path:
    """Return a wheel at `path`; of the file `lies` there is a megabyte more than it says."""
    rows = [row(name, content) for name, content in FILES.items()]
    record = "".join([*rows, f"{INFO}/RECORD,,\n"]).encode()
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in {**FILES, f"{INFO}/RECORD": record}.items():
            archive.writestr(name, content + bytes(1 << 20) if name == lies else content)
            entry = archive.getinfo(name)
            entry.file_size, entry.CRC = len(content), zlib.crc32(content)
    return path


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_wheel_is_one_however_it_is_packed(tmp_path: Path, packing: int) -> None:
    wheel = checked(packed(tmp_path / "wheel", packing=packing), HOMEMADE)

    assert wheel.filename == "homemade-1.0-py3-none-any.whl"


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_cannot_be_unpacked_piece_by_piece_is_not_unpacked(tmp_path: Path, packing: int) -> None:
    with pytest.raises(NotAWheel, match="packed as no wheel is"):
        checked(packed(tmp_path / "wheel", packing=packing), HOMEMADE)


@pytest.mark.parametrize("name", ["homemade.py", f"{INFO}/RECORD"])
def test_a_file_that_unpacks_to_more_than_it_says_is_noticed(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotAWheel):
        checked(packed(tmp_path / "wheel", lies=name), HOMEMADE)


def test_a_version_that_goes_on_and_on_is_compared_at_once() -> None:
    started = time.process_time()

    assert not HOMEMADE.is_of(Metadata("homemade", "1" + ".0" * 200_000 + "x"))
    assert HOMEMADE.is_of(Metadata("homemade", "1" + ".0" * 200_000))

    assert time.process_time() - started < SOON_S


def test_only_a_hash_names_a_source_distribution() -> None:
    assert read_sources(LOCK.format(digest="a" * 64))[0].digest == "a" * 64
    for digest in ("/dev/zero", "../" * 8 + "a" * 40, "A" * 64, ""):
        with pytest.raises(Unreadable):
            read_sources(LOCK.format(digest=digest))


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://a.test/x.tar.gz", "https://me:word@a.test/x.tar.gz"),
        ("http://a.test/x.tar.gz", "http://a.test/x.tar.gz"),
        ("https://b.test/x.tar.gz", "https://b.test/x.tar.gz"),
        ("https://you@a.test/x.tar.gz", "https://you@a.test/x.tar.gz"),
    ],
)
def test_a_password_goes_to_its_index_alone_and_never_in_the_clear(url: str, asked: str) -> None:
    assert with_credentials(url, ["https://me:word@a.test/simple"]) == asked
