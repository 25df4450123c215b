"""Patches: what `git apply` and `patch` make of them, and what hostile texts cost."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petri import trees
from petri.patches import Patch, render
from petri.patches.matching import matches
from petri.trees import EMPTY, Change, Entry, File, Folder, Link, address
from tests.examples import examples
from tests.forests import Forest, Plan

LINES = st.lists(
    st.sampled_from(["a\n", "b\n", "c\n", "\n", "-- x\n", "+y\r\n", "\\ z\n", "ä\x0c\n"]), max_size=30
)
TEXTS = st.builds(lambda lines, cut: "".join(lines)[: -1 if cut else None].encode(), LINES, st.booleans())
NAMES = st.sampled_from([b"a", b"b", b"c d", b'q"uote', b"tab\there", b"\xc3\xa4", b"-x", b"back\\slash"])

LINKS = st.sampled_from([b"nowhere", b"../x y"])
"""Not to themselves: where a folder takes the place of such a link, git trips over its own patches, too."""


class Texts(Forest):
    """Trees with the contents of their files."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: dict[bytes, bytes] = {}

    def file(self, content: bytes, mode: int = 6) -> File:
        self.contents[address(content)] = content
        return File(address(content), len(content), mode)

    def read(self, file: File) -> bytes | None:
        return self.contents.get(file.digest)

    def patch(self, old: bytes, new: bytes) -> str:
        changes = trees.flatten(self.fetch, trees.diff(self.fetch, old, new))
        # As `git diff` does: what goes makes room for what comes.
        ordered = sorted(changes, key=lambda change: change.new is not None)
        return "".join(render(*change, self.read).text for change in ordered)


def plant(folder: Path, paths: dict[bytes, Entry], texts: Texts) -> None:
    """Have a tree's files in a folder."""
    for path, entry in paths.items():
        place = folder / os.fsdecode(path)
        if isinstance(entry, Folder):
            place.mkdir(parents=True, exist_ok=True)
        elif isinstance(entry, Link):
            place.symlink_to(os.fsdecode(entry.target))
        else:
            place.write_bytes(texts.contents[entry.digest])
            place.chmod(0o755 if entry.mode & 1 else 0o644)


def found(folder: Path) -> dict[bytes, object]:
    """Return the files and links in a folder, and what they are."""
    told: dict[bytes, object] = {}
    for path in folder.rglob("*"):
        name = os.fsencode(path.relative_to(folder))
        if path.is_symlink():
            told[name] = str(path.readlink())
        elif path.is_file():
            told[name] = path.read_bytes(), bool(path.stat().st_mode & 0o100)
    return told


PLANS = st.recursive(
    st.dictionaries(NAMES, st.tuples(TEXTS, st.sampled_from([6, 7])) | LINKS, max_size=3),
    lambda inner: st.dictionaries(
        NAMES, st.tuples(TEXTS, st.sampled_from([6, 7])) | LINKS | inner, max_size=3
    ),
    max_leaves=6,
)


def planned(texts: Texts, drawn: dict[bytes, object]) -> Plan:
    """Return a plan of what was drawn, but for empty folders: git knows of none."""
    plan: dict[bytes, object] = {}
    for name, each in drawn.items():
        if isinstance(each, tuple):
            plan[name] = texts.file(*each)
        elif isinstance(each, bytes):
            plan[name] = Link(each)
        elif inside := planned(texts, each):  # type: ignore[arg-type]
            plan[name] = inside
    return plan  # type: ignore[return-value]


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=PLANS, after=PLANS)
def test_git_makes_the_one_tree_of_the_other(
    tmp_path: Path, before: dict[bytes, object], after: dict[bytes, object]
) -> None:
    texts = Texts()
    old, new = texts.plant(planned(texts, before)), texts.plant(planned(texts, after))
    folders = tmp_path / "old", tmp_path / "new"
    for folder, tree in zip(folders, (old, new), strict=True):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        plant(folder, texts.paths(tree), texts)

    patch = texts.patch(old, new)
    if patch:
        git = ["git", "apply", "--whitespace=nowarn", "--unsafe-paths", "-"]
        env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
        subprocess.run(git, input=patch.encode(), cwd=folders[0], check=True, env=env)

    assert found(folders[0]) == found(folders[1])


@settings(examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=TEXTS, after=TEXTS)
def test_patch_makes_the_one_text_of_the_other(tmp_path: Path, before: bytes, after: bytes) -> None:
    texts = Texts()
    old, new = (texts.plant({b"a file": texts.file(each)}) for each in (before, after))
    (tmp_path / "a file").write_bytes(before)

    patch = texts.patch(old, new)
    if patch:
        words = ["patch", "-p1", "--binary", "--quiet", "--no-backup-if-mismatch"]
        subprocess.run(words, input=patch.encode(), cwd=tmp_path, check=True)

    assert (tmp_path / "a file").read_bytes() == after


