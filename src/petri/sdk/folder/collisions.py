"""Names that are two in a sandbox and would be one here: some file systems fold case, or compose letters."""

import os
import unicodedata
from collections.abc import Callable, Iterable

from petri.errors import Invalid

Fold = Callable[[bytes], object]
"""Gives what a file system takes a name for: two with the same are one to it."""


def folding(folder: int) -> Fold | None:
    """Return how the file system of a folder of ours takes names, if it does not take them as they are."""
    probe = "Pétri-probe"
    names = {probe.lower(): _casefolded, unicodedata.normalize("NFD", probe): _composed}
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=folder))
    try:
        folds = [fold for name, fold in names.items() if os.access(name, os.F_OK, dir_fd=folder)]
    finally:
        os.unlink(probe, dir_fd=folder)
    return folds[0] if folds else None


def refuse_collisions(folder: bytes, names: Iterable[bytes], fold: Fold) -> None:
    """Raise `Invalid`, with both names, if two in one folder are the same to its file system."""
    taken: dict[object, bytes] = {}
    for name in names:
        other = taken.setdefault(fold(name), name)
        if other != name:
            where = os.fsdecode(folder) or "the top folder"
            raise Invalid(
                f"{os.fsdecode(other)!r} and {os.fsdecode(name)!r} in {where} are one name to this "
                "file system; rename one of them in the sandbox"
            )


def _composed(name: bytes) -> str:
    return unicodedata.normalize("NFC", os.fsdecode(name))


def _casefolded(name: bytes) -> str:
    return _composed(name).casefold()
