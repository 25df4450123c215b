"""The one who writes: a thread with a queue, so that writers wait in line instead of for a lock.

Whatever has queued up while the last transaction was on its way to the disk goes into the next one
together, and shares its fsync. No savepoints: on a full disk or an I/O error SQLite may roll back the
whole transaction by itself, and a savepoint would hide that from the jobs before it. Instead, when one
job of several refuses, all are undone and each is done again alone. A job must therefore be repeatable:
it touches the connection and nothing else.
"""

import asyncio
import contextlib
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from petri.errors import HostError, StorageFull, Unavailable
from petri.ledger.ballast import Ballast

T = TypeVar("T")
Job = Callable[[Connection], T]
Explain = Callable[[DBAPIError], HostError]

MOST_AT_ONCE = 64
"""Jobs in one transaction. More would save little and make the first of them wait for the last."""


@dataclass(slots=True)
class _Asked:
    job: Job[Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    must: bool
    """What happened is written down even on a full disk, as long as there is ballast."""


@dataclass(slots=True)
class _Settled:
    value: Any = None
    error: Exception | None = None


class Transactions(Protocol):
    """Is entered for each one: what is done within is on the disk in the end, or was never done."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def rest(self) -> None:
        """Do what would delay the next: nobody waits."""


class Writer:
    """Does jobs in transactions, in the order they were asked for. Owns its thread and `connection`."""

    def __init__(
        self,
        connection: Connection,
        transactions: Transactions,
        explain: Explain,
        ballast: Ballast,
    ) -> None:
        self._connection = connection
        self._transactions = transactions
        self._explain = explain
        self._ballast = ballast
        self._queue: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._closed = False
        # A daemon, so that a forgotten `close` cannot hold up the end of the process; a transaction
        # cut short by that end never happened.
        self._thread = threading.Thread(target=self._work, name="petri-ledger-writer", daemon=True)
        self._thread.start()

    async def do(self, job: Job[T], *, must: bool = False) -> T:
        """Return what `job` returns, once its transaction is on the disk.

        Cancelling this gives up the answer, not the job. What `must` be written down is, on a full disk
        too; the rest is then refused.
        """
        if self._closed:
            raise Unavailable("the ledger is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Asked(job, loop, answer, must))
        return await answer

    def require_room(self) -> None:
        """Refuse if only what must be written down can be."""
        if not self._ballast.is_whole:
            raise _full()

    async def restore_ballast(self) -> None:
        """Fill up the ballast, if some was let go and there is room again."""
        if not self._ballast.is_whole:
            await self.do(lambda _: None, must=True)  # before every job that is done without it

    async def glance(self, job: Job[T]) -> T:
        """Return what `job` finds; in memory there is one connection, and its thread is the only way."""
        return await self.do(job)

    def refuse(self) -> None:
        """Take no more jobs. Called in the loop's thread, so no job can slip in behind the last."""
        self._closed = True

    def close(self) -> None:
        """Finish the jobs asked for, then end the thread and the connection. Twice is fine."""
        self.refuse()
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        while batch := self._next():
            if not self._ballast.is_whole:
                self._ballast.restore()
            has_room = self._ballast.is_whole
            _hand_over(batch, self._settle(batch) if has_room else self._settle_musts(batch, _full()))
            if self._queue.empty():
                self._transactions.rest()

    def _next(self) -> list[_Asked]:
        """Wait for a job; return it with those behind it, or nothing once the queue has ended."""
        batch: list[_Asked] = []
        while not batch or (len(batch) < MOST_AT_ONCE and not self._queue.empty()):
            asked = self._queue.get()
            if asked is None:
                self._queue.put(None)  # for the next look: these jobs come first
                break
            batch.append(asked)
        return batch

    def _settle(self, batch: Sequence[_Asked]) -> list[_Settled]:
        try:
            with self._transactions:
                return [_Settled(asked.job(self._connection)) for asked in batch]
        except OperationalError as error:  # no lock, no space, no disk: alone they would fare no better
            refusal = self._explain(error)
            must = any(asked.must for asked in batch)
            if must and isinstance(refusal, StorageFull) and self._ballast.release():
                return self._settle_musts(batch, refusal)
            return [_Settled(error=refusal) for _ in batch]
        except Exception as error:  # noqa: BLE001  whatever a job raises belongs to who awaits it
            if len(batch) > 1:
                return [settled for asked in batch for settled in self._settle([asked])]
            return [_Settled(error=self._explain(error) if isinstance(error, DBAPIError) else error)]

    def _settle_musts(self, batch: Sequence[_Asked], refusal: HostError) -> list[_Settled]:
        """Refuse what need not be: what is left of the ballast is for deletions and endings."""
        must = [asked for asked in batch if asked.must]
        settled = iter(self._settle(must) if must else [])
        return [next(settled) if asked.must else _Settled(error=refusal) for asked in batch]


def _full() -> StorageFull:
    return StorageFull("the disk that holds the ledger is full; delete what is not needed and try again")


def _hand_over(batch: Sequence[_Asked], settled: Sequence[_Settled]) -> None:
    """Wake each loop once, however many of its jobs were done."""
    by_loop = defaultdict(list)
    for asked, result in zip(batch, settled, strict=True):
        by_loop[asked.loop].append((asked.answer, result))
    for loop, answers in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            loop.call_soon_threadsafe(_answer, answers)


def _answer(answers: Sequence[tuple[asyncio.Future[Any], _Settled]]) -> None:
    for answer, settled in answers:
        if answer.done():  # cancelled meanwhile
            continue
        if settled.error is not None:
            answer.set_exception(settled.error)
        else:
            answer.set_result(settled.value)
