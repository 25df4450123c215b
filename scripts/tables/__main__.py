"""Build the tables named, or all of them."""

import asyncio
import re
import sys

from scripts.tables.debian import commands, contents
from scripts.tables.files import write
from scripts.tables.modules import Provided, fold, provided
from scripts.tables.ranking import index_address, ranking
from scripts.tables.wheels import read_wheels


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def build_python() -> None:
    """Write what imports mean, and which distributions are well known."""
    ranked = ranking("pypi")
    names = list(dict.fromkeys(_normal(name) for name in ranked.names))
    wheels = asyncio.run(read_wheels(index_address(), names))
    by_rank: dict[str, Provided] = {}
    for name in names:
        if wheel := wheels[name]:
            by_rank[name] = provided(wheel.names)
    table = fold(by_rank)
    about = f"directories of the newest wheels of {len(by_rank)} distributions, {ranked.provenance}"
    write("imports", about, (f"{module}\t{' '.join(table[module])}" for module in sorted(table)))
    # A wheel without a module in it tells as little as none.
    bare = {name for name in names if name not in by_rank or not by_rank[name].roots}
    write("pypi", ranked.provenance, (f"{name}\t-" if name in bare else name for name in names))


def build_npm() -> None:
    """Write which npm packages are well known."""
    ranked = ranking("npm")
    write("npm", ranked.provenance, dict.fromkeys(ranked.names))


def build_debian() -> None:
    """Write which package each command is in."""
    table = commands(contents())
    about = "contents of Debian's packages, as apt has them"
    write("commands", about, (f"{command}\t{' '.join(those)}" for command, those in table.items()))


BUILDERS = {"python": build_python, "npm": build_npm, "debian": build_debian}

if __name__ == "__main__":
    for wanted in sys.argv[1:2] or BUILDERS:
        BUILDERS[wanted]()
