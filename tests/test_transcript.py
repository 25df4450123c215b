"""Everything a run wrote, in the order it came: on disk, for whoever follows, and in an answer."""

import asyncio
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as some

from petri.errors import InvalidField, NotFound
from petri.model import Stream
from petri.transcript import FEW_BYTES, Chunk, Excerpt, Transcript, Transcripts, Written
from petri.transcript.frames import HEAD_BYTES

RUN = "run-aaaaaaaaaaaaaaaaaaaa"


@pytest.fixture
def kept(tmp_path: Path) -> Transcripts:
    return Transcripts(tmp_path / "runs", kept_bytes=1000)


@pytest.fixture
def many(tmp_path: Path) -> Transcripts:
    return Transcripts(tmp_path / "runs", kept_bytes=10 * FEW_BYTES)


def written(kept: Transcripts, *said: tuple[Stream, bytes]) -> Transcript:
    """Return the transcript of a run whose end nobody could put on record: what there is has a file."""
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


async def test_output_is_replayed_in_the_order_it_came(kept: Transcripts) -> None:
    said: list[tuple[Stream, bytes]] = [("stdout", b"one"), ("stderr", b"two"), ("stdout", b"\0\xff")]
    written(kept, *said)

    assert [(chunk.stream, chunk.content) for chunk in kept.file(RUN).replay()] == said
    assert b"".join(kept.file(RUN).stream("stdout")) == b"one\0\xff"
    assert b"".join(kept.file(RUN).stream("stderr")) == b"two"


async def test_a_run_that_wrote_nothing_has_no_file_and_replays_nothing(
    kept: Transcripts, tmp_path: Path
) -> None:
    written(kept)

    assert list(kept.file(RUN).replay()) == []
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == []


async def test_every_position_is_a_place_to_go_on_from(kept: Transcripts) -> None:
    written(kept, ("stdout", b"one"), ("stderr", b"two"), ("stdout", b"three"))
    chunks = list(kept.file(RUN).replay())

    for number, chunk in enumerate(chunks):
        assert list(kept.file(RUN).replay(chunk.position)) == chunks[number + 1 :]
        kept.file(RUN).before(chunk.position)


async def test_only_the_ends_of_frames_are_positions(kept: Transcripts) -> None:
    written(kept, ("stdout", b"\0\1\0\0\0x" * 5), ("stderr", b"two"))
    ends = {0, *(chunk.position for chunk in kept.file(RUN).replay())}

    for position in range(max(ends) + 20):
        if position in ends:
            kept.file(RUN).before(position)
        else:
            with pytest.raises(InvalidField):
                kept.file(RUN).before(position)


async def test_what_stands_before_a_position_is_enough_to_finish_a_character(kept: Transcripts) -> None:
    fox = "🦊".encode()
    written(kept, ("stdout", b"a" + fox[:1]), ("stdout", fox[1:2]), ("stderr", b"x"), ("stdout", fox[2:]))
    positions = [chunk.position for chunk in kept.file(RUN).replay()]

    assert kept.file(RUN).before(positions[1])["stdout"].endswith(fox[:2])
    assert kept.file(RUN).before(positions[2]) == {"stdout": b"a" + fox[:2], "stderr": b"x"}


async def test_half_a_frame_at_the_end_does_not_count(kept: Transcripts, tmp_path: Path) -> None:
    written(kept, ("stdout", b"whole"), ("stdout", b"cut off by a crash"))
    (file,) = (path for path in (tmp_path / "runs").rglob("*") if path.is_file())

    for cut in range(1, len(b"cut off by a crash") + 5):
        os.truncate(file, file.stat().st_size - 1)
        assert [chunk.content for chunk in kept.file(RUN).replay()] == [b"whole"], cut


async def test_of_a_chunk_the_disk_takes_half_of_nothing_is_left(many: Transcripts, tmp_path: Path) -> None:
    transcript = many.begin(RUN)
    transcript("stdout", b"x" * FEW_BYTES)
    (file,) = (path for path in (tmp_path / "runs").rglob("*") if path.is_file())
    size = file.stat().st_size
    with file_size_limit(size + 20):  # the kernel then takes 20 bytes and no more
        transcript("stdout", b"x" * 500)
    transcript("stderr", b"what comes after is counted only")
    transcript.close()

    assert file.stat().st_size == size
    assert [chunk.content for chunk in many.file(RUN).replay()] == [b"x" * FEW_BYTES]
    told = transcript.kept("stdout")
    assert (told.total_bytes, told.kept_bytes) == (FEW_BYTES + 500, FEW_BYTES)


async def test_garbage_at_the_end_does_not_count(kept: Transcripts, tmp_path: Path) -> None:
    written(kept, ("stdout", b"whole"))
    (file,) = (path for path in (tmp_path / "runs").rglob("*") if path.is_file())
    with file.open("ab") as end:
        end.write(b"\x07\xff\xff\xff\xff" + b"garbage" * 100_000)

    assert [chunk.content for chunk in kept.file(RUN).replay()] == [b"whole"]


