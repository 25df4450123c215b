"""Syncs as bytes: what a client would send, and what it would make of the answer."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import httpx

from petri.syncing import Base, Clash, End, Incoming, Outgoing, Record, Said, WholeFile
from petri.syncing.growing import Growing
from petri.syncing.records import NOTHING
from petri.trees import EMPTY, FolderObject, address, decode

MEDIA = "application/vnd.petri.sync"


@dataclass(frozen=True)
class Along:
    """A record, and what is sent along with it."""

    record: Record
    payload: bytes


Sent = Record | Along


def whole(path: bytes, content: bytes, mode: int = 6) -> Along:
    """Return a file that is sent along."""
    return Along(WholeFile(path, mode, len(content), address(content), 0), content)


def stream(*said: Sent) -> bytes:
    """Return records as they go over the line."""
    sent = bytearray()
    out = Outgoing(sent.extend)
    for each in said:
        if isinstance(each, Along):
            out.add(each.record, [each.payload])
        else:
            out.add(each)
    out.end()
    return bytes(sent)


def tree_of(said: Iterable[Sent], base: bytes = EMPTY, kept: dict[bytes, bytes] | None = None) -> bytes:
    """Return the tree that records make of `base`, whose folder objects are in `kept`."""
    objects = {} if kept is None else kept

    def fetch(wanted: bytes) -> FolderObject:
        return decode(objects[wanted])

    def put(encoded: bytes) -> bytes:
        objects[address(encoded)] = encoded
        return address(encoded)

    growing = Growing(fetch, base)
    for each in said:
        growing.apply(each.record if isinstance(each, Along) else each)
    return growing.tree(put)


def first_push(*said: Sent) -> bytes:
    """Return the request that makes an empty sandbox hold what `said` says."""
    return stream(Base(NOTHING), *said, End(tree_of(said)))


def ask_sync(http: httpx.Client, box: str, body: bytes, mode: str = "push", **more: Any) -> httpx.Response:
    """Make one sync."""
    params = {"mode": mode, **more}
    return http.post(
        f"/v1/sandboxes/{box}/sync", params=params, content=body, headers={"Content-Type": MEDIA}
    )


def told(answer: httpx.Response) -> tuple[dict[str, Any], list[Record], dict[bytes, bytes]]:
    """Return what an answer says: in short, its records, and the contents it brings, by path."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == MEDIA
    incoming = Incoming(BytesIO(answer.content), most_bytes=2**30)
    said: dict[str, Any] = {}
    records: list[Record] = []
    contents: dict[bytes, bytes] = {}
    for record in incoming:
        if isinstance(record, Said):
            said = json.loads(record.json)
            continue
        records.append(record)
        if isinstance(record, WholeFile):
            contents[record.path] = b"".join(incoming.payload())
    return said, records, contents


def conflicts(records: list[Record]) -> list[bytes]:
    """Return the paths in conflict."""
    return [record.path for record in records if isinstance(record, Clash)]
