"""Peers on the wire: which other sandboxes' files a sandbox's runs may read."""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from petri.wire.values import MEANT, Address, Answer, Label, Request

_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}"
_PLACE = rf"^/peers(/{_NAME}){{1,4}}$"
MEANT[_PLACE] = "must be a place below /peers/, such as `/peers/writer`: letters, digits, `.`, `_` and `-`"


class PeerRequest(Request):
    """Another sandbox of the same tenant, to be read from runs of this one."""

    sandbox: Label
    """Its id."""
    at: Annotated[str, StringConstraints(pattern=_PLACE)]
    """Where runs see its files, such as `/peers/writer`: names of letters, digits, `.`, `_` and `-`."""
    tree: Address | None = None
    """Its files as they are in this tree, for good."""
    snapshot: Label | None = None
    """Its files as they are in this snapshot, by its id or its name, for good."""
    follow: Literal[True] | None = None
    """Its files as they are at the start of each run. This is also what nothing of the three means."""

    @model_validator(mode="after")
    def _one_moment(self) -> "PeerRequest":
        given = [name for name in ("tree", "snapshot", "follow") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of `tree`, `snapshot` and `follow`, not {' and '.join(given)}")
        return self


def _apart(peers: list[PeerRequest]) -> list[PeerRequest]:
    places = sorted(f"{peer.at}/" for peer in peers)
    for place, following in pairwise(places):
        if following.startswith(place):
            raise ValueError(f"two peers are at {place[:-1]!r} and {following[:-1]!r}: one hides the other")
    return peers


Peers = Annotated[list[PeerRequest], Field(max_length=16), AfterValidator(_apart)]


class PeerAnswer(Answer):
    """Another sandbox that runs of this one may read."""

    sandbox: str
    at: str
    tree: str | None
    """The tree it is frozen at; null where it is followed."""
    snapshot: str | None
    """The snapshot that tree was taken from, if it was."""


class SeenPeerAnswer(Answer):
    """What a run saw of another sandbox."""

    sandbox: str
    at: str
    tree: str
