"""`pip` and `uv pip` in a cell: the server installs, under its own rules; the rest is read from here."""

import glob
import json
import os
import re
import sys
from importlib import metadata

from petri.cell.tools.door import ask

_TAKES_A_WORD = frozenset(
    (
        *("-i", "--index-url", "--default-index", "--index", "--extra-index-url", "--trusted-host"),
        *("-t", "--target", "--prefix", "--root", "--src", "-c", "--constraint", "-f", "--find-links"),
        *("--timeout", "--retries", "--progress-bar", "--platform", "--python-version", "--python", "-p"),
        *("--implementation", "--abi", "--cache-dir", "--proxy", "--cert", "--client-cert", "--log"),
        *("--only-binary", "--no-binary", "--report", "--config-settings", "-C", "--global-option"),
        *("--exists-action", "--upgrade-strategy", "--link-mode", "--exclude-newer", "--resolution"),
        *("--prerelease", "--format", "--keyring-provider"),
    )
)
_TOLD = frozenset(("list", "freeze", "show", "-V", "--version", "uninstall"))
_DEEPEST = 8
_SERVERS = "/environment/python"
"""Where the server has packages appear."""
_OURSELVES = ("pip", "uv")
"""Whoever brings these up to date first would have an installer that asks nobody here."""
_OWN = (
    "a project's own folder is not installed: run it from its folder. What its pyproject.toml declares is "
    "there by itself"
)
_KNOWN = "here pip knows `install`, `list`, `freeze` and `show`"


def main(argv: list[str], venv: str | None = None) -> int:
    """Do what was typed; return the exit code.

    Whoever works in a virtual environment of their own, `venv` or the one that is active, sees there what is
    installed.
    """
    name, words = os.path.basename(argv[0]), argv[1:]
    if name == "uv" and words[:1] == ["venv"]:
        return _make_venv(words[1:])
    if name == "uv" and words[:1] != ["pip"]:
        return _other(name, words)
    words = words[1:] if name == "uv" else words
    while words and words[0].startswith("-") and words[0] not in ("-V", "--version"):
        words = words[2:] if words[0] in _TAKES_A_WORD else words[1:]
    if not words:
        print(_KNOWN)
        return 0
    if words[0] in ("install", "sync"):
        return _install(f"{name} {'pip ' if name == 'uv' else ''}{words[0]}", words, venv or _active(name))
    return _tell(words[0], words[1:]) if words[0] in _TOLD else _other(name, argv[1:])


def _tell(verb: str, rest: list[str]) -> int:
    """Do what takes nothing but a look at what is there."""
    if verb in ("list", "freeze"):
        return _list(verb, rest)
    if verb == "show":
        return _show([word for word in rest if not word.startswith("-")])
    if verb == "uninstall":
        return _error("packages of a sandbox are only ever added; begin with a new sandbox to have fewer")
    print(f"pip 25.0 from /environment (python {sys.version_info[0]}.{sys.version_info[1]})")
    return 0


