"""A file system in memory to which `Main` and `main`, and both ways to write `é`, are one name, as on a Mac.

Linux has such file systems too, but many kernels are built without them. This one asks for FUSE alone, and
speaks to the kernel itself: `python -m tests.folding_disk FOLDER` mounts it there, until it is unmounted.
A name is kept as it was first written. Whoever renames between two spellings of one name has done nothing,
which is what Linux makes of it on ext4, too.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_HEADER = struct.Struct("<IIQQIIII")
_ANSWER = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<6Q10I")
_ENTRY = struct.Struct("<4QII")
_SET = struct.Struct("<IIQQQQQQIIIIIIII")
_LARGEST = 1 << 17
_LONGEST_NAME = 255
_ROOT = 1


@dataclass
class Node:
    """A file, a link or a folder."""

    number: int
    mode: int
    content: bytearray = field(default_factory=bytearray)
    """Of a link, where it leads."""
    names: dict[object, tuple[bytes, "Node"]] = field(default_factory=dict)
    """Of a folder: what each name is to us, how it was written, and what it is."""
    links: int = 1
    changed_ns: int = field(default_factory=time.time_ns)


class FoldingDisk:
    """Answers what the kernel asks of one mounted file system."""

    def __init__(self) -> None:
        self._nodes = {_ROOT: Node(_ROOT, stat.S_IFDIR | 0o755)}
        self._last = _ROOT
        self._open: dict[int, list[tuple[bytes, Node]]] = {}
        self._calls: dict[int, Callable[[Node, bytes], bytes]] = {
            1: lambda at, said: self._entry(self._found(at, said[:-1])),
            3: lambda at, _: _attributes_of(at),
            4: self._set,
            5: lambda at, _: bytes(at.content),
            6: self._link_to,
            8: lambda at, said: self._entry(self._added(at, _name(said, 16), _number(said))),
            9: lambda at, said: self._entry(self._added(at, _name(said, 8), stat.S_IFDIR | _number(said))),
            10: self._remove,
            11: self._remove,
            12: lambda at, said: self._rename(at, said, 8),
            13: self._link,
            14: lambda *_: struct.pack("<QII", 0, 0, 0),
            15: self._read,
            16: self._write,
            17: lambda *_: struct.pack(
                "<5Q10I", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096, *[0] * 7
            ),
            18: lambda *_: b"",
            26: lambda *_: struct.pack("<4IHHIIHHI7I", 7, 31, _LARGEST, 1 << 5, 8, 8, _LARGEST, 1, *[0] * 10),
            27: self._open_folder,
            28: self._list,
            29: self._close_folder,
            35: self._create,
            45: lambda at, said: self._rename(at, said, 16),
        }

    def serve(self, kernel: int) -> None:
        """Answer until the file system is unmounted."""
        while True:
            try:
                asked = os.read(kernel, _LARGEST + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                raise
            _, call, unique, number, *_ = _HEADER.unpack_from(asked)
            if call in (2, 36, 42):  # forgotten, interrupted: nothing to say
                continue
            try:
                # What is asked of no node is about the whole.
                node = self._nodes[number or _ROOT]
                said, failed = self._calls.get(call, _unknown)(node, asked[_HEADER.size :]), 0
            except OSError as error:
                said, failed = b"", error.errno or errno.EIO
            os.write(kernel, _ANSWER.pack(_ANSWER.size + len(said), -failed, unique) + said)

    def _found(self, folder: Node, name: bytes) -> Node:
        if len(name) > _LONGEST_NAME:  # whatever is done to a name, it is looked for first
            raise _error(errno.ENAMETOOLONG)
        try:
            return folder.names[folded(name)][1]
        except KeyError:
            raise _error(errno.ENOENT) from None

    def _added(self, folder: Node, name: bytes, mode: int) -> Node:
        if folded(name) in folder.names:
            raise _error(errno.EEXIST)
        self._last += 1
        node = self._nodes[self._last] = Node(self._last, mode)
        folder.names[folded(name)] = name, node
        return node

    def _entry(self, node: Node) -> bytes:
        return _ENTRY.pack(node.number, 0, 0, 0, 0, 0) + _attributes(node)

    def _set(self, node: Node, said: bytes) -> bytes:
        valid, _, _, size, *rest = _SET.unpack_from(said)
        if valid & 1:
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(rest[7])
        if valid & 8:
            node.content[size:] = bytes(max(0, size - len(node.content)))
        node.changed_ns = rest[2] * 10**9 + rest[5] if valid & 32 and not valid & 256 else time.time_ns()
        return _attributes_of(node)

    def _link_to(self, folder: Node, said: bytes) -> bytes:
        name, target, _ = said.split(b"\0")
        node = self._added(folder, name, stat.S_IFLNK | 0o777)
        node.content[:] = target
        return self._entry(node)

    def _link(self, folder: Node, said: bytes) -> bytes:
        node, name = self._nodes[struct.unpack_from("<Q", said)[0]], _name(said, 8)
        if folded(name) in folder.names:
            raise _error(errno.EEXIST)
        folder.names[folded(name)] = name, node
        node.links += 1
        return self._entry(node)

    def _remove(self, folder: Node, said: bytes) -> bytes:
        node = self._found(folder, said[:-1])
        if node.names:
            raise _error(errno.ENOTEMPTY)
        del folder.names[folded(said[:-1])]
        node.links -= 1
        return b""

    def _rename(self, folder: Node, said: bytes, begin: int) -> bytes:
        target = self._nodes[struct.unpack_from("<Q", said)[0]]
        old, new, _ = said[begin:].split(b"\0")
        node = self._found(folder, old)
        there = target.names.get(folded(new))
        if there is not None and there[1].names:
            raise _error(errno.ENOTEMPTY)
        if there is None or there[1] is not node:
            del folder.names[folded(old)]
            target.names[folded(new)] = (new if there is None else there[0]), node
        return b""

    def _create(self, folder: Node, said: bytes) -> bytes:
        mode = struct.unpack_from("<4I", said)[1]
        node = self._added(folder, _name(said, 16), mode)
        return self._entry(node) + struct.pack("<QII", 0, 0, 0)

    def _read(self, node: Node, said: bytes) -> bytes:
        _, at, size = struct.unpack_from("<QQI", said)
        return bytes(node.content[at : at + size])

    def _write(self, node: Node, said: bytes) -> bytes:
        _, at, size = struct.unpack_from("<QQI", said)
        node.content[len(node.content) :] = bytes(max(0, at - len(node.content)))
        node.content[at : at + size] = said[40 : 40 + size]
        node.changed_ns = time.time_ns()
        return struct.pack("<II", size, 0)

    def _open_folder(self, *_: object) -> bytes:
        self._last += 1
        return struct.pack("<QII", self._last, 0, 0)

    def _close_folder(self, _: Node, said: bytes) -> bytes:
        self._open.pop(struct.unpack_from("<Q", said)[0], None)
        return b""

    def _list(self, folder: Node, said: bytes) -> bytes:
        number, begin, room = struct.unpack_from("<QQI", said)
        if not begin:
            self._open[number] = list(folder.names.values())
        listed = b""
        for at, (name, node) in enumerate(self._open[number][begin:], begin + 1):
            row = struct.pack("<QQII", node.number, at, len(name), stat.S_IFMT(node.mode) >> 12) + name
            row += bytes(-len(row) % 8)
            if len(listed) + len(row) > room:
                break
            listed += row
        return listed


def folded(name: bytes) -> object:
    """Return what a name is to us: two with the same are one."""
    return unicodedata.normalize("NFC", os.fsdecode(name)).casefold()


def _attributes(node: Node) -> bytes:
    size, (at_s, at_ns) = len(node.content), divmod(node.changed_ns, 10**9)
    times = (at_s, at_s, at_s, at_ns, at_ns, at_ns)
    owner = (os.geteuid(), os.getegid())
    return _ATTRIBUTES.pack(
        node.number, size, -(-size // 512), *times, node.mode, node.links, *owner, 0, 4096, 0
    )


def _attributes_of(node: Node) -> bytes:
    return struct.pack("<QII", 0, 0, 0) + _attributes(node)


def _name(said: bytes, begin: int) -> bytes:
    return said[begin:].split(b"\0")[0]


def _number(said: bytes) -> int:
    number: int = struct.unpack_from("<I", said)[0]
    return number


def _unknown(_: Node, __: bytes) -> bytes:
    raise _error(errno.ENOSYS)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def main(folder: str) -> None:
    """Mount one at `folder`, say so on stdout, and answer until it is unmounted."""
    kernel = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={kernel},rootmode=40755,user_id={os.geteuid()},group_id={os.getegid()},default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"folding", os.fsencode(Path(folder).resolve()), b"fuse", 6, options.encode()):
        raise _error(ctypes.get_errno())
    print("mounted", flush=True)
    FoldingDisk().serve(kernel)


if __name__ == "__main__":
    main(sys.argv[1])
