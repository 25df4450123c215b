"""How the tables of names are built: from what is in wheels and packages, without their code."""

import io
import zipfile

from scripts.tables.debian import commands
from scripts.tables.modules import Provided, fold, meant_roots, provided
from scripts.tables.wheels import _usable, entries


def test_the_names_in_a_zip_are_read_off_its_directory() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        wheel.writestr("a/__init__.py", "x" * 1000)
        wheel.writestr("é.py", "")
    content = packed.getvalue()

    assert list(entries(content[content.index(b"PK\1\2") :])) == ["a/__init__.py", "é.py"]
    assert list(entries(b"")) == []


def test_the_newest_wheel_for_linux_is_taken() -> None:
    page = """
        <a href="u/a-1.9-py3-none-any.whl#sha256=x">a-1.9-py3-none-any.whl</a>
        <a href="u/a-1.10-cp311-cp311-linux_x86_64.whl">a-1.10-cp311-cp311-linux_x86_64.whl</a>
        <a href="u/a-1.11-cp311-cp311-win_amd64.whl">a-1.11-cp311-cp311-win_amd64.whl</a>
        <a href="u/a-1.12-py2-none-any.whl">a-1.12-py2-none-any.whl</a>
        <a href="u/a-2.0rc1-py3-none-any.whl">a-2.0rc1-py3-none-any.whl</a>
        <a href="u/a-3.0-py3-none-any.whl" data-yanked="bad">a-3.0-py3-none-any.whl</a>
        <a href="u/a-4.0.tar.gz">a-4.0.tar.gz</a>
    """

    assert max(_usable(page))[1] == "a-1.10-cp311-cp311-linux_x86_64.whl"


def test_a_wheel_brings_its_packages_and_modules_and_nothing_else() -> None:
    names = [
        "pkg/__init__.py",
        "pkg/deep/x.py",
        "single.py",
        "fast.cpython-311-x86_64-linux-gnu.so",
        "ns/part/__init__.py",
        "ns/alone.py",
        "a-1.data/purelib/moved/__init__.py",
        "a-1.data/scripts/tool.py",
        "a-1.dist-info/METADATA",
        "tests/test_x.py",
        "docs/conf.py",
        "_private/__init__.py",
        "not-a-module/x.py",
        "pkg/data.json",
    ]

    assert provided(names).roots == {"pkg", "single", "fast", "ns.part", "ns.alone", "moved"}


def _brings(*modules: str) -> Provided:
    return provided([f"{module.replace('.', '/')}/__init__.py" for module in modules])


def test_the_most_used_comes_first() -> None:
    assert fold({"pyjwt": _brings("jwt"), "jwt": _brings("jwt")}) == {"jwt": ["pyjwt", "jwt"]}


def test_below_a_name_that_many_share_its_parts_decide() -> None:
    shared = {name: _brings("ns", f"ns.{name}") for name in ("a", "b", "c")}

    table = fold(shared)

    assert table["ns"] == ["a", "b", "c"]
    assert (table["ns.a"], table["ns.b"], table["ns.c"]) == (["a"], ["b"], ["c"])


def test_what_lies_beside_a_packages_own_name_is_there_by_accident() -> None:
    assert meant_roots("teradataml", frozenset({"teradataml", "config", "lib"})) == {"teradataml"}
    assert meant_roots("python-docx", frozenset({"docx"})) == {"docx"}
    assert meant_roots("biopython", frozenset({"Bio", "BioSQL"})) == {"Bio", "BioSQL"}


def test_commands_are_read_off_lists_of_contents() -> None:
    lines = [
        "usr/bin/jq                 utils/jq",
        "usr/bin/rg     utils/ripgrep",
        "bin/x   a/longer-name,b/x,c/y",
        "usr/share/doc/jq/README    utils/jq",
        "usr/lib/x/bin/y  z",
    ]

    assert commands(lines) == {"jq": ["jq"], "rg": ["ripgrep"], "x": ["x", "y", "longer-name"]}
