"""Work on files that may be called off before it is done.

A thread cannot be cancelled from outside. Whatever here can take long therefore asks its errand between two
steps whether it may go on: the client may have gone away, or the server may be ending.
"""

import threading

from petri.errors import Unavailable


class Errand:
    """One request's work. Called off from any thread; asked by the thread that works."""

    def __init__(self, ending: threading.Event) -> None:
        self._ending = ending
        self._called_off = threading.Event()

    def call_off(self) -> None:
        """Have the work given up at its next step. Calling off what is over is fine."""
        self._called_off.set()

    def check(self) -> None:
        """Return if the work may go on; else raise `Unavailable`."""
        if self._ending.is_set():
            raise Unavailable("the server is stopping")
        if self._called_off.is_set():
            raise Unavailable("the work was given up: whoever asked for it is gone")
