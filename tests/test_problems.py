"""Every way Petri says no has one status and one code."""

import json

import pytest

from petri import errors
from petri.api.problems import RETRY_AFTER_S, STATUS, answer, problem
from petri.errors import CallerError, HostError, InvalidField, PetriError, counted


def concrete() -> list[type[PetriError]]:
    found = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PetriError)
    ]
    return [each for each in found if each not in (PetriError, CallerError, HostError)]


def make(kind: type[PetriError], message: str = "why") -> PetriError:
    return InvalidField("field", message) if kind is InvalidField else kind(message)


def test_every_error_has_a_status_and_nothing_else_has() -> None:
    assert set(STATUS) == set(concrete())


def test_codes_are_unique_and_stable_words() -> None:
    codes = [kind.code for kind in concrete()]

    assert len(set(codes)) == len(codes)
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)


@pytest.mark.parametrize("kind", concrete())
def test_what_the_caller_can_mend_is_4xx_and_what_not_is_5xx(kind: type[PetriError]) -> None:
    assert STATUS[kind] // 100 == (4 if issubclass(kind, CallerError) else 5)


@pytest.mark.parametrize("kind", concrete())
def test_an_answer_has_everything_and_says_when_to_come_back(kind: type[PetriError]) -> None:
    response = answer(make(kind))

    told = json.loads(bytes(response.body))
    assert response.media_type == "application/problem+json"
    assert (told["status"], told["code"], told["detail"]) == (STATUS[kind], kind.code, "why")
    assert told["type"] == f"urn:petri:{kind.code}"
    assert told["title"]
    assert ("retry-after" in response.headers) == (STATUS[kind] in (429, 503))
    if kind.retryable:
        assert response.headers["retry-after"] == str(RETRY_AFTER_S)


def test_what_an_error_keeps_for_the_log_is_not_told() -> None:
    response = answer(errors.Unavailable("the disk is gone", detail="/root/secret: EIO"))

    assert b"secret" not in bytes(response.body)


def test_what_a_request_put_into_an_error_is_told_shortly_and_as_text() -> None:
    told = problem(InvalidField("x" * 10_000, "half a pair: \ud800, " + "y" * 100_000))

    assert len(told.detail) < 1100
    assert told.field is not None
    assert len(told.field) < 300
    assert told.detail.startswith("half a pair: \\ud800, y")


def test_one_and_many_are_said_as_one_says_them() -> None:
    assert [counted(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert [counted(number, "sandbox") for number in (1, 2)] == ["1 sandbox", "2 sandboxes"]
    assert [counted(number, "process") for number in (1, 2)] == ["1 process", "2 processes"]
