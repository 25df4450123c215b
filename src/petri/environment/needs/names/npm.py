"""Which npm package a specifier means: its own first part, if it is one that people know."""

import re
from collections.abc import Mapping
from functools import cache

from petri.environment.needs.names.edits import meant
from petri.environment.needs.names.tables import npm_ranks
from petri.environment.needs.names.verdicts import Not
from petri.environment.needs.nouns import Policy
from petri.environment.needs.words import names_in

FAMOUS = 2_500
_NAME = re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", re.IGNORECASE | re.ASCII)
_TRUSTED_SCOPE = 3
"""A scope belongs to one publisher: one with this many well-known packages is trusted with the others."""
BUILTIN = frozenset(
    names_in("""
    assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel
    dns domain events fs http http2 https inspector module net os path perf_hooks process punycode
    querystring readline repl stream string_decoder sys test timers tls trace_events tty url util v8 vm
    wasi worker_threads zlib
""")
)


def package_of(specifier: str) -> str | None:
    """Return the package that a bare specifier names; None for a path, an address or what node itself has."""
    if specifier.startswith(("npm:", "jsr:")):
        specifier = specifier[4:].lstrip("/")
    if not specifier or specifier[0] in "./#~$" or specifier.startswith("@/"):
        return None
    parts = specifier.partition("?")[0].split("/")
    name = "/".join(parts[:2]) if specifier[0] == "@" else parts[0]
    at = name.find("@", 1)
    name = name[:at] if at > 0 else name
    return name if is_name(name) and name not in BUILTIN else None


def is_name(name: str) -> bool:
    """Say whether a package can be called so."""
    return len(name) <= 214 and _NAME.fullmatch(name) is not None


def objection_to_import(name: str, policy: Policy) -> Not | None:
    """Return why a package that code imports is not installed, or None if it may be."""
    if objected := objection(name, policy):
        return objected
    scope = name.partition("/")[0]
    if name in npm_ranks() or name in policy.allow or _scopes().get(scope, 0) >= _TRUSTED_SCOPE:
        return None
    return Not(
        f"`{name}` is not among the well-known npm packages, and none is guessed: if you mean it, "
        f"declare it in package.json"
    )


def objection(name: str, policy: Policy) -> Not | None:
    """Return why a package that somebody declared by name is not installed, or None if it may be."""
    if name in policy.deny:
        return Not(f"`{name}` is on the list of packages not to install here")
    if name in policy.allow or name in npm_ranks():
        return None
    famous = None if name.startswith("@") else meant(name, famous_packages())
    if famous is None:
        return None
    return Not(f"`{name}` looks like a misspelling of `{famous}`: nothing was installed for it", famous)


@cache
def famous_packages() -> Mapping[str, int]:
    """Return the packages that are worth imitating."""
    return {name: rank for name, rank in npm_ranks().items() if rank < FAMOUS}


@cache
def _scopes() -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name in npm_ranks():
        if name.startswith("@"):
            scope = name.partition("/")[0]
            found[scope] = found.get(scope, 0) + 1
    return found
