"""Running something over HTTP: by file, by command, by code; and what is not run."""

import time

import httpx
import pytest

from tests.calls import ask, create, put, refused, run, sh

HELLO = {
    "python": "import sys; print('hi', *sys.argv[1:])",
    "javascript": "console.log('hi', ...process.argv.slice({skip}))",
    "bash": 'echo hi "$@"',
}


def offered(http: httpx.Client) -> dict[str, bool]:
    languages = http.get("/v1/languages").json()["languages"]
    return {each["name"]: each["available"] for each in languages}


@pytest.fixture
def language(http: httpx.Client, request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not offered(http)[name]:
        pytest.skip(f"this host has no {name}")
    return name


def greeting(language: str, skip: int) -> str:
    return HELLO[language].replace("{skip}", str(skip))


# ------------------------------------------------------------------------------- filename, command, code


@pytest.mark.long
@pytest.mark.parametrize("language", HELLO, indirect=True)
def test_a_file_runs_by_its_ending_whatever_the_sandbox_speaks(
    http: httpx.Client, sandbox: str, language: str
) -> None:
    ending = {"python": "py", "javascript": "js", "bash": "sh"}[language]
    put(http, sandbox, f"hello.{ending}", greeting(language, skip=2))

    told = run(http, sandbox, filename=f"hello.{ending}", args=["a b", "--flag", ""])

    assert told["stdout"].rstrip() == "hi a b --flag"
    assert (told["exit_code"], told["stderr"]) == (0, "")


@pytest.mark.parametrize("language", HELLO, indirect=True)
def test_code_runs_with_its_arguments(http: httpx.Client, sandbox: str, language: str) -> None:
    told = run(http, sandbox, code=greeting(language, skip=1), language=language, args=["a b", "-x"])

    assert (told["stdout"], told["exit_code"]) == ("hi a b -x\n", 0), told


def test_code_is_in_the_sandbox_s_own_language_unless_it_says_otherwise(http: httpx.Client) -> None:
    sandbox = create(http, language="bash")

    assert run(http, sandbox, code="echo $BASH_VERSION")["stdout"].strip()
    assert run(http, sandbox, code="print(6*7)", language="python")["stdout"] == "42\n"


def test_typescript_runs_or_says_what_it_needs(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "main.ts", "const n: number = 42; console.log(n)")

    if offered(http)["typescript"]:
        assert run(http, sandbox, filename="main.ts")["stdout"] == "42\n"
        assert run(http, sandbox, code="let n: number = 1; console.log(n)", language="typescript")
    else:
        assert "node" in refused(ask(http, sandbox, filename="main.ts"), 422)["detail"]
        problem = refused(http.post("/v1/sandboxes", json={"language": "typescript"}), 422)
        assert "22.6" in problem["detail"]


def test_a_command_is_a_shell_line_or_a_list_of_words(http: httpx.Client, sandbox: str) -> None:
    assert sh(http, sandbox, "printf '%s\\n' a b | tac") == "b\na\n"
    assert run(http, sandbox, command=["echo", "$HOME", "a b"])["stdout"] == "$HOME a b\n"
    assert run(http, sandbox, command='echo "$1"', args=["x y"])["stdout"] == "x y\n"
    assert run(http, sandbox, command=["echo"], args=["x  y"])["stdout"] == "x  y\n"


def test_a_missing_program_is_exit_code_127_not_an_error(http: httpx.Client, sandbox: str) -> None:
    assert run(http, sandbox, command=["no-such-program"])["exit_code"] == 127
    assert run(http, sandbox, command="no-such-program")["exit_code"] == 127


def test_files_in_folders_import_each_other_as_on_a_laptop(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "app/main.py", "from lib.sums import add\nimport here\nprint(add(1, 2), here.X)")
    put(http, sandbox, "app/lib/__init__.py", "")
    put(http, sandbox, "app/lib/sums.py", "def add(a, b): return a + b")
    put(http, sandbox, "app/here.py", "X = open('app/data.txt').read()")
    put(http, sandbox, "app/data.txt", "found")

    assert run(http, sandbox, filename="app/main.py")["stdout"] == "3 found\n"


@pytest.mark.long
def test_javascript_modules_import_each_other(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "src/main.mjs", "import {add} from './sums.mjs'; console.log(add(1, 2))")
    put(http, sandbox, "src/sums.mjs", "export const add = (a, b) => a + b")

    assert run(http, sandbox, filename="src/main.mjs")["stdout"] == "3\n"


@pytest.mark.long
def test_argv_and_tracebacks_are_those_of_python_main_py(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "main.py", "import sys; print(sys.argv[0], __name__); 1/0")

    told = run(http, sandbox, filename="main.py")

    assert told["stdout"] == "main.py __main__\n"
    assert "line 1, in <module>" in told["stderr"]
    assert told["exit_code"] == 1


def test_files_stay_from_run_to_run_and_nothing_else_does(http: httpx.Client, sandbox: str) -> None:
    sh(http, sandbox, "echo kept > kept.txt; echo gone > /tmp/gone; sleep 60 & exit 0")

    assert sh(http, sandbox, "cat kept.txt; ls /tmp; ps ax 2>/dev/null | grep -c '[s]leep 60' || true") in (
        "kept\n0\n",
        "kept\n",
    )


# ---------------------------------------------------------------------------- stdin, env, cwd, timeout


@pytest.mark.long
def test_stdin_reaches_the_command_whole(http: httpx.Client, sandbox: str) -> None:
    long = "ü" * 700_000 + "\n"

    assert run(http, sandbox, command="wc -c", stdin=long)["stdout"].strip() == str(len(long.encode()))
    assert run(http, sandbox, command="cat")["stdout"] == "", "without stdin there is an end of file at once"


def test_variables_of_the_run_win_over_those_of_the_sandbox(http: httpx.Client) -> None:
    sandbox = create(http, env={"A": "sandbox", "B": "sandbox"})

    told = run(http, sandbox, command='echo "$A $B $HOME"; env | grep -c PETRI', env={"B": "run = ü"})

    assert told["stdout"] == "sandbox run = ü /workspace\n0\n"


@pytest.mark.long
def test_cwd_is_a_folder_of_the_workspace(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "pkg/mod.py", "import os; print(os.getcwd())")

    for cwd in ("pkg", "pkg/", "/workspace/pkg", "./pkg"):
        assert run(http, sandbox, command="pwd", cwd=cwd)["stdout"] == "/workspace/pkg\n"
    for cwd in ("/workspace", "/workspace/", "."):
        assert run(http, sandbox, command="pwd", cwd=cwd)["stdout"] == "/workspace\n"
    # The filename is from the top of the workspace wherever the command runs.
    assert run(http, sandbox, filename="pkg/mod.py", cwd="pkg")["stdout"] == "/workspace/pkg\n"


@pytest.mark.parametrize("cwd", ["missing", "pkg/mod.py"])
def test_a_cwd_that_is_no_folder_is_refused_by_name(http: httpx.Client, sandbox: str, cwd: str) -> None:
    put(http, sandbox, "pkg/mod.py", "")

    assert refused(ask(http, sandbox, command="pwd", cwd=cwd), 422)["field"] == "cwd"


@pytest.mark.parametrize("cwd", ["/etc", "..", "pkg/../..", "out", "/workspace/../etc"])
def test_a_cwd_outside_is_refused(http: httpx.Client, sandbox: str, cwd: str) -> None:
    sh(http, sandbox, "ln -s /etc out; mkdir pkg")

    refused(ask(http, sandbox, command="pwd", cwd=cwd), 400)


@pytest.mark.long  # for a shell has to begin within that second, whatever else the machine does
@pytest.mark.parametrize("name", ["timeout_s", "timeout"])
def test_a_timeout_ends_everything_the_run_started(http: httpx.Client, sandbox: str, name: str) -> None:
    begun = time.monotonic()
    told = run(http, sandbox, command="echo begun; sleep 60 & sleep 60", **{name: 1})

    assert time.monotonic() - begun < 5
    assert (told["timed_out"], told["exit_code"], told["stdout"]) == (True, None, "begun\n")
    assert (told["state"], told["cancelled"]) == ("done", False)
    assert 950 < told["duration_ms"] < 4000


@pytest.mark.long
def test_a_sandbox_s_own_timeout_counts_where_a_run_names_none(http: httpx.Client) -> None:
    sandbox = create(http, limits={"timeout_s": 0.3})

    assert run(http, sandbox, command="sleep 60")["timed_out"]
    assert not run(http, sandbox, command="sleep 0.5", timeout_s=20)["timed_out"]


# ----------------------------------------------------------------------------------- what is not run


@pytest.mark.parametrize(
    ("filename", "status"),
    [
        *(("missing.py", 422), ("pkg", 422), ("pkg/", 422), ("fifo.py", 422), ("a\0b.py", 422), ("", 400)),
        *(("/etc/passwd", 400), ("/workspace/../etc/passwd", 400), ("../x.py", 400), ("pkg/../../x", 400)),
        *(("out.py", 400), ("loop.py", 400), ("x" * 300, 400), ("x/" * 3000, 400)),
    ],
)
def test_a_filename_that_is_no_file_of_the_workspace_is_refused(
    http: httpx.Client, sandbox: str, filename: str, status: int
) -> None:
    sh(http, sandbox, "mkdir pkg; ln -s /etc/passwd out.py; ln -s loop.py loop.py; mkfifo fifo.py")

    problem = refused(ask(http, sandbox, filename=filename), status)

    assert http.get(f"/v1/sandboxes/{sandbox}/runs").json()["runs"][0]["form"] == "command", "nothing ran"
    if status == 422:
        assert problem["field"] == "filename"
        assert "archive" not in problem["detail"], "the answer is about running, not about downloading"


@pytest.mark.long
def test_a_file_whose_name_looks_like_an_option_is_run_as_a_file(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "-c.py", "print('ran')")
    put(http, sandbox, "-e", "echo ran")
    put(http, sandbox, "--version.js", "console.log('ran')")

    assert run(http, sandbox, filename="-c.py")["stdout"] == "ran\n"
    assert run(http, sandbox, filename="-e", language="bash")["stdout"] == "ran\n"
    assert run(http, sandbox, filename="--version.js")["stdout"] == "ran\n"


def test_a_link_inside_the_workspace_is_run(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "real/main.py", "print('ran')")
    sh(http, sandbox, "ln -s real/main.py link.py")

    assert run(http, sandbox, filename="link.py")["stdout"] == "ran\n"


def test_an_unknown_language_names_those_there_are(http: httpx.Client, sandbox: str) -> None:
    for answer in (
        http.post("/v1/sandboxes", json={"language": "cobol"}),
        ask(http, sandbox, code="x", language="cobol"),
        ask(http, sandbox, command="true", language="cobol"),
        http.post("/v1/exec", json={"code": "x", "language": "cobol"}),
    ):
        problem = refused(answer, 422)
        assert problem["field"] == "language"
        for name in ("python", "bash"):
            assert name in problem["detail"]


def test_an_unknown_engine_names_those_there_are(http: httpx.Client, sandbox: str) -> None:
    problem = refused(ask(http, sandbox, command="true", engine="docker"), 422)

    assert problem["field"] == "engine"
    assert "bubblewrap" in problem["detail"]


@pytest.mark.parametrize(
    "body",
    [{}, {"filename": "a", "command": "b"}, {"filename": None}, {"code": "x", "command": ["y"]}],
    ids=str,
)
def test_exactly_one_of_filename_command_and_code(
    http: httpx.Client, sandbox: str, body: dict[str, object]
) -> None:
    assert "exactly one" in refused(ask(http, sandbox, **body), 422)["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {"command": ["true"], "args": ["x" * 100_000] * 50},
        {"command": ["true"] * 4001, "args": ["x"] * 4000},
        {"command": ["true"], "args": ["x" * 100_000] * 14, "env": {"A": "x" * 120_000}},
    ],
    ids=lambda body: str(body)[:40],
)
def test_more_arguments_than_a_process_can_have_are_too_many(
    http: httpx.Client, sandbox: str, body: dict[str, object]
) -> None:
    problem = refused(ask(http, sandbox, **body), 413)

    assert problem["field"] == "args"
    assert "1500000" in problem["detail"]
    assert "stdin" in problem["detail"]


