"""Everything a run wrote, in the order it came: on disk, for whoever follows, and in an answer."""

import asyncio
import os
import resource
import stat
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as some

from petri.errors import InvalidField, NotFound
from petri.model import Stream
from petri.transcript import Chunk, Excerpt, Transcript, Transcripts

RUN = "run-aaaaaaaaaaaaaaaaaaaa"


@pytest.fixture
def kept(tmp_path: Path) -> Transcripts:
    return Transcripts(tmp_path / "runs", kept_bytes=1000)


def written(kept: Transcripts, *said: tuple[Stream, bytes]) -> Transcript:
    transcript = kept.begin(RUN)
    for stream, content in said:
        transcript(stream, content)
    transcript.close()
    return transcript


def test_nobody_else_may_enter_the_folders_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Transcripts(tmp_path / "runs", kept_bytes=1000)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "runs/a").stat().st_mode) == 0o700


def test_output_is_replayed_in_the_order_it_came(kept: Transcripts) -> None:
    said: list[tuple[Stream, bytes]] = [("stdout", b"one"), ("stderr", b"two"), ("stdout", b"\0\xff")]
    written(kept, *said)

    assert [(chunk.stream, chunk.content) for chunk in kept.replay(RUN)] == said
    assert b"".join(kept.stream(RUN, "stdout")) == b"one\0\xff"
    assert b"".join(kept.stream(RUN, "stderr")) == b"two"


def test_a_run_that_wrote_nothing_has_no_file_and_replays_nothing(kept: Transcripts, tmp_path: Path) -> None:
    written(kept)

    assert list(kept.replay(RUN)) == []
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == []


def test_every_position_is_a_place_to_go_on_from(kept: Transcripts) -> None:
    written(kept, ("stdout", b"one"), ("stderr", b"two"), ("stdout", b"three"))
    chunks = list(kept.replay(RUN))

    for number, chunk in enumerate(chunks):
        assert list(kept.replay(RUN, chunk.position)) == chunks[number + 1 :]
        kept.before(RUN, chunk.position)


def test_only_the_ends_of_frames_are_positions(kept: Transcripts) -> None:
    written(kept, ("stdout", b"\0\1\0\0\0x" * 5), ("stderr", b"two"))
    ends = {0, *(chunk.position for chunk in kept.replay(RUN))}

    for position in range(max(ends) + 20):
        if position in ends:
            kept.before(RUN, position)
        else:
            with pytest.raises(InvalidField):
                kept.before(RUN, position)


def test_what_stands_before_a_position_is_enough_to_finish_a_character(kept: Transcripts) -> None:
    fox = "🦊".encode()
    written(kept, ("stdout", b"a" + fox[:1]), ("stdout", fox[1:2]), ("stderr", b"x"), ("stdout", fox[2:]))
    positions = [chunk.position for chunk in kept.replay(RUN)]

    assert kept.before(RUN, positions[1])["stdout"].endswith(fox[:2])
    assert kept.before(RUN, positions[2]) == {"stdout": b"a" + fox[:2], "stderr": b"x"}


def test_half_a_frame_at_the_end_does_not_count(kept: Transcripts, tmp_path: Path) -> None:
    written(kept, ("stdout", b"whole"), ("stdout", b"cut off by a crash"))
    (file,) = (path for path in (tmp_path / "runs").rglob("*") if path.is_file())

    for cut in range(1, len(b"cut off by a crash") + 5):
        os.truncate(file, file.stat().st_size - 1)
        assert [chunk.content for chunk in kept.replay(RUN)] == [b"whole"], cut


def test_of_a_chunk_the_disk_takes_half_of_nothing_is_left(kept: Transcripts, tmp_path: Path) -> None:
    transcript = kept.begin(RUN)
    transcript("stdout", b"whole")
    (file,) = (path for path in (tmp_path / "runs").rglob("*") if path.is_file())
    size = file.stat().st_size
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, most))  # the kernel then takes 20 bytes and no more
    try:
        transcript("stdout", b"x" * 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    transcript("stderr", b"what comes after is counted only")
    transcript.close()

    assert file.stat().st_size == size
    assert [chunk.content for chunk in kept.replay(RUN)] == [b"whole"]
    assert (transcript.kept("stdout").total_bytes, transcript.kept("stdout").kept_bytes) == (505, 5)


def test_garbage_at_the_end_does_not_count(kept: Transcripts, tmp_path: Path) -> None:
    written(kept, ("stdout", b"whole"))
    (file,) = (path for path in (tmp_path / "runs").rglob("*") if path.is_file())
    with file.open("ab") as end:
        end.write(b"\x07\xff\xff\xff\xff" + b"garbage" * 100_000)

    assert [chunk.content for chunk in kept.replay(RUN)] == [b"whole"]


def test_past_the_limit_output_is_counted_and_thrown_away(kept: Transcripts) -> None:
    transcript = written(kept, ("stdout", b"x" * 700), ("stdout", b"y" * 700), ("stderr", b"z" * 900))

    stdout, stderr = transcript.kept("stdout"), transcript.kept("stderr")
    assert (stdout.total_bytes, stdout.kept_bytes) == (1400, 1000)
    assert stdout.digest == blake3(b"x" * 700 + b"y" * 300).hexdigest()
    assert (stderr.total_bytes, stderr.kept_bytes) == (900, 900)
    assert b"".join(kept.stream(RUN, "stdout")) == b"x" * 700 + b"y" * 300


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "run.x"])
def test_a_name_that_is_no_run_s_is_no_path(kept: Transcripts, name: str) -> None:
    with pytest.raises(NotFound):
        kept.begin(name)


