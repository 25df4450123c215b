"""The `petri` command as people and scripts use it: a real process against a real server."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from petri import Client
from tests.conftest import PETRI, Server

pytestmark = pytest.mark.long

Result = subprocess.CompletedProcess[bytes]
Petri = Callable[..., Result]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as found:
        yield found


@pytest.fixture
def box(client: Client) -> Iterator[str]:
    sandbox = client.create()
    yield sandbox.id
    client.delete(sandbox.id)


@pytest.fixture
def environment(server: Server, tmp_path: Path) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("PETRI_")}
    return {**others, "PETRI_URL": server.url, "TMPDIR": str(tmp_path)}


@pytest.fixture
def petri(environment: dict[str, str], tmp_path: Path) -> Petri:
    def run(*arguments: object, stdin: bytes = b"") -> Result:
        line = [str(PETRI), *map(str, arguments)]
        return subprocess.run(
            line, env=environment, cwd=tmp_path, input=stdin, capture_output=True, check=False, timeout=60
        )

    return run


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str) -> "subprocess.Popen[bytes]":
        line = [str(PETRI), *arguments]
        started.append(
            subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        )
        return started[-1]

    yield begin
    for process in started:
        with process:
            process.kill()


def ok(result: Result) -> bytes:
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


# ------------------------------------------------------------------------------------------- sandboxes


@pytest.mark.slow
def test_a_sandbox_from_create_to_rm(petri: Petri) -> None:
    sandbox = (
        ok(petri("create", "--name", "cli-life", "--memory", "256m", "--metadata", "a=b")).decode().strip()
    )
    try:
        listed = ok(petri("ls")).decode().splitlines()
        assert listed[0].split()[:3] == ["ID", "NAME", "STATE"]
        assert any(line.split()[:3] == [sandbox, "cli-life", "ready"] for line in listed)
        shown = ok(petri("show", "cli-life")).decode()
        assert sandbox in shown and "256.0 MiB" in shown and "\x1b" not in shown
    finally:
        ok(petri("rm", "cli-life"))
    assert sandbox not in ok(petri("ls")).decode()
    assert json.loads(ok(petri("show", sandbox, "--json")))["ended_because"] == "deleted"


@pytest.mark.slow
def test_json_is_one_line_everywhere(petri: Petri, box: str) -> None:
    for command, *rest in (("show", box), ("ls",), ("runs", box), ("doctor",), ("exec", box, "true")):
        for line in ((command, "--json", *rest), ("--json", command, *rest)):
            result = petri(*line)
            assert result.stdout.count(b"\n") == 1 and json.loads(result.stdout) is not None, line


@pytest.mark.slow
def test_a_name_from_the_server_cannot_speak_to_the_terminal(petri: Petri, client: Client, box: str) -> None:
    client.update(box, metadata={"note": "\x1b[2J\x1b]0;owned\x07"})
    client.exec(box, command=["sh", "-c", "true \x1b[31m\nsecond line"])

    for output in (ok(petri("show", box)), ok(petri("runs", box))):
        assert b"\x1b" not in output and b"\\x1b[" in output


@pytest.mark.slow
def test_what_is_not_there_is_one_sentence_and_125(petri: Petri) -> None:
    for arguments in (("show", "nobody"), ("exec", "nobody", "true"), ("logs", "run-aaaaaaaaaaaaaaaaaaaa")):
        result = petri(*arguments)
        assert result.returncode == 125
        assert result.stderr.startswith(b"petri: ") and result.stderr.count(b"\n") == 1, result.stderr


# ------------------------------------------------------------------------------------------------ exec


def test_output_goes_to_the_right_descriptors_and_the_code_is_ours(petri: Petri, box: str) -> None:
    result = petri("exec", box, "--", "sh", "-c", "echo out; echo err >&2; exit 7")

    assert (result.returncode, result.stdout, result.stderr) == (7, b"out\n", b"err\n")


@pytest.mark.parametrize(
    ("options", "command", "code"),
    [
        ((), "kill -SEGV $$", 128 + signal.SIGSEGV),
        (("--timeout", "0.3"), "sleep 60", 124),
        ((), "exit 0", 0),
        ((), "no-such-program-here", 127),
    ],
)
def test_every_ending_has_its_exit_code(
    petri: Petri, box: str, options: tuple[str, ...], command: str, code: int
) -> None:
    assert petri("exec", *options, box, "--", "sh", "-c", command).returncode == code


@pytest.mark.slow
def test_a_file_with_arguments_variables_folder_and_input(petri: Petri, client: Client, box: str) -> None:
    client.upload(
        box,
        {"main.py": "import os, sys; print(sys.argv[1:], os.environ['A'], os.getcwd(), sys.stdin.read())"},
    )
    client.upload(box, {"sub/x": b""})

    result = petri(
        "exec", box, "-f", "main.py", "-e", "A=b=c", "-i", "--", "--depth", "3", stdin="ü".encode()
    )

    assert ok(result).decode() == "['--depth', '3'] b=c /workspace ü\n"
    assert ok(petri("exec", box, "--cwd", "sub", "ls")) == b"x\n"


def test_code_in_a_language(petri: Petri, box: str) -> None:
    assert ok(petri("exec", box, "--code", "echo $BASH_VERSION $1", "--language", "bash", "x")).endswith(
        b" x\n"
    )


def test_standard_input_stays_ours_unless_given(petri: Petri, box: str) -> None:
    assert ok(petri("exec", box, "cat", stdin=b"secret")) == b""


def test_bytes_that_are_no_text_arrive_as_they_are(petri: Petri, box: str) -> None:
    program = "import sys; sys.stdout.buffer.write(b'text\\n' + bytes(range(256)) * 300 + 'ü'.encode())"

    assert (
        ok(petri("exec", box, "--", "python3", "-c", program))
        == b"text\n" + bytes(range(256)) * 300 + "ü".encode()
    )


def test_output_comes_while_the_run_goes_on(
    start: Callable[..., "subprocess.Popen[bytes]"], client: Client, box: str
) -> None:
    process = start(
        "exec", box, "--", "sh", "-c", "echo up; while [ ! -e go ]; do sleep 0.02; done; echo down"
    )
    assert process.stdout is not None

    assert process.stdout.readline() == b"up\n"
    client.write(box, "go", b"")
    assert process.stdout.read() == b"down\n"
    assert process.wait(30) == 0


def test_ctrl_c_ends_the_run_and_waits_for_its_last_words(
    start: Callable[..., "subprocess.Popen[bytes]"], client: Client, box: str
) -> None:
    process = start("exec", box, "--", "sh", "-c", "echo up; sleep 60")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"up\n"

    begun = time.monotonic()
    process.send_signal(signal.SIGINT)

    assert process.wait(30) == 130
    assert time.monotonic() - begun < 10
    assert process.stderr.read() == b""
    assert next(client.runs(box)).state == "cancelled"


def test_when_nobody_reads_any_more_the_run_ends(
    start: Callable[..., "subprocess.Popen[bytes]"], client: Client, box: str
) -> None:
    process = start("exec", box, "--", "sh", "-c", "while :; do echo y; sleep 0.01; done")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(30) == 141
    assert process.stderr.read() == b""
    assert next(client.runs(box)).state == "cancelled"


@pytest.mark.slow
def test_a_run_that_the_server_s_death_cut_short_is_a_sentence_and_125(
    new_server: Callable[..., Server],
    start: Callable[..., "subprocess.Popen[bytes]"],
    environment: dict[str, str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    server = new_server(PETRI_PORT=port)
    environment["PETRI_URL"] = server.url
    with Client(server.url) as client:
        process = start("exec", client.create().id, "--", "sh", "-c", "echo up; sleep 60")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"up\n"

    server.stop(signal.SIGKILL)
    server.start()

    assert process.wait(30) == 125
    assert process.stdout.read() == b""
    assert process.stderr.read() == (
        b"petri: the run did not come to its own end: it was interrupted, since the server stopped\n"
    )


# ----------------------------------------------------------------------------------------- run and logs


@pytest.mark.slow
def test_run_makes_a_sandbox_for_the_folder_and_keeps_it(
    petri: Petri, client: Client, tmp_path: Path
) -> None:
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "main.py").write_text(
        "import sys\n"
        "with open('seen', 'a+') as seen:\n"
        "    seen.write('.')\n"
        "print(open('seen').read(), *sys.argv[1:])\n"
        "sys.exit(5)"
    )

    first = petri("run", folder / "main.py", "--depth", "3")
    second = petri("run", "--json", "my project/main.py")

    assert (first.returncode, first.stdout) == (5, b". --depth 3\n"), first.stderr
    answer = json.loads(second.stdout)
    assert (second.returncode, answer["stdout"]) == (5, "..\n")
    assert client.sandbox(answer["sandbox_id"]).name.startswith("my-project-")  # type: ignore[union-attr]
    client.delete(answer["sandbox_id"])


def test_run_all_brings_the_folder_but_not_its_litter(petri: Petri, client: Client, tmp_path: Path) -> None:
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "src" / ".git").mkdir()
    (tmp_path / "src" / ".git" / "HEAD").write_text("x")
    (tmp_path / "src" / "pkg" / "mod.py").write_text("name = 'imported'")
    (tmp_path / "src" / "main.py").write_text(
        "import os, pkg.mod; print(pkg.mod.name, os.path.exists('.git'))"
    )
    try:
        assert ok(petri("run", "--sandbox", "cli-run-all", "--all", "src/main.py")) == b"imported False\n"
    finally:
        client.delete(client.sandbox_id("cli-run-all"))


@pytest.mark.slow
def test_runs_and_logs_tell_what_happened(petri: Petri, client: Client, box: str) -> None:
    answer = client.exec(box, command=r"printf '\377'; echo err >&2; exit 3")

    table = ok(petri("runs", box)).decode().splitlines()
    assert table[1].split()[:3] == [answer.run_id, "done", "3"]
    plain, followed = petri("logs", answer.run_id), petri("logs", "-f", answer.run_id)
    assert (plain.returncode, plain.stdout, plain.stderr) == (0, b"\xff", b"err\n")
    assert (followed.returncode, followed.stdout, followed.stderr) == (3, b"\xff", b"err\n")
    assert json.loads(ok(petri("logs", "--json", answer.run_id)))["stderr"] == "err\n"