@pytest.mark.parametrize(
    ("field", "value", "bound"),
    [
        ("env", {f"A{number}": "x" * 100_000 for number in range(3)}, "262144"),
        ("env", {f"A{number}": "ü" * 50_000 for number in range(3)}, "262144"),
        ("stdin", "x" * (8 * 2**20 + 1), "8388608"),
        ("stdin", "ü" * (4 * 2**20 + 1), "8388608"),
        ("code", "x" * 131_072, "131071"),
        ("args", ["x" * 131_072], "131071"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_field_that_is_too_long_is_told_how_long_it_may_be(
    http: httpx.Client, sandbox: str, field: str, value: object, bound: str
) -> None:
    body: dict[str, object] = {field: value} if field == "code" else {"command": "true", field: value}

    problem = refused(ask(http, sandbox, **body), 422)

    assert problem["field"].startswith(field)
    assert bound in problem["detail"]


@pytest.mark.long
def test_as_much_stdin_as_there_may_be_arrives(http: httpx.Client, sandbox: str) -> None:
    assert run(http, sandbox, command="wc -c", stdin="x" * (8 * 2**20))["stdout"] == "8388608\n"


@pytest.mark.long
def test_as_many_arguments_as_there_may_be_arrive(http: httpx.Client, sandbox: str) -> None:
    env = {f"A{number}": "x" for number in range(500)}
    told = run(http, sandbox, command=["sh", "-c", "echo $#", "sh"], args=["x"] * 6400, env=env)
    assert told["stdout"] == "6400\n"

    told = run(http, sandbox, command=["sh", "-c", "echo $#", "sh"], args=["x" * 100_000] * 14)
    assert told["stdout"] == "14\n"
