"""One record, one line, whatever a caller put into a name."""

import logging

import pytest

from petri.logs import OneLine


def record(message: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("petri.test", logging.INFO, __file__, 1, message, args, info)


@pytest.mark.parametrize(
    "name",
    [
        *("a\n2026 ERROR fake", "\r\x1b[2J", "a\x00b", "\x7f", "\x9b31m", "\u2028", "\u2029", "\x85", "\t"),
        *(
            "\u202egnp.exe",
            "\u2066",
            "\u200f",
            "\u061c",
            "\u200b",
            "\ufeff",
            "\U000e0041",
            "\ud800",
            "\udcff",
        ),
    ],
    ids=ascii,
)
def test_nothing_in_a_name_ends_a_line_or_drives_a_terminal(name: str) -> None:
    said = OneLine("%(message)s").format(record("file %s", name))

    assert len(said.splitlines()) == 1
    assert all(character.isprintable() for character in said)


def test_a_traceback_is_one_line_too() -> None:
    try:
        int("first\nsecond")
    except ValueError as error:
        said = OneLine("%(message)s").format(record("failed", error=error))

    assert len(said.splitlines()) == 1
    assert "first\\nsecond" in said


def test_plain_text_stays_as_it_is() -> None:
    assert OneLine("%(message)s").format(record("zoë 🦊 %s", "a b")) == "zoë 🦊 a b"