# ------------------------------------------------------------------------------------------- following


async def collect(transcript: Transcript, position: int = 0) -> list[Chunk]:
    return [chunk async for chunk in transcript.follow(position) if chunk is not None]


async def test_followers_see_what_was_what_comes_and_then_the_end(kept: Transcripts) -> None:
    transcript = kept.begin(RUN)
    async with asyncio.TaskGroup() as tasks:
        early = tasks.create_task(collect(transcript))
        await asyncio.sleep(0)
        transcript("stdout", b"one")
        late = tasks.create_task(collect(transcript))
        await asyncio.sleep(0)
        for _ in range(200):
            transcript("stderr", b"x")
        transcript.close()

    assert b"".join(chunk.content for chunk in early.result()) == b"one" + b"x" * 200
    assert late.result() == early.result() == list(kept.replay(RUN))
    assert await collect(transcript, early.result()[0].position) == early.result()[1:]


async def test_following_a_run_that_wrote_nothing_ends_with_it(kept: Transcripts) -> None:
    transcript = kept.begin(RUN)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        following = tasks.create_task(collect(transcript))
        await asyncio.sleep(0)
        transcript.close()

    assert following.result() == []


async def test_a_follower_is_told_of_silence_and_of_what_comes_after_it(kept: Transcripts) -> None:
    transcript = kept.begin(RUN)
    following = transcript.follow(0, silence_s=0.02)

    assert await anext(following) is None
    assert await anext(following) is None
    transcript("stdout", b"one")
    said = await anext(following)
    assert said is not None
    assert said.content == b"one"
    await following.aclose()


async def test_a_follower_that_leaves_is_not_woken_any_more(kept: Transcripts) -> None:
    transcript = kept.begin(RUN)
    async with asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(collect(transcript))
        await asyncio.sleep(0)
        assert len(transcript._waiting) == 1
        leaving.cancel()

    assert transcript._waiting == []


@pytest.mark.parametrize("frames", [40_000, 5])
async def test_following_reads_what_was_written_about_once(tmp_path: Path, frames: int) -> None:
    kept = Transcripts(tmp_path / "runs", 10_000_000)
    content = b"x" * (1_000_000 // frames)
    said: list[tuple[Stream, bytes]] = [("stdout", content)] * frames
    transcript = written(kept, *said)
    size = sum(path.stat().st_size for path in (tmp_path / "runs").rglob("run-*"))

    before = bytes_read()
    found = await collect(transcript)
    followed = bytes_read() - before
    position, replayed = 0, 0
    while block := kept.block(RUN, position):
        assert sum(len(chunk.content) for chunk in block[:-1]) <= 70_000, "a client waits for so much at most"
        position, replayed = block[-1].position, replayed + len(block)

    assert len(found) == replayed == frames
    assert followed < 3 * size
    assert bytes_read() - before - followed < 3 * size


def bytes_read() -> int:
    """Return how many bytes this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


async def test_a_full_disk_costs_the_rest_of_the_output_and_not_the_run(tmp_path: Path) -> None:
    kept = Transcripts(tmp_path / "runs", 1000)
    transcript = kept.begin(RUN)
    transcript("stdout", b"before")
    os.close(transcript._descriptor)
    transcript._descriptor = os.open("/dev/full", os.O_WRONLY)

    transcript("stdout", b"lost")
    transcript("stdout", b"lost too")
    transcript.close()

    told = transcript.kept("stdout")
    assert (told.total_bytes, told.kept_bytes) == (18, 6)
    assert [chunk.content for chunk in kept.replay(RUN)] == [b"before"]


# ------------------------------------------------------------------------------------------- excerpts


@settings(database=None)
@given(pieces=some.lists(some.binary(max_size=30)), limit=some.integers(2, 60))
def test_an_excerpt_is_all_or_head_and_tail(pieces: list[bytes], limit: int) -> None:
    found = Excerpt(limit)
    for piece in pieces:
        found.take(piece)

    whole, half = b"".join(pieces), limit // 2
    assert found.total_bytes == len(whole)
    assert found.truncated == (len(whole) > 2 * half)
    if not found.truncated:
        assert found.text() == whole.decode(errors="replace")
    else:
        assert found.text().startswith(whole[:half].decode(errors="replace"))
        assert found.text().endswith(whole[-half:].decode(errors="replace"))
        assert f"{len(whole) - 2 * half} bytes left out" in found.text()


def test_an_excerpt_holds_no_more_than_it_shows() -> None:
    found = Excerpt(1000)
    for _ in range(10_000):
        found.take(b"x" * 100)

    held = len(found._head) + sum(len(piece) for piece in found._tail)
    assert held <= 1100
