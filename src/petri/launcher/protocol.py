"""How server and launcher talk: JSON over a SOCK_SEQPACKET socket, descriptors alongside.

A message larger than one packet travels in a memfd, so that a long command line is no special case.

    server → launcher   {"do": "spawn", "id", "argv", "targets", "uid", "limits", "rlimits"} + descriptors
                        {"do": "kill", "id"}
                        {"do": "age", "id"}
    launcher → server   {"says": "ready", "cgroups", "missing", "view"}
                        {"says": "ended", "id", "status", "cpu_ms", "peak_memory_bytes", "oom_killed"}
                        {"says": "failed", "id", "why"}
"""

import array
import json
import os
import socket
from typing import Any

_PACKET_BYTES = 4_096
"""Small, so that hundreds of orders fit into the socket; a longer one travels in a memfd."""
_MOST_DESCRIPTORS = 16
_FRAME = b"\0"
"""A packet of this one byte says that the message is in the first descriptor."""


def send(
    channel: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = (), flags: int = 0
) -> None:
    """Send one message with the descriptors it speaks of; the sender keeps its own copies."""
    packet = json.dumps(message, separators=(",", ":")).encode()
    if len(packet) < _PACKET_BYTES:
        _send_packet(channel, packet, descriptors, flags)
        return
    held = os.memfd_create("petri-message", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(held), "wb") as out:
            out.write(packet)
        _send_packet(channel, _FRAME, (held, *descriptors), flags)
    finally:
        os.close(held)


def receive(channel: socket.socket, flags: int = 0) -> tuple[dict[str, Any], tuple[int, ...]] | None:
    """Return the next message and its descriptors, now ours; None when the other side is gone."""
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * array.array("i").itemsize)
    packet, extras, _, _ = channel.recvmsg(_PACKET_BYTES, room, socket.MSG_CMSG_CLOEXEC | flags)
    descriptors = _descriptors(extras)
    if not packet:
        return None
    if packet == _FRAME:
        held, *rest = descriptors
        with os.fdopen(held, "rb") as source:
            source.seek(0)
            packet = source.read()
        descriptors = tuple(rest)
    message: dict[str, Any] = json.loads(packet)
    return message, descriptors


def _send_packet(channel: socket.socket, packet: bytes, descriptors: tuple[int, ...], flags: int) -> None:
    extras = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    channel.sendmsg([packet], extras, socket.MSG_NOSIGNAL | flags)


def _descriptors(extras: list[tuple[int, int, bytes]]) -> tuple[int, ...]:
    found = array.array("i")
    for level, kind, content in extras:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(content[: len(content) - len(content) % found.itemsize])
    return tuple(found)
