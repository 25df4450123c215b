"""Whether a run may ask for packages itself, by `pip install` and the like.

Most never do, and are spared what it takes to be heard. So it is the word that counts, wherever it stands: a
program that names no installer, and starts nothing that nobody here can read, is taken not to ask.
"""

import re

from petri.environment.needs.words import names_in

_INSTALLER = re.compile(rb"\b(?:pip3?|uv|npm|yarn|pnpm)\b")
_READS_NOTHING = frozenset(
    names_in("""
    awk base64 basename bc cat chmod cmp column comm cp curl cut date dd df diff dirname du echo expr
    false file find free fmt fold grep gunzip gzip head hexdump hostname id join jq less ln ls md5sum
    mkdir mktemp mv nl nproc od paste printenv printf ps pwd readlink realpath rm rmdir sed seq sha1sum
    sha256sum shuf sleep sort split stat strings sync tac tail tar tee test touch tr tree true tty uname
    uniq unzip uptime wc wget which whoami xxd yes zcat zip
""")
)
"""Programs that run no program of the project's."""


def names_an_installer(source: bytes) -> bool:
    """Say whether a source could be one that asks for packages."""
    return _INSTALLER.search(source) is not None


def may_ask(command: str) -> bool:
    """Say whether a program of the host's may run something that asks for packages."""
    return command.rpartition("/")[2] not in _READS_NOTHING
