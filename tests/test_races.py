"""Races: the same command in several forks at once, and what the best one did comes back."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from petri import AsyncClient, Client
from petri.errors import NotFound, PathsConflict
from petri.sdk import NotMerged, Racer
from petri.sdk.racing import ranked, score_in, winner_of
from petri.wire import ExecAnswer, UsageAnswer
from tests.calls import eventually
from tests.conftest import PETRI, Server

pytestmark = pytest.mark.long

Result = subprocess.CompletedProcess[bytes]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as found:
        yield found


@pytest.fixture
def box(client: Client) -> Iterator[str]:
    sandbox = client.create()
    client.write(sandbox.id, "kept", "kept\n")
    yield sandbox.id
    client.delete(sandbox.id)


@pytest.fixture
def petri(server: Server, tmp_path: Path) -> Callable[..., Result]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("PETRI_")}
    env = {**others, "PETRI_URL": server.url, "TMPDIR": str(tmp_path)}

    def run(*arguments: str) -> Result:
        line = [str(PETRI), *arguments]
        return subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, check=False, timeout=60)

    return run


def forks_of(client: Client, box: str) -> list[str]:
    return [each.id for each in client.sandboxes(state="ready") if each.forked_from == box]


async def until(holds: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, holds)


QUICKEST_IS_3 = 'sleep 0.$((9 - 2 * PETRI_RACER)); echo $PETRI_RACER > winner; test "$PETRI_RACER" != 4'


def test_the_quickest_that_succeeds_wins_and_its_changes_come_back(client: Client, box: str) -> None:
    race = client.race(box, 4, command=QUICKEST_IS_3)

    assert race.winner is not None
    assert race.winner.number == 3
    assert [racer.number for racer in race.racers] == [3, 2, 1, 4]
    assert race.merged is not None
    assert race.merged.changes.added == ["winner"]
    assert client.read(box, "winner") == b"3\n"
    assert client.read(box, "kept") == b"kept\n"
    assert forks_of(client, box) == []


def test_the_same_with_an_event_loop(server: Server, client: Client, box: str) -> None:
    async def race() -> int | None:
        async with AsyncClient(server.url) as petri:
            done = await petri.race(box, 4, command=QUICKEST_IS_3)
            return done.winner.number if done.winner else None

    assert asyncio.run(race()) == 3
    assert client.read(box, "winner") == b"3\n"
    assert forks_of(client, box) == []


def test_they_run_at_the_same_time(client: Client, box: str) -> None:
    race = client.race(box, 3, command="date +%s%N; sleep 1; date +%s%N", merge=False)

    spans = [tuple(map(int, racer.answer.stdout.split())) for racer in race.racers if racer.answer]
    assert len(spans) == 3
    assert max(begin for begin, _ in spans) < min(end for _, end in spans)


def test_the_highest_score_wins_however_long_it_takes(client: Client, box: str) -> None:
    script = (
        "sleep 0.$PETRI_RACER; mkdir out; echo $((PETRI_RACER * -5 + 20)) > out/score; echo $PETRI_RACER > w"
    )
    race = client.race(box, 3, score="out/score", command=script)

    assert [(racer.number, racer.score) for racer in race.racers] == [(1, 15.0), (2, 10.0), (3, 5.0)]
    assert client.read(box, "w") == b"1\n"


def test_who_left_no_score_does_not_win_and_it_is_said(client: Client, box: str) -> None:
    script = (
        "case $PETRI_RACER in 2) echo many > s ;; 3) head -c 99999 /dev/zero > s ;; 4) echo 1e3 > s ;; esac"
    )
    race = client.race(box, 4, score="s", command=script)

    assert race.winner is not None
    assert (race.winner.number, race.winner.score) == (4, 1000.0)
    remarks = {racer.number: racer.remark for racer in race.racers}
    assert remarks[1] == "it left no file 's' with a score"
    assert "'many'" in (remarks[2] or "")
    assert "no number" in (remarks[3] or "")


def test_where_nobody_succeeds_nothing_changes(client: Client, box: str) -> None:
    before = client.exec(box, command="true").tree_after

    race = client.race(box, 2, command="echo x > y; exit $PETRI_RACER")

    assert race.winner is None
    assert race.merged is None
    assert [racer.number for racer in race.racers] == [1, 2]
    assert client.exec(box, command="true").tree_before == before
    assert forks_of(client, box) == []


def test_what_became_of_the_sandbox_meanwhile_is_not_overwritten(client: Client, box: str) -> None:
    async def race_and_write() -> list[str]:
        async with AsyncClient(client.url) as petri:
            racing = asyncio.ensure_future(petri.race(box, 2, command="sleep 2; echo theirs > kept"))
            await until(lambda: len(forks_of(client, box)) == 2)
            await petri.write(box, "kept", "mine\n")
            with pytest.raises(NotMerged) as refused:
                await racing
            assert isinstance(refused.value, PathsConflict)
            assert len(refused.value.race.racers) == 2
            assert refused.value.winner.sandbox in refused.value.message
            return [path.decode() for path, _ in refused.value.conflicts]

    assert asyncio.run(race_and_write()) == ["kept"]
    assert client.read(box, "kept") == b"mine\n"
    (winner,) = forks_of(client, box)
    assert client.read(winner, "kept") == b"theirs\n"
    assert client.sandbox(winner).expires_at is None
    client.merge(box, winner, prefer="theirs")
    assert client.read(box, "kept") == b"theirs\n"
    client.delete(winner)


def test_forks_are_kept_if_asked_for(client: Client, box: str) -> None:
    race = client.race(box, 2, merge=False, keep_forks=True, command="echo $PETRI_RACER > me")

    assert sorted(forks_of(client, box)) == sorted(racer.sandbox for racer in race.racers)
    for racer in race.racers:
        assert client.read(racer.sandbox, "me") == f"{racer.number}\n".encode()
        client.delete(racer.sandbox)
    with pytest.raises(NotFound):
        client.read(box, "me")


def test_the_caller_s_own_variables_are_there_too(client: Client, box: str) -> None:
    race = client.race(box, 1, merge=False, command="echo $WORD $PETRI_RACER", env={"WORD": "hello"})

    assert race.racers[0].answer is not None
    assert race.racers[0].answer.stdout == "hello 1\n"


def test_a_race_that_is_cancelled_leaves_no_fork_and_no_run(client: Client, box: str) -> None:
    async def give_up() -> None:
        async with AsyncClient(client.url) as petri:
            racing = asyncio.ensure_future(petri.race(box, 2, command="sleep 60"))
            await until(lambda: len(forks_of(client, box)) == 2)
            racing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await racing

    asyncio.run(give_up())
    assert forks_of(client, box) == []


# -------------------------------------------------------------------------------------------- the command


def test_the_command_prints_a_table_and_what_came_in(
    petri: Callable[..., Result], client: Client, box: str
) -> None:
    done = petri(
        "race", box, "-n", "3", "--", "sh", "-c", "echo $PETRI_RACER > won; exit $((PETRI_RACER - 2))"
    )

    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0].split()[:3] == ["RANK", "RACER", "ENDED"]
    assert lines[1].split()[:3] == ["1", "2", "0"]
    assert lines[-2:] == ["racer 2 won:", "A won"]
    assert client.read(box, "won") == b"2\n"


def test_where_nobody_won_the_command_says_so(petri: Callable[..., Result], box: str) -> None:
    done = petri("race", box, "-n", "2", "--", "false")

    assert (done.returncode, done.stderr) == (1, b"petri: nobody won, and nothing was merged\n")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_winner_in_conflict_is_shown_and_where_it_stays(
    server: Server, client: Client, box: str, *, as_json: bool
) -> None:
    env = {**os.environ, "PETRI_URL": server.url}
    options = ["-n", "2", *(["--json"] if as_json else [])]
    line = [str(PETRI), "race", box, *options, "--", "sh", "-c", "sleep 2; echo theirs > kept"]
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as racing:
        eventually(lambda: len(forks_of(client, box)) == 2)
        client.write(box, "kept", "mine\n")
        said, complaint = racing.communicate(timeout=60)

    (winner,) = forks_of(client, box)
    assert racing.returncode == 1
    if as_json:
        told = json.loads(said)
        assert [each["path"] for each in told["conflicts"]] == ["kept"]
        assert told["merged"] is None
        assert winner in [each["sandbox"] for each in told["racers"] if each["number"] == told["winner"]]
    else:
        assert len(said.splitlines()) == 3, "a line for each racer"
        assert "petri: kept: ours changed the file, theirs changed the file\n" in complaint
        assert f"petri merge {box} {winner} --prefer theirs" in complaint
    client.delete(winner)


def test_the_command_tells_programs_everything(
    petri: Callable[..., Result], client: Client, box: str
) -> None:
    done = petri("race", box, "-n", "2", "--no-merge", "--keep-forks", "--json", "--", "true")

    told = json.loads(done.stdout)
    assert told["merged"] is None
    assert told["winner"] in (1, 2)
    assert {racer["answer"]["exit_code"] for racer in told["racers"]} == {0}
    for racer in told["racers"]:
        client.delete(racer["sandbox"])


def test_ctrl_c_ends_the_runs_and_removes_the_forks(server: Server, client: Client, box: str) -> None:
    env = {**os.environ, "PETRI_URL": server.url}
    line = [str(PETRI), "race", box, "-n", "2", "--", "sleep", "60"]
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as racing:
        eventually(lambda: sum(1 for fork in forks_of(client, box) for _ in client.runs(fork)) == 2)
        racing.send_signal(signal.SIGINT)
        _, complaint = racing.communicate(timeout=30)

    assert racing.returncode == 130
    assert b"Traceback" not in complaint
    assert forks_of(client, box) == []


@pytest.mark.parametrize("arguments", [("-n", "0"), ("-n", "17"), ("-n", "x"), ()])
def test_a_race_that_cannot_be_is_a_sentence(
    petri: Callable[..., Result], box: str, arguments: tuple[str, ...]
) -> None:
    command = ("--", "true") if arguments else ()

    assert petri("race", box, *arguments, *command).returncode == 2


# ------------------------------------------------------------------------------------------- who is best


def ended(number: int, code: int | None, took_ms: float, score: float | None = None) -> Racer:
    answer = ExecAnswer(
        run_id="run-x",
        sandbox_id="sb-x",
        state="done",
        exit_code=code,
        signal=None,
        signal_name=None,
        timed_out=False,
        oom_killed=False,
        cancelled=False,
        stdout="",
        stderr="",
        stdout_truncated=False,
        stderr_truncated=False,
        stdout_bytes=0,
        stderr_bytes=0,
        duration_ms=took_ms,
        usage=UsageAnswer(cpu_ms=0, peak_memory_bytes=0),
        tree_before=None,
        tree_after=None,
        changes=None,
        environment=None,
        installed=[],
    )
    return Racer(number, f"sb-{number}", answer, score)


def test_the_order_is_success_score_exit_code_time() -> None:
    racers = [
        Racer(0, "sb-0", remark="could not be run"),
        ended(1, None, 1),
        ended(2, 7, 1, score=99),
        ended(3, 1, 9),
        ended(4, 0, 9),
        ended(5, 0, 5),
        ended(6, 0, 9, score=-1.5),
        ended(7, 0, 9, score=2),
        ended(8, 0, 5, score=2),
    ]

    assert [racer.number for racer in ranked(racers)] == [8, 7, 6, 5, 4, 2, 3, 1, 0]
    assert winner_of(ranked(racers[:4]), by_score=False) is None
    assert winner_of(ranked(racers[:6]), by_score=True) is None
    assert winner_of([], by_score=False) is None


@pytest.mark.parametrize(
    "content", [b"", b"nan", b"inf", b"-inf", b"1 2", b"0x10", b"\xff", b"1" * 101, b"one"]
)
def test_what_is_no_number_is_no_score(content: bytes) -> None:
    with pytest.raises(ValueError, match="no number"):
        score_in(content)


@pytest.mark.parametrize(("content", "score"), [(b"1", 1.0), (b" -2.5e1\n", -25.0), (b"+7", 7.0)])
def test_what_is_a_number_is_a_score(content: bytes, score: float) -> None:
    assert score_in(content) == score
