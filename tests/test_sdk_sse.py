"""The parser of server-sent events: bytes in, messages out, wherever the network cuts."""

from itertools import pairwise

import pytest

from petri.sdk.sse import Decoder, Message

STREAM = (
    'id: 0\nevent: started\ndata: {"run_id": "run-a"}\n\n'
    ": keep-alive\n\n"
    'id: 7\nevent: stdout\ndata: {"text": "Grüße\\n"}\n\n'
).encode()
MESSAGES = [
    Message("started", '{"run_id": "run-a"}', "0"),
    Message("stdout", '{"text": "Grüße\\n"}', "7"),
]


def decoded(*pieces: bytes) -> list[Message]:
    decoder = Decoder()
    return [message for piece in pieces for message in decoder.feed(piece)]


@pytest.mark.parametrize("cut", range(1, len(STREAM)))
def test_a_cut_anywhere_changes_nothing(cut: int) -> None:
    assert decoded(STREAM[:cut], STREAM[cut:]) == MESSAGES


def test_single_bytes_make_the_same_messages() -> None:
    assert decoded(*(STREAM[a:b] for a, b in pairwise(range(len(STREAM) + 1)))) == MESSAGES


def test_windows_line_ends_are_line_ends() -> None:
    assert decoded(STREAM.replace(b"\n", b"\r\n")) == MESSAGES


def test_many_data_lines_are_one_text() -> None:
    assert decoded(b"data: a\ndata: b\n\n") == [Message("message", "a\nb", None)]


def test_a_message_without_its_blank_line_is_not_there_yet() -> None:
    assert decoded(b"event: done\ndata: {}\n") == []


def test_only_one_space_after_the_colon_is_left_out() -> None:
    assert decoded(b"data:  two\n\ndata:none\n\n") == [
        Message("message", " two", None),
        Message("message", "none", None),
    ]
