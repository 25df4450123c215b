"""`petri push`, `pull` and `sync` as they are usually typed, without click: it takes longer than they do."""

import gc
import os
import sys

from petri.cli.endings import failing_alike

_MODES = ("push", "pull", "sync")
_FLAGS = {"--json": "as_json", "--dry-run": "dry_run"}
_SIDES = ("local", "sandbox")


def quickly(words: list[str]) -> bool:
    """Do what `words` ask for, if it is one of the three and written plainly; else say so, with nothing done.

    What is wrong in any way is not ours either: click finds the words for it.
    """
    if not words or words[0] not in _MODES:
        return False
    asked = _read(words[1:])
    if asked is None:
        return False
    from petri.cli.folders import Asked, exchange  # on use: every other command does without

    (folder, sandbox), options = asked
    if words[0] == "pull":
        folder, sandbox = sandbox, folder
    # What a process this short makes it need not tidy up: neither as it goes, nor when it ends.
    gc.disable()
    with failing_alike():
        code = exchange(Asked(words[0], folder, sandbox, **options))  # type: ignore[arg-type]
    sys.stderr.flush()
    os._exit(code)


def _read(words: list[str]) -> tuple[list[str], dict[str, str | bool]] | None:
    plain: list[str] = []
    options: dict[str, str | bool] = {}
    rest = iter(words)
    for word in rest:
        if word in _FLAGS:
            options[_FLAGS[word]] = True
        elif word == "--prefer":
            options["prefer"] = next(rest, "")
        elif word.startswith("-"):
            return None
        else:
            plain.append(word)
    if len(plain) != 2 or options.get("prefer", "local") not in _SIDES:
        return None
    return plain, options
