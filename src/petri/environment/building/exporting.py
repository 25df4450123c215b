"""A lock of JavaScript packages as files that others rebuild it by: bun's own, and npm's. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from petri.environment.building.bun import manifest_of, portable, read
from petri.environment.building.locks import Lock

_SAID = ("dependencies", "optionalDependencies", "peerDependencies", "bin", "os", "cpu")
"""What both kinds of lock say of a package, in the same words."""


def portable_files(lock: Lock) -> Mapping[str, str]:
    """Return what `npm ci` or `bun install --frozen-lockfile` needs to have the same packages."""
    manifest = json.loads(manifest_of(lock))
    return {
        "package.json": json.dumps(manifest, indent=2) + "\n",
        "package-lock.json": json.dumps(_npm_lock(lock, manifest), indent=2) + "\n",
        "bun.lock": portable(lock.text),
    }


def _npm_lock(lock: Lock, manifest: dict[str, Any]) -> dict[str, Any]:
    packages = {_place(key): _package(entry) for key, entry in read(lock.text)["packages"].items()}
    # Without addresses: npm asks the registry it is set up for, and holds what comes to its hash.
    return {"lockfileVersion": 3, "requires": True, "packages": {"": manifest, **packages}}


def _place(key: str) -> str:
    """Return where npm puts what bun calls `debug/ms`, or `@scope/a/b`."""
    folders, words = [], iter(key.split("/"))
    for word in words:
        name = f"{word}/{next(words)}" if word.startswith("@") else word
        folders.append(f"node_modules/{name}")
    return "/".join(folders)


def _package(entry: list[Any]) -> dict[str, Any]:
    name, _, version = entry[0].rpartition("@")
    said = {each: entry[2][each] for each in _SAID if each in entry[2]}
    optional = entry[2].get("optionalPeers")
    if optional:
        said["peerDependenciesMeta"] = {each: {"optional": True} for each in optional}
    return {"name": name, "version": version, "integrity": entry[3], **said}