def venv_of(site: str) -> str | None:
    """Return the virtual environment that a folder of packages belongs to, unless it is the server's."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(site)))
    return root if _is_venv(root) else None


def _is_venv(root: str) -> bool:
    return os.path.realpath(root) != os.path.realpath(_SERVERS) and os.path.exists(f"{root}/pyvenv.cfg")


def _active(name: str) -> str | None:
    """Return the virtual environment that was activated or that uv would find, if there is one."""
    active = os.environ.get("VIRTUAL_ENV", "")
    if active and _is_venv(active):
        return active
    return ".venv" if name == "uv" and _is_venv(".venv") else None


def _see_packages(venv: str) -> None:
    """Have a virtual environment see what the server installed, now and in later runs."""
    ours = "".join(f"{folder}\n" for folder in glob.glob(f"{_SERVERS}/lib/python3*/site-packages"))
    for site in glob.glob(f"{venv}/lib/python3*/site-packages"):
        try:
            with open(f"{site}/petri.pth", "w", encoding="utf-8") as file:
                file.write(ours)
        except OSError as error:
            print(f"WARNING: {venv} does not see what was installed: {error}", file=sys.stderr)


def _make_venv(words: list[str]) -> int:
    """Make a virtual environment without a pip of its own, as `uv venv` does."""
    places = [word for word in words if not word.startswith("-")]
    place = places[-1] if places else ".venv"
    python = f"{_SERVERS}/bin/python3"
    status = os.spawnv(os.P_WAIT, python, [python, "-m", "venv", "--without-pip", place])
    if status == 0:
        print(f"Creating virtual environment at: {place}", file=sys.stderr)
    return status


def _install(typed: str, words: list[str], venv: str | None) -> int:
    verb, words = words[0], words[1:]
    try:
        wants = wanted(words, is_files=verb == "sync")
    except OSError as error:
        return _error(f"Could not open requirements file: {error}")
    except ValueError as error:
        return _error(str(error))
    if not wants:
        return _error('You must give at least one requirement to install (see "pip help install")')
    others = [each for each in wants if _normal(re.split(r"[^\w.-]", each)[0]) not in _OURSELVES]
    if not others:
        print(f"Requirement already satisfied: {' '.join(wants)}")
        return 0
    wants = others
    is_quiet = any(word in ("-q", "--quiet", "-qq") for word in words)
    say = (lambda line: None) if is_quiet else print
    question = {"ask": "install", "language": "python", "want": wants, "said": f"{typed} {' '.join(words)}"}
    answer = ask(question, say)
    if not answer["done"]:
        return _error(answer["said"])
    if venv is not None:
        _see_packages(venv)
    new = [each.replace("==", "-") for each in answer["new"]]
    say(
        f"Successfully installed {' '.join(new)}"
        if new
        else f"Requirement already satisfied: {' '.join(wants)}"
    )
    return 0


def wanted(words: list[str], *, is_files: bool) -> list[str]:
    """Return the requirements that the words of an `install` name, those in files included."""
    wants: list[str] = []
    words = list(words)
    while words:
        word = words.pop(0)
        if attached := re.fullmatch(r"(-[re])(.+)|(--requirements?|--editable)=(.+)", word, re.DOTALL):
            word = attached[1] or attached[3]
            words.insert(0, attached[2] or attached[4])
        if word in ("-r", "--requirement", "--requirements") and words:
            wants += _in_file(words.pop(0), 0)
        elif word in ("-e", "--editable"):
            raise ValueError(_OWN)
        elif word in _TAKES_A_WORD:
            words = words[1:]
        elif not word.startswith("-"):
            wants += _in_file(word, 0) if is_files else [_plain(word)]
    return wants


def _plain(word: str) -> str:
    if word.startswith((".", "/")):
        raise ValueError(_OWN)
    return word


def _in_file(path: str, depth: int) -> list[str]:
    """Return the requirements in a file and in those it names, without their options and hashes."""
    if depth > _DEEPEST:
        raise ValueError(f"{path} names a file that names a file, and so on without end")
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        text = re.sub(r"\\\n", " ", file.read())
    wants = []
    for line in text.splitlines():
        line = re.sub(r"(^|\s)#.*$", "", line).strip()
        nested = re.match(r"(?:-r|--requirement)[\s=]*(.+)", line)
        if nested:
            wants += _in_file(os.path.join(os.path.dirname(path), nested[1].strip()), depth + 1)
        elif re.match(r"(?:-e|--editable)\b", line):
            raise ValueError(_OWN)
        elif line and not line.startswith("-"):
            wants.append(re.sub(r"\s+--[a-z-]+[=\s]\S+", "", line).strip())
    return wants


def _distributions() -> list[metadata.Distribution]:
    folders = glob.glob("/environment/python/lib/python3*/site-packages")
    found = {each.metadata["Name"]: each for each in metadata.distributions(path=folders)}
    return [found[name] for name in sorted(found, key=str.lower)]


def _list(verb: str, words: list[str]) -> int:
    rows = [(each.metadata["Name"], each.version) for each in _distributions()]
    asked = " ".join(words)
    if verb == "freeze" or "freeze" in asked:
        for name, version in rows:
            print(f"{name}=={version}")
    elif "json" in asked:
        print(json.dumps([{"name": name, "version": version} for name, version in rows]))
    elif rows:
        width, other = (max(len(row[column]) for row in (*rows, ("Package", "Version"))) for column in (0, 1))
        for name, version in (("Package", "Version"), ("-" * width, "-" * other), *rows):
            print(f"{name:{width}} {version}".rstrip())
    return 0


def _show(names: list[str]) -> int:
    known = {_normal(each.metadata["Name"]): each for each in _distributions()}
    missing = [name for name in names if _normal(name) not in known]
    for number, name in enumerate(each for each in names if each not in missing):
        if number:
            print("---")
        _show_one(known[_normal(name)])
    if missing:
        print(f"WARNING: Package(s) not found: {', '.join(missing)}", file=sys.stderr)
    return int(len(missing) == len(names))


def _show_one(found: metadata.Distribution) -> None:
    said = found.metadata
    print(f"Name: {said['Name']}\nVersion: {found.version}")
    for field in ("Summary", "Home-page", "Author", "License"):
        print(f"{field}: {said.json.get(field.lower().replace('-', '_'), '')}")
    needs = [each for each in found.requires or () if "extra ==" not in each]
    names = sorted({re.split(r"[^\w.-]", each)[0] for each in needs})
    print(f"Location: {found.locate_file('')}\nRequires: {', '.join(names)}")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _other(name: str, words: list[str]) -> int:
    """Have the host's own program do what is none of ours, where there is one."""
    if name == "uv" and words[:1] == ["run"]:
        rest = words[1:]
        while rest and rest[0].startswith("-"):
            rest = rest[2:] if rest[0] in ("--with", "--group", "--extra", *_TAKES_A_WORD) else rest[1:]
        rest = ["python3", *rest] if rest and rest[0].endswith(".py") else rest
        if rest:
            os.execvp(rest[0], rest)
    for folder in ("/usr/local/bin", "/usr/bin"):
        if os.access(f"{folder}/{name}", os.X_OK):
            os.execv(f"{folder}/{name}", [name, *words])
    return _error(_KNOWN if name != "uv" else f"{_KNOWN}; uv knows `uv pip`, `uv venv` and `uv run`")


def _error(said: str) -> int:
    print(f"ERROR: {said}", file=sys.stderr)
    return 1
