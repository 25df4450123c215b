"""How server and launcher talk: JSON over a SOCK_SEQPACKET socket, descriptors alongside.

A message larger than one packet travels in a memfd, so that a long command line is no special case.

    server → launcher   {"do": "spawn", "id", "argv", "targets", "uid", "limits", "rlimits", "waits",
                         "network"}, files
                        {"do": "kill", "id"}
                        {"do": "age", "id"}
                        {"do": "hurry", "id"}
                        {"do": "ask"}
    launcher → server   {"says": "ready", "cgroups", "groups", "missing", "view", "devices", "networks"}
                        {"says": "unable", "why"}
                        {"says": "ended", "id", "status", "cpu_ms", "peak_memory_bytes", "oom_killed"}
                        {"says": "failed", "id", "why"}
                        {"says": "alive"}
"""

import array
import json
import os
import socket
from typing import Any

_PACKET_BYTES = 4_096
"""Small, so that hundreds of orders fit into the socket; a longer one travels in a memfd."""
_MOST_DESCRIPTORS = 16
_AS_JSON = json.JSONEncoder(separators=(",", ":")).encode
_FROM_JSON = json.JSONDecoder().decode
"""`json.loads` would ask of bytes which of five encodings they are in; ours are ASCII."""
_FRAME = b"\0"
"""A packet that begins with this byte says that the message is in the first descriptor; behind it, its id."""


class Torn(OSError):
    """A message whose descriptors were lost on the way: whoever receives has too many open files."""

    def __init__(self, message: dict[str, Any]) -> None:
        super().__init__("descriptors were lost on the way: too many files are open")
        self.message = message
        """What is known of it: its id."""


def send(
    channel: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = (), flags: int = 0
) -> None:
    """Send one message with the descriptors it speaks of; the sender keeps its own copies."""
    packet = _AS_JSON(message).encode()
    if len(packet) < _PACKET_BYTES:
        _send_packet(channel, packet, descriptors, flags)
        return
    held = os.memfd_create("petri-message", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(held), "wb") as out:
            out.write(packet)
        known = json.dumps({"id": message.get("id")}).encode()
        _send_packet(channel, _FRAME + known, (held, *descriptors), flags)
    finally:
        os.close(held)


def receive(channel: socket.socket, flags: int = 0) -> tuple[dict[str, Any], tuple[int, ...]] | None:
    """Return the next message and its descriptors, now ours; None when the other side is gone.

    `Torn` if the message came without them; then none is left open.
    """
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * array.array("i").itemsize)
    packet, extras, how, _ = channel.recvmsg(_PACKET_BYTES, room, socket.MSG_CMSG_CLOEXEC | flags)
    descriptors = _descriptors(extras)
    if not packet:
        return None
    is_framed = packet.startswith(_FRAME)
    message: dict[str, Any] = _FROM_JSON(packet[is_framed:].decode() or "{}")
    if how & socket.MSG_CTRUNC or (is_framed and not descriptors):
        for descriptor in descriptors:
            os.close(descriptor)
        raise Torn(message)
    if is_framed:
        held, *rest = descriptors
        with os.fdopen(held, "rb") as source:
            source.seek(0)
            message = json.loads(source.read())
        descriptors = tuple(rest)
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
