"""Commands of a shell script that are not there, and the Debian package each would come with."""

import re

from petri.environment.needs.collecting import Collected
from petri.environment.needs.entry import Program
from petri.environment.needs.names.debian import package_of
from petri.environment.needs.nouns import Ask, Because, Wanted
from petri.environment.needs.shell import KEYWORDS
from petri.environment.needs.words import names_in

_BUILTIN = frozenset(
    names_in("""
    . : [ [[ alias bg bind break builtin caller cd command compgen complete compopt continue declare
    dirs disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill let
    local logout mapfile popd printf pushd pwd read readarray readonly return set shift shopt source
    suspend test times trap true type typeset ulimit umask unalias unset wait
""")
)
_NAME = re.compile(r"[A-Za-z0-9][\w+.-]{0,60}")


def commands_wanted(programs: list[Program], ask: Ask) -> Wanted:
    """Return the commands that nothing here would answer, as refusals."""
    found = Collected()
    own = _defined(programs)
    for program in programs:
        name = program.command.words[0] if program.command else ""
        is_known = ask.commands is None or name in ask.commands or name in _BUILTIN | KEYWORDS | own
        if program.command is None or is_known or not _NAME.fullmatch(name):
            continue
        if (package := package_of(name)) is not None:
            because = Because("", program.command.line, " ".join(program.command.words)[:200])
            sentence = f"there is no command `{name}` here; in Debian the package `{package}` has it"
            found.refuse(name, sentence, package, because)
    why = "commands are not installed; those that are missing are named" if found.refused else ""
    return Wanted("bash", refused=found.refusals(), why=why)


def is_builtin(name: str) -> bool:
    """Say whether the shell itself answers to a name."""
    return name in _BUILTIN or name in KEYWORDS


def _defined(programs: list[Program]) -> frozenset[str]:
    """Return the functions and aliases that the scripts define."""
    found: set[str] = set()
    for each in programs:
        words = each.command.words if each.command else ()
        if words[:1] in (("function",), ("alias",)):
            found.update(word.partition("=")[0] for word in words[1:])
    return frozenset(found)
