"""A relay in front of a server that counts the bytes of both streams."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Relay:
    """Listens on a port of its own, and passes everything on to another one."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._guard = threading.Lock()
        self._bytes = 0
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def forget(self) -> None:
        """Begin to count anew."""
        with self._guard:
            self._bytes = 0

    def count(self) -> int:
        """Return the bytes that passed, in both directions."""
        with self._guard:
            return self._bytes

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to_port))
                for each in (near, far):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._start(self._pass_on, near, far)
                self._start(self._pass_on, far, near)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                with self._guard:
                    self._bytes += len(piece)
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
