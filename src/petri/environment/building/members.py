"""A `node_modules` that holds a project's own packages beside installed ones: names, and where each leads.

Node looks for packages in the folders above a file, and above `/workspace` there is one alone. So where a
project has packages of its own, that one is made of links: to its folders, which are as its files are, and to
what is installed. An environment itself is everybody's, and knows of no project.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path

from petri.environment.needs.nouns import Member

MOST_LINKS = 2_000
"""bubblewrap takes 9,000 words, and a link is three."""
_WORKSPACE = "/workspace"


def node_modules(
    members: Iterable[Member], installed: Path | None, seen_at: str, first: Collection[str] = ()
) -> dict[str, str]:
    """Return each name in there, and the path inside a cell that it leads to.

    `installed` is the folder of an environment that the cell sees at `seen_at`. Of more than can be linked,
    those in `first` are; the others still find each other.
    """
    members = list(members)
    links = {each.name: f"{_WORKSPACE}/{each.folder}".rstrip("/") for each in members}
    links |= {f".bin/{name}": f"{_WORKSPACE}/{path}" for each in members for name, path in each.programs}
    links = dict(islice(links.items(), MOST_LINKS))
    scopes = {scope for scope, slash, _ in (name.partition("/") for name in links) if slash}
    names = [] if installed is None else sorted(_names(installed, scopes))
    for name in sorted(names, key=lambda name: not name.startswith(".bin") and name not in first):
        if len(links) >= MOST_LINKS:
            break
        links.setdefault(name, f"{seen_at}/{name}")
    return links


def _names(installed: Path, scopes: Collection[str]) -> Iterator[str]:
    """Yield what is in an environment; a scope as a whole, unless the project has packages in it, too."""
    for each in installed.iterdir():
        if each.name in scopes:
            yield from (f"{each.name}/{inner.name}" for inner in each.iterdir())
        else:
            yield each.name
