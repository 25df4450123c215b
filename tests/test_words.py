"""Bubblewrap's arguments are put into words once for a place, unless a tenant says how many they are."""

from dataclasses import replace
from pathlib import Path

from petri.engine import Link, Place
from petri.engine.bubblewrap import BubblewrapEngine, Setup, _words_in_use
from petri.model import Limits


def test_links_are_put_into_words_and_not_remembered(tmp_path: Path) -> None:
    engine = BubblewrapEngine(Setup(tmp_path, tmp_path, tmp_path, tmp_path))
    plain = Place("sb-1", tmp_path / "sb-1", None, Limits(1, 2**28, 64, 60))
    linked = replace(plain, links=(Link("../packages/a", "/workspace/node_modules/a"),))
    words = engine._arguments(plain, None)
    remembered = _words_in_use.cache_info().currsize

    with_link = engine._arguments(linked, None)

    assert _words_in_use.cache_info().currsize == remembered
    assert b"\0--symlink\0../packages/a\0/workspace/node_modules/a\0" in with_link
    assert engine._arguments(plain, None) is words
