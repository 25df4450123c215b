"""`npm install` in a cell, and the same of yarn and pnpm: the server installs, under its own rules."""

import json
import os
import sys
from typing import Any

from petri.cell.tools.door import ask

_INSTALLS = frozenset(("install", "i", "in", "ins", "add", "ci", "clean-install"))
_TAKES_A_WORD = frozenset(
    ("--registry", "--prefix", "-C", "--cache", "--loglevel", "--omit", "--include", "--tag", "-w")
)
_GROUPS = ("dependencies", "devDependencies", "optionalDependencies")


def main(argv: list[str]) -> int:
    """Do what was typed; return the exit code."""
    name, words = os.path.basename(argv[0]), argv[1:]
    verb = next((word for word in words if not word.startswith("-")), "install" if name == "yarn" else "")
    if verb not in _INSTALLS:
        return _other(name, words)
    wants = _wanted(words[words.index(verb) + 1 :] if verb in words else words)
    is_named = bool(wants)
    wants = [want for want in wants or _declared() if not _is_own(_name(want))]
    if not wants:
        print("up to date")
        return 0
    said = " ".join((name, *words))
    answer = ask({"ask": "install", "language": "javascript", "want": wants, "said": said}, print)
    if not answer["done"]:
        print(f"npm error {answer['said']}", file=sys.stderr)
        return 1
    new = answer["new"]
    if is_named and "--no-save" not in words and "-g" not in words:
        _save(wants, answer["installed"])
    print(f"added {len(new)} package{'s' * (len(new) > 1)}" if new else "up to date")
    return 0


def _wanted(words: list[str]) -> list[str]:
    wants: list[str] = []
    words = list(words)
    while words:
        word = words.pop(0)
        if word in _TAKES_A_WORD:
            words = words[1:]
        elif not word.startswith("-"):
            wants.append(word)
    return wants


def _package_json() -> dict[str, Any] | None:
    try:
        with open("package.json", encoding="utf-8") as file:
            said = json.load(file)
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def _declared() -> list[str]:
    said = _package_json() or {}
    groups = [said.get(group) for group in _GROUPS]
    return [
        f"{name}@{versions}"
        for group in groups
        if isinstance(group, dict)
        for name, versions in group.items()
    ]


def _name(want: str) -> str:
    return want[:1] + want[1:].partition("@")[0]


def _is_own(name: str) -> bool:
    """Say whether a package is the project's own: it is linked already, and no registry is asked for it."""
    linked = f"/node_modules/{name}"
    return os.path.islink(linked) and os.path.realpath(linked).startswith("/workspace/")


def _save(wants: list[str], installed: list[str]) -> None:
    """Have the project declare what it now has, as npm does where there is a package.json."""
    said = _package_json()
    if said is None:
        return
    versions = dict(each.rsplit("@", 1) for each in installed)
    declared = said.setdefault("dependencies", {})
    for want in wants:
        name = _name(want)
        if isinstance(declared, dict) and name in versions:
            declared[name] = want[len(name) + 1 :] or f"^{versions[name]}"
    try:
        with open("package.json", "w", encoding="utf-8") as file:
            file.write(json.dumps(said, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        print(f"npm warn package.json could not be written: {error}", file=sys.stderr)


def _other(name: str, words: list[str]) -> int:
    for folder in ("/usr/local/bin", "/usr/bin"):
        if os.access(f"{folder}/{name}", os.X_OK):
            os.execv(f"{folder}/{name}", [name, *words])
    print(f"npm error here {name} knows `install` alone", file=sys.stderr)
    return 1