async def test_past_the_limit_output_is_counted_and_thrown_away(kept: Transcripts) -> None:
    transcript = written(kept, ("stdout", b"x" * 700), ("stdout", b"y" * 700), ("stderr", b"z" * 900))

    stdout, stderr = transcript.kept("stdout"), transcript.kept("stderr")
    assert (stdout.total_bytes, stdout.kept_bytes) == (1400, 1000)
    assert stdout.digest == blake3(b"x" * 700 + b"y" * 300).hexdigest()
    assert (stderr.total_bytes, stderr.kept_bytes) == (900, 900)
    assert b"".join(kept.file(RUN).stream("stdout")) == b"x" * 700 + b"y" * 300


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
    assert late.result() == early.result() == list(kept.file(RUN).replay())
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


@pytest.mark.long
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
    while block := kept.file(RUN).block(position):
        assert sum(len(chunk.content) for chunk in block[:-1]) <= 70_000, "a client waits for so much at most"
        position, replayed = block[-1].position, replayed + len(block)

    assert len(found) == replayed == frames
    assert followed < 3 * size
    assert bytes_read() - before - followed < 3 * size


def bytes_read() -> int:
    """Return how many bytes this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


# ---------------------------------------------------------------------------------- few frames, and many


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]


@pytest.mark.parametrize("over", [-100, -1, 0])
async def test_what_is_little_goes_on_record_and_leaves_no_file(
    many: Transcripts, tmp_path: Path, over: int
) -> None:
    transcript = many.begin(RUN)
    transcript("stdout", b"x" * 100)
    transcript.survive()
    transcript("stderr", b"y" * (FEW_BYTES - 100 - 2 * HEAD_BYTES + over))
    few = transcript.few
    transcript.on_record()
    transcript.close()

    assert few is not None
    assert len(few) == FEW_BYTES + over
    assert [chunk.stream for chunk in Written(few).replay()] == ["stdout", "stderr"]
    assert Written(few).before(100 + HEAD_BYTES) == {"stdout": b"xxx", "stderr": b""}
    assert await collect(transcript) == list(Written(few).replay())
    assert files(tmp_path) == []


async def test_what_is_more_has_a_file_from_its_first_byte_on(many: Transcripts, tmp_path: Path) -> None:
    transcript = many.begin(RUN)
    transcript("stdout", b"first")
    assert files(tmp_path) == []
    transcript("stderr", b"y" * (FEW_BYTES - len(b"first") - 2 * HEAD_BYTES + 1))
    transcript("stdout", b"last")
    assert transcript.few is None
    transcript.make_durable()
    transcript.on_record()
    transcript.close()

    found = list(many.file(RUN).replay())
    assert [chunk.content[:5] for chunk in found] == [b"first", b"yyyyy", b"last"]
    assert await collect(transcript, found[0].position) == found[1:]


async def test_what_a_follower_was_shown_outlives_the_server(kept: Transcripts) -> None:
    transcript = kept.begin(RUN)
    following = transcript.follow(0)
    transcript("stdout", b"one")
    shown = await anext(following)

    assert list(kept.file(RUN).replay()) == [shown]
    transcript("stdout", b"two")
    assert await anext(following) == list(kept.file(RUN).replay())[1]
    await following.aclose()
    transcript.close()


async def test_what_a_run_wrote_a_while_ago_outlives_the_server(kept: Transcripts) -> None:
    transcript = kept.begin(RUN)
    transcript("stdout", b"one")
    assert list(kept.file(RUN).replay()) == []

    async with asyncio.timeout(5):
        while not (found := list(kept.file(RUN).replay())):  # noqa: ASYNC110 - a file says nothing
            await asyncio.sleep(0.01)
    assert [chunk.content for chunk in found] == [b"one"]
    transcript.close()


async def test_once_on_record_nothing_is_written_for_a_late_follower(
    kept: Transcripts, tmp_path: Path
) -> None:
    transcript = kept.begin(RUN)
    transcript("stdout", b"one")
    transcript.on_record()

    assert await anext(transcript.follow(0)) is not None
    assert files(tmp_path) == []
    transcript.close()
    assert files(tmp_path) == []


async def test_a_full_disk_costs_the_rest_of_the_output_and_not_the_run(many: Transcripts) -> None:
    transcript = many.begin(RUN)
    transcript("stdout", b"before")
    with file_size_limit(0):
        transcript("stdout", b"x" * FEW_BYTES)
    transcript("stdout", b"lost too")
    transcript.close()

    told = transcript.kept("stdout")
    assert (told.total_bytes, told.kept_bytes) == (6 + FEW_BYTES + 8, 6)
    assert transcript.few is not None
    assert [chunk.content for chunk in Written(transcript.few).replay()] == [b"before"]


async def test_a_disk_that_is_full_for_a_moment_costs_nothing_of_what_is_little(kept: Transcripts) -> None:
    transcript = kept.begin(RUN)
    transcript("stdout", b"one")
    transcript.survive()
    with file_size_limit(10):
        transcript("stdout", b"two")
    transcript("stdout", b"three")
    transcript.close()

    assert [chunk.content for chunk in kept.file(RUN).replay()] == [b"one", b"two", b"three"]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Have the kernel refuse what would make a file larger than `size`, as a full disk would."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


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
        missing = len(whole) - 2 * half
        assert f"\n[… {missing} {'byte' if missing == 1 else 'bytes'} left out …]\n" in found.text()


def test_an_excerpt_holds_no_more_than_it_shows() -> None:
    found = Excerpt(1000)
    for _ in range(10_000):
        found.take(b"x" * 100)

    held = len(found._head) + sum(len(piece) for piece in found._tail)
    assert held <= 1100
