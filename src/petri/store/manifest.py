"""Which packs count, and which copies in them no longer do: what a sweep decided, as one file.

It is replaced in one step, so after a crash all that a sweep dropped is gone, or nothing is. Packs that came
later are not in it; a pack with an older number that is not in it is on its way out. A manifest that is
missing or damaged costs no object: everything on disk counts then.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import zstandard
from blake3 import blake3

from petri.store.disk import replace_file

_NAME = "manifest"


class Dead(NamedTuple):
    """What no longer counts of a pack: one bit for each entry of its index."""

    entries: int = 0
    """How many there are. Bits for another number are not for this index."""
    bits: bytes = b""

    def __contains__(self, number: object) -> bool:
        return (
            isinstance(number, int) and bool(self.bits) and bool(self.bits[number >> 3] >> (number & 7) & 1)
        )


class Manifest(NamedTuple):
    """What a sweep decided."""

    next: int
    """The number of the first pack that it says nothing about."""
    packs: Mapping[int, Dead]
    """Every older pack that counts."""


def save_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, durably."""
    packs = {str(number): [dead.entries, _packed(dead.bits)] for number, dead in manifest.packs.items()}
    said = json.dumps({"next": manifest.next, "packs": packs}).encode()
    replace_file(folder / _NAME, blake3(said).hexdigest().encode() + b"\n" + said)


def load_manifest(folder: Path) -> Manifest | None:
    """Return the manifest; nothing if there is none. `ValueError` if it is damaged."""
    try:
        check, _, said = (folder / _NAME).read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if blake3(said).hexdigest().encode() != check:
        raise ValueError("the digest is wrong")
    parsed = json.loads(said)
    packs = {
        int(number): Dead(entries, _unpacked(bits)) for number, (entries, bits) in parsed["packs"].items()
    }
    return Manifest(parsed["next"], packs)


def _packed(bits: bytes) -> str:
    return base64.b64encode(zstandard.ZstdCompressor().compress(bits)).decode() if bits else ""


def _unpacked(bits: str) -> bytes:
    return zstandard.ZstdDecompressor().decompress(base64.b64decode(bits)) if bits else b""