@given(old=st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=40), data=st.data())
def test_matches_are_in_order_and_of_equal_lines(old: list[bytes], data: st.DataObject) -> None:
    new = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c", b"x"]), max_size=40))
    at = other = 0
    for match in matches(old, new):
        assert match.old >= at
        assert match.new >= other
        assert match.lines > 0
        assert old[match.old : match.old + match.lines] == new[match.new : match.new + match.lines]
        at, other = match.old + match.lines, match.new + match.lines


def told(old: bytes, new: bytes) -> Patch:
    texts = Texts()
    return render(b"f", texts.file(old), texts.file(new), texts.read)


def test_a_change_is_told_as_diff_tells_it() -> None:
    old = b"".join(b"line %d\n" % number for number in range(1, 31))
    new = old.replace(b"line 10\n", b"line ten\n").replace(b"line 25\n", b"")

    patch = told(old, new)

    assert (patch.added, patch.removed, patch.remark) == (1, 2, None)
    assert patch.text == (
        "diff --git a/f b/f\n--- a/f\n+++ b/f\n"
        "@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+line ten\n line 11\n line 12\n line 13\n"
        "@@ -22,7 +22,6 @@\n line 22\n line 23\n line 24\n-line 25\n line 26\n line 27\n line 28\n"
    )


def test_a_missing_newline_is_said() -> None:
    assert told(b"a\n", b"a").text.endswith("@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n")


@pytest.mark.parametrize(
    ("content", "size"), [(b"\0", "1 byte"), (b"\xff\xfe", "2 bytes"), (b"text\n\0", "6 bytes")]
)
def test_what_is_not_text_is_told_by_its_size(content: bytes, size: str) -> None:
    assert told(b"text\n", content) == Patch("", remark=f"not text: 5 bytes before, {size} now")


def test_what_cannot_be_read_is_told_by_its_size() -> None:
    texts = Texts()
    huge = File(address(b"huge"), 1 << 40, 6)

    patch = render(b"f", texts.file(b"text\n"), huge, texts.read)

    assert (patch.text, patch.remark) == ("", f"not text: 5 bytes before, {1 << 40} bytes now")


def test_what_may_be_run_now_is_said_even_of_what_is_not_text() -> None:
    texts = Texts()
    old, new = texts.file(b"\0", 6), texts.file(b"\0", 7)

    assert render(b"f", old, new, texts.read).text == "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"


def test_a_permission_that_no_patch_holds_is_a_remark() -> None:
    texts = Texts()

    assert render(b"f", texts.file(b"a", 6), texts.file(b"a", 4), texts.read) == Patch(
        "", remark="only a permission changed"
    )


def test_an_empty_folder_is_a_remark() -> None:
    assert (
        render(b"d", None, Folder(EMPTY), Texts().read).remark == "an empty folder, which no patch can hold"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([b"a\n", b"b\n"] * 50_000, [b"b\n", b"a\n"] * 50_000),
        (
            [b"%d\n" % (number % 9) for number in range(60_000)],
            [b"%d\n" % (number % 7) for number in range(60_000)],
        ),
        ([b"%d\n" % number for number in range(60_000)], [b"%d\n" % -number for number in range(60_000)]),
        (
            [b"%d\n" % number for number in range(60_000)],
            [b"%d\n" % number for number in range(60_000, 0, -1)],
        ),
        # Something to hold on to every 200 lines, and nothing in between.
        (
            [b"#%d\n" % number if number % 200 == 0 else b"a\n" for number in range(400_000)],
            [b"#%d\n" % number if number % 200 == 0 else b"b\n" for number in range(400_000)],
        ),
    ],
)
def test_hostile_texts_cost_seconds_at_most(old: list[bytes], new: list[bytes]) -> None:
    begun = time.process_time()
    found = matches(old, new)

    assert time.process_time() - begun < 5
    assert all(old[at : at + lines] == new[other : other + lines] for at, other, lines in found)


def test_few_changes_in_a_long_text_stay_few() -> None:
    old = [b"%d\n" % (number % 50) for number in range(20_000)]
    new = [*old[:5_000], b"new\n", *old[5_000:15_000], *old[15_003:]]

    common = sum(match.lines for match in matches(old, new))

    assert (len(old) - common, len(new) - common) == (3, 1)


def test_a_type_that_changes_is_one_gone_and_one_come() -> None:
    texts = Texts()
    change = Change(b"f", texts.file(b"a\n"), Link(b"there"))

    text = render(*change, texts.read).text

    assert text.count("diff --git a/f b/f") == 2
    assert "deleted file mode 100644" in text
    assert "new file mode 120000" in text
