"""What can be said of the command line without a server: help, usage, and how words are read."""

import re
import socket
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from petri.cli import COULD_NOT_RUN, main
from petri.cli.files import Place, place
from petri.cli.options import duration, pair, size
from petri.cli.runs import exec_
from petri.sdk import asking, folder_name


def _commands(group: click.Group) -> dict[str, click.Command]:
    found = dict(group.commands)
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= {f"{name} {inner}": each for inner, each in _commands(command).items()}
    return found


COMMANDS = _commands(main)
GROUPS = {name for name, command in COMMANDS.items() if isinstance(command, click.Group)}


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setenv("PETRI_URL", url)
    monkeypatch.setattr(asking, "FIRST_PAUSE_S", 0.001)  # it is asked more than once
    return url


def petri(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_every_command_is_there() -> None:
    assert sorted(COMMANDS) == [
        *("blame", "cp", "create", "diff", "doctor", "env", "env diff", "env export", "env show", "exec"),
        *("fork", "fsck", "keys"),
        *("keys create", "keys ls", "keys revoke", "logs", "ls", "merge", "pull", "push", "race", "restore"),
        *("rm", "run", "runs", "serve", "show", "snapshot", "snapshots", "sync", "tenants", "tenants ls"),
        *("tenants set", "undo", "watch"),
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(command: str) -> None:
    result = petri(*command.split(), "--help")

    assert result.exit_code == 0
    assert "Example: " in result.output and f"petri {command}" in result.output


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - GROUPS - {"serve"}))
def test_every_command_can_speak_to_programs(command: str) -> None:
    assert "--json" in petri(*command.split(), "--help").output


@pytest.mark.parametrize("before", [("--json", "env"), ("env", "--json")], ids=str)
def test_a_group_s_commands_take_it_too(nobody: str, before: tuple[str, ...]) -> None:
    assert petri(*before, "show", "box").exit_code == COULD_NOT_RUN


def test_only_serve_has_no_words_for_programs() -> None:
    result = petri("--json", "serve")

    assert result.exit_code == 2
    assert "has no --json" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_is_for(command: str) -> None:
    options = [each for each in COMMANDS[command].params if isinstance(each, click.Option)]

    assert all(option.help for option in options)


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("exec",),
        ("exec", "box"),
        ("exec", "box", "-f", "a.py", "--code", "1"),
        ("exec", "box", "--timeout", "soon", "--", "true"),
        ("exec", "box", "-e", "NOVALUE", "--", "true"),
        ("exec", "box", "--frob", "--", "true"),
        ("cp", "one"),
        ("cp", "here", "there"),
        ("cp", "a:x", "b:y"),
        ("cp", "-", "box:"),
        ("cp", "a.py", "b.py", "box:one"),
        ("cp", "box:out.csv", "no/such/folder/"),
        ("run", "no-such-file.py"),
        ("rm",),
        ("ls", "--limit", "0"),
        ("create", "--memory", "lots"),
        ("keys", "create"),
        ("keys", "create", "ci", "--scope", "root"),
        ("keys", "create", "ci", "--expires", "soon"),
        ("keys", "revoke"),
        ("tenants", "set"),
        ("tenants", "set", "acme", "--runs", "-1"),
        ("tenants", "set", "acme", "--disk", "lots"),
    ],
)
def test_a_command_line_that_makes_no_sense_exits_2(arguments: tuple[str, ...]) -> None:
    result = petri(*arguments)

    assert result.exit_code == 2, result.output
    assert "Usage: " in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls",),
        ("create",),
        ("show", "box"),
        ("rm", "box"),
        ("runs", "box"),
        ("logs", "run-a"),
        ("exec", "box", "--", "true"),
        ("cp", "box:a", "-"),
    ],
)
def test_without_a_server_there_is_one_sentence_and_125(nobody: str, arguments: tuple[str, ...]) -> None:
    result = petri(*arguments)

    assert result.exit_code == COULD_NOT_RUN
    assert result.stdout == ""
    assert result.stderr.startswith(f"petri: no Petri server answers at {nobody}; ")
    assert result.stderr.count("\n") == 1


def test_a_local_file_that_is_not_there_is_a_sentence(nobody: str) -> None:
    result = petri("cp", "no-such-file", f"sb-{'a' * 20}:")

    assert result.exit_code == COULD_NOT_RUN
    assert result.stderr == "petri: no-such-file: No such file or directory\n"


@pytest.mark.parametrize(
    ("line", "sandbox", "argv", "filename"),
    [
        ("box -- python -m pytest -q", "box", ("python", "-m", "pytest", "-q"), None),
        ("box python -i main.py -f x", "box", ("python", "-i", "main.py", "-f", "x"), None),
        ("box cmd -- x", "box", ("cmd", "--", "x"), None),
        ("box -f main.py -- --depth 3", "box", ("--depth", "3"), "main.py"),
        ("box -f main.py one two", "box", ("one", "two"), "main.py"),
        ("-f main.py box", "box", (), "main.py"),
        ("--cwd pkg box --timeout 3 -f main.py -- -f", "box", ("-f",), "main.py"),
        ("-- box ls -l", "box", ("ls", "-l"), None),
    ],
)
def test_options_end_where_the_command_begins(
    line: str, sandbox: str, argv: tuple[str, ...], filename: str | None
) -> None:
    found = exec_.make_context("exec", line.split()).params

    assert (found["sandbox"], found["argv"], found["filename"]) == (sandbox, argv, filename)


def test_what_follows_a_file_is_the_program_s(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("")

    found = (
        main.commands["run"]
        .make_context("run", ["-r", f"{tmp_path}/main.py", "-r", "--json", "--", "x"])
        .params
    )

    assert found["args"] == ("-r", "--json", "--", "x")
    assert found["whole"] and not found["as_json"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("box:out.csv", Place("box", "out.csv")),
        ("box:", Place("box", "")),
        ("sb-abc:a:b", Place("sb-abc", "a:b")),
        ("./box:out.csv", Place(None, "./box:out.csv")),
        ("dir/box:out.csv", Place(None, "dir/box:out.csv")),
        ("main.py", Place(None, "main.py")),
        ("-", Place(None, "-")),
        (":x", Place(None, ":x")),
        ("box:a\nb", Place("box", "a\nb")),
    ],
)
def test_a_colon_before_any_slash_means_a_sandbox(text: str, found: Place) -> None:
    assert place(text) == found


def test_quantities_have_units() -> None:
    assert [duration(text) for text in ("90", "1.5s", "30m", "2h", "1d")] == [90, 1.5, 1800, 7200, 86_400]
    assert [size(text) for text in ("100", "1k", "512M", "2g")] == [100, 1024, 512 * 2**20, 2 * 2**30]
    assert pair("A=b=c") == ("A", "b=c")


@pytest.mark.parametrize("text", ["", "m", "-1", "1x", "1 m", "nan", "inf", "1e3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        duration(text)


def test_a_folder_s_sandbox_has_a_name_the_server_takes() -> None:
    for folder in ("/a/my project!", "/", "/ü", "/a/.hidden", "/" + "x" * 200, "/a/-"):
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", folder_name(Path(folder)))
    assert folder_name(Path("/a/same")) != folder_name(Path("/b/same"))
    assert folder_name(Path("/a/same")) == folder_name(Path("/a/same"))


def test_standard_input_is_taken_only_when_asked(nobody: str) -> None:
    result = CliRunner().invoke(main, ["exec", "box", "-i", "--", "cat"], input=b"\xff")

    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr
