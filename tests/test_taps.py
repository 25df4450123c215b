"""Reading a pipe: all of it, in order, but not byte by byte for ever."""

import asyncio
import os

from petri.engine.taps import Tap


class Sink:
    """A pipe with a tap on it, and what came out in how many pieces."""

    def __init__(self) -> None:
        reading, self.writing = os.pipe()
        self.pieces: list[bytes] = []
        self.tap = Tap(reading, self.pieces.append)

    async def closed(self) -> None:
        os.close(self.writing)
        self.tap.hurry()
        async with asyncio.timeout(10):
            await self.tap.ended


async def test_the_first_bytes_are_taken_one_by_one_as_they_come() -> None:
    sink = Sink()
    for number in range(50):
        os.write(sink.writing, bytes([number]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert sink.pieces == [bytes([number]) for number in range(50)]
    await sink.closed()


async def test_a_program_that_writes_byte_by_byte_is_taken_in_larger_pieces() -> None:
    sink = Sink()
    for number in range(5000):
        os.write(sink.writing, bytes([number % 256]))
        await asyncio.sleep(0)
    await sink.closed()

    assert b"".join(sink.pieces) == bytes(number % 256 for number in range(5000))
    assert len(sink.pieces) < 1000


async def test_what_comes_in_large_pieces_is_never_kept_waiting() -> None:
    sink = Sink()
    for _ in range(300):
        os.write(sink.writing, bytes(8192))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert len(sink.pieces) == 300
    await sink.closed()


async def test_a_tap_that_pauses_can_be_closed() -> None:
    sink = Sink()
    for _ in range(200):
        os.write(sink.writing, b"x")
        await asyncio.sleep(0)
    sink.tap.close()
    os.close(sink.writing)
    await asyncio.sleep(0.01)

    assert sink.tap.ended.done()
