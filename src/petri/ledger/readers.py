"""Those who read: a few threads with a connection each, so that no question waits for a write."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from petri.errors import Unavailable
from petri.ledger.writer import Explain, Job, T

READERS = 4
"""More than a laptop can use at once: Python gives them one processor between them, the disk the rest."""


class Readers:
    """Answers questions side by side. Owns its threads and the connections that `connect` gives it."""

    def __init__(self, connect: Callable[[], Connection], explain: Explain) -> None:
        self._connect = connect
        self._explain = explain
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="petri-ledger-reader")
        self._own = threading.local()
        self._connections: list[Connection] = []
        self._closed = False

    async def do(self, question: Job[T]) -> T:
        """Return the answer to `question`, from what is committed when it is looked up."""
        if self._closed:
            raise Unavailable("the ledger is closed")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._answer, question)

    async def glance(self, question: Job[T]) -> T:
        """Return the answer to a question about one row by its key, on the caller's own thread.

        Finding such a row takes less time than handing the question to another thread would.
        """
        if self._closed:
            raise Unavailable("the ledger is closed")
        return self._answer(question)

    def refuse(self) -> None:
        """Take no more questions."""
        self._closed = True

    def close(self) -> None:
        """Answer the questions asked, then end the threads and their connections. Twice is fine."""
        self.refuse()
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()

    def _answer(self, question: Job[T]) -> T:
        try:
            return question(self._connection())
        except DBAPIError as error:
            raise self._explain(error) from error

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._connect()
            self._connections.append(connection)
        return connection
