"""Paths as callers write them: made plain, or refused with a sentence that helps."""

import pytest

from petri.errors import Invalid
from petri.workspace.paths import clean, clean_member, clean_target, quoted


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("main.py", "main.py"),
        ("./pkg//mod.py", "pkg/mod.py"),
        ("pkg/./mod.py/", "pkg/mod.py"),
        ("..hidden/...", "..hidden/..."),
        ("naïve/日本.py", "naïve/日本.py"),
        ("a" * 255, "a" * 255),
        ("-rf", "-rf"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_a_path_inside_becomes_its_plain_form(given: str, plain: str) -> None:
    assert clean(given, new=True) == plain


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "empty"),
        (".", "empty"),
        ("//", "absolute"),
        ("/etc/passwd", "absolute"),
        ("..", "'..'"),
        ("a/../b", "'..'"),
        ("a/..", "'..'"),
        ("a\0b", "NUL"),
        ("x" * 256, "longer than 255"),
        ("é" * 128, "longer than 255"),
        ("d/" * 2048 + "f", "longer than 4096"),
        ("a\nb", "control"),
        ("a\x7fb", "control"),
        ("\x1b[2J", "control"),
        ("caf\udce9", "UTF-8"),
        ("\ud800", "surrogate"),
        ("\udc2f", "surrogate"),
    ],
)
def test_a_path_that_makes_no_sense_is_refused_with_the_reason(given: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        clean(given, new=True)


@pytest.mark.parametrize("given", ["a\nb", "caf\udce9", "\x1b"])
def test_what_code_made_may_have_any_name_but_still_not_leave(given: str) -> None:
    assert clean(given, new=False) == given
    with pytest.raises(Invalid):
        clean(f"../{given}", new=False)


def test_two_spellings_of_the_same_bytes_are_one_name() -> None:
    assert clean("caf\udcc3\udca9", new=False) == clean("café", new=True)


def test_the_workspace_itself_is_a_path_only_where_asked_for() -> None:
    assert clean("./", new=False, empty=True) == ""
    with pytest.raises(Invalid, match="name a file"):
        clean("./", new=False)


@pytest.mark.parametrize("target", ["b", "../b", "./x/../../b", "dangling/nowhere"])
def test_a_link_may_point_anywhere_inside(target: str) -> None:
    assert clean_target("d/link", target) == target


@pytest.mark.parametrize("target", ["", "/etc/passwd", "../..", "../../ws/b", "x/../../../b", "a\0b", "\n"])
def test_a_link_that_leaves_is_refused(target: str) -> None:
    with pytest.raises(Invalid):
        clean_target("d/link", target)


@pytest.mark.parametrize("name", ["C:\\x", "c:/x", "\\x", "..\\x", "a\\..\\b", "/abs", "../x", "a/../../x"])
def test_a_member_that_leaves_is_refused_by_name(name: str) -> None:
    with pytest.raises(Invalid) as refused:
        clean_member("into", name)

    assert quoted(name) in refused.value.message


def test_messages_show_odd_characters_escaped_and_not_without_end() -> None:
    with pytest.raises(Invalid) as refused:
        clean("evil\n\x1b[2J\u202e" * 1000, new=True)

    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 1000
