"""What a run's answer tells: how it ended, what it cost, and what it wrote."""

import signal
import time

import httpx
import pytest

from tests.calls import run

# -------------------------------------------------------------------------------------------- endings


def test_an_exit_code_is_not_a_signal(http: httpx.Client, sandbox: str) -> None:
    told = run(http, sandbox, code="import sys; sys.exit(137)")
    assert (told["exit_code"], told["signal"], told["signal_name"]) == (137, None, None)

    told = run(http, sandbox, code="import os; os.kill(os.getpid(), 9)")
    assert (told["exit_code"], told["signal"], told["signal_name"]) == (None, 9, "SIGKILL")
    assert (told["timed_out"], told["oom_killed"], told["cancelled"]) == (False, False, False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT])
def test_a_signal_is_named(http: httpx.Client, sandbox: str, number: signal.Signals) -> None:
    told = run(http, sandbox, code=f"import os; os.kill(os.getpid(), {int(number)})")

    assert (told["exit_code"], told["signal_name"]) == (None, number.name)


@pytest.mark.long
def test_what_a_run_cost_is_told(http: httpx.Client, sandbox: str) -> None:
    told = run(
        http, sandbox, code="b = bytearray(60_000_000)\nimport time\nt = time.process_time\nwhile t() < .2: 0"
    )

    assert told["usage"]["cpu_ms"] >= 150
    assert told["duration_ms"] >= 150
    if told["usage"]["peak_memory_bytes"]:
        assert told["usage"]["peak_memory_bytes"] > 50_000_000


# ------------------------------------------------------------------------------------------- outputs


def test_binary_output_is_replaced_in_the_answer_and_exact_at_its_address(
    http: httpx.Client, sandbox: str
) -> None:
    told = run(http, sandbox, command=r"printf 'a\377\000b\303' ; printf '\200err' >&2")

    assert (told["stdout"], told["stderr"]) == ("a\ufffd\0b\ufffd", "\ufffderr")
    stdout = http.get(f"/v1/runs/{told['run_id']}/stdout")
    assert stdout.content == b"a\xff\0b\xc3"
    assert stdout.headers["content-type"] == "application/octet-stream"
    assert stdout.headers["content-disposition"].startswith("attachment")
    assert http.get(f"/v1/runs/{told['run_id']}/stderr").content == b"\x80err"


@pytest.mark.long
def test_of_long_output_the_answer_has_head_and_tail_and_the_address_all(
    http: httpx.Client, sandbox: str
) -> None:
    code = "import sys; print('\\n'.join(f'{i:09}' for i in range(500_000))); print('short', file=sys.stderr)"
    told = run(http, sandbox, code=code)

    assert (told["stdout_truncated"], told["stderr_truncated"]) == (True, False)
    assert (told["stdout_bytes"], told["stderr"]) == (5_000_000, "short\n")
    assert told["stdout"].startswith("000000000\n")
    assert told["stdout"].endswith("000499999\n")
    assert len(told["stdout"].encode()) < 2**20 + 100
    assert "bytes left out" in told["stdout"]
    whole = http.get(f"/v1/runs/{told['run_id']}/stdout")
    assert whole.headers["content-length"] == "5000000"
    assert whole.content == b"".join(b"%09d\n" % number for number in range(500_000))


def test_output_of_exactly_the_limit_is_whole(http: httpx.Client, sandbox: str) -> None:
    told = run(http, sandbox, code="import sys; sys.stdout.write('x' * 2**20)")

    assert (len(told["stdout"]), told["stdout_truncated"]) == (2**20, False)


def test_output_of_a_background_child_is_there_and_does_not_hold_the_run(
    http: httpx.Client, sandbox: str
) -> None:
    begun = time.monotonic()
    told = run(http, sandbox, command="(echo early; sleep 60; echo late) & sleep 0.2; echo main")

    assert told["stdout"] == "early\nmain\n"
    assert time.monotonic() - begun < 5
