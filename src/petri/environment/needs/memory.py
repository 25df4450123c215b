"""What was found in a file is remembered by the file's digest, so that an unchanged one costs a look-up."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Memory(Generic[T]):
    """Answers by key; the oldest go when there are too many. Any thread may ask."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[object, T] = {}
        self._changing = Lock()
        self.get: Callable[[object], T | None] = self._known.get

    def keep(self, key: object, value: T) -> T:
        """Remember and return `value`."""
        with self._changing:
            self._known[key] = value
            while len(self._known) > self._most:
                del self._known[next(iter(self._known))]
        return value
