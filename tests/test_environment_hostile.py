"""Projects of people who mean no good, and of people who broke something: nothing raises, all of it ends."""

import time
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petri.environment import (
    Ask,
    Code,
    File,
    Kind,
    Language,
    Policy,
    Refusal,
    Words,
    meaning,
    vetted,
    wanted,
)
from petri.environment.building.uv import unsafe
from petri.environment.needs.python.imports import imports
from petri.environment.needs.shell import commands
from tests.examples import examples
from tests.projects import MemoryReader, look, names, optional, refused

SOON_S = 5
"""Of the processor, whatever else the machine does. What these guard against took half a minute."""
LANGUAGES: tuple[Language, ...] = ("python", "javascript", "typescript", "bash")
FRAGMENTS = (
    *(
        "import ",
        "from ",
        "try:",
        "except ImportError:",
        "else:",
        "if x:",
        "\n",
        "    ",
        "\t",
        "a.b",
        " as ",
        ",",
    ),
    *(
        "'''",
        '"""',
        "'",
        '"',
        "\\",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "#",
        "//",
        "/*",
        "*/",
        "`",
        "${",
        ";",
        ":",
        "\0",
    ),
    *(
        "require(",
        "import(",
        "export ",
        "* ",
        "=",
        "/",
        "numpy",
        "<<EOF",
        "EOF",
        "$(",
        "|",
        "&&",
        "python ",
        "-m ",
    ),
    *(
        "with ",
        "suppress(ImportError)",
        "raise",
        "__import__('x')",
        "async ",
        "def f():",
        "type ",
        "é",
        "\ud800",
    ),
)


@pytest.mark.long
@pytest.mark.parametrize(
    "source",
    [
        "import " + ".".join(["a"] * 100_000),
        "from " + "." * 100_000 + " import a",
        "import " + ",".join(["a"] * 100_000),
        "from a import (" + ",".join(f"b{n}" for n in range(20_000)) + ")",
        "import a\n" * 200_000,
        "from a import (\n" + "# (\n" * 100_000,
        "if a:\n" + "".join(" " * n + "if a:\n" for n in range(1, 3000)) + " " * 3000 + "import b",
        "if a:\n    pass\n" + "elif a:\n    import b\n" * 50_000,
        "try:\n    import b\n" + "except E:\n    pass\n" * 50_000,
        "if " + "(" * 100_000 + ":\n    import a",
        "if " + "-" * 300 + "1:\n    import a",
        "if " + "not " * 90 + "x:\n    import a",
        "x = f'" + "{a:" * 1000 + "{b}" * 100_000 + "'\nimport a",
        "'''" * 99_999 + "\nimport a",
        '"' * 200_001 + "\nimport a",
        "import a as " + "b" * 1_000_000,
        "with " + "suppress(ImportError), " * 10_000 + "x:\n    import a",
        "\\\n" * 200_000 + "import a",
        "x = 1;" * 200_000 + "import a",
    ],
)
def test_a_source_that_would_hold_the_parser_does_not(source: str) -> None:
    started = time.process_time()

    look({"main.py": source})
    imports(source.encode(), (3, 11))

    assert time.process_time() - started < SOON_S


@pytest.mark.long
@pytest.mark.parametrize(
    "source",
    [
        "`${" * 100_000,
        "/*" * 200_000,
        "import {" + "a," * 200_000,
        "export {" * 100_000,
        "require(" * 100_000 + "'a'",
        "import " * 100_000,
        "/[" * 200_000,
        "('" * 200_000,
        "import type " * 50_000,
    ],
)
def test_a_script_that_would_hold_the_tokenizer_does_not(source: str) -> None:
    started = time.process_time()

    look({"main.ts": source}, "main.ts")

    assert time.process_time() - started < SOON_S


@pytest.mark.parametrize(
    "text", ["$(" * 50_000, "<<A " * 20_000 + "\n", "'" * 99_999, "a;" * 100_000, '"$(' * 9_999]
)
def test_a_shell_text_that_goes_on_and_on_ends(text: str) -> None:
    started = time.process_time()

    list(commands(text))

    assert time.process_time() - started < SOON_S


@pytest.mark.long
def test_a_file_of_a_hundred_thousand_lines_is_read() -> None:
    lines = "".join(
        f"def f{n}(a):\n    '''Say.'''\n    x = a * 2  # c\n    return g(x, 'y')\n" for n in range(25_000)
    )

    assert names(look({"main.py": f"import numpy\n{lines}import rich\n"})) == {"numpy", "rich"}


def test_a_file_larger_than_anybody_writes_is_not_read() -> None:
    found = look({"main.py": b"import numpy\n" + b"#" * (9 << 20)})

    assert (names(found), refused(found)) == (set(), {})


class Endless:
    """A project in which every folder has folders, every file imports more, and nothing ever ends."""

    def __init__(self) -> None:
        self.asked = 0

    def read(self, path: str, most_bytes: int) -> bytes | None:
        self.asked += 1
        deeper = len(path.split("/")) % 7
        said = f"from . import a{deeper}, b\nimport a.{'a.' * deeper}a, x{self.asked}\nfrom .a import b"
        return said.encode()[:most_bytes]

    def kind(self, path: str) -> Kind | None:
        self.asked += 1
        return "file" if path.endswith((".py", ".js", ".json", ".toml", ".txt")) else "folder"

    def names(self, folder: str) -> list[str]:
        self.asked += 1
        plain = [
            "a",
            "b",
            "src",
            "__init__.py",
            "a.py",
            "b.py",
            "test_x.py",
            "requirements.txt",
            "package.json",
        ]
        return [*plain, *(f"a{n}.py" for n in range(7)), *(f"x{n}.py" for n in range(0, 20_000, 2_000))]

    def digest(self, path: str) -> bytes | None:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("entry", [File("main.py"), Words(("pytest",)), Words(("python", "-m", "a.a"))])
def test_a_project_without_end_is_looked_at_for_a_while(entry: File | Words) -> None:
    reader = Endless()

    wanted(reader, Ask(entry, "python"))

    assert reader.asked < 200_000


class Liar:
    """A reader whose answers do not agree: folders that are files, links to nowhere, any name at all."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)

    def read(self, path: str, most_bytes: int) -> bytes | None:
        return self._chance.choice(
            [None, b"", b"import numpy, a.b\n", b"\xff\0", b"{", b"[project]\n", b"-r x"]
        )

    def kind(self, path: str) -> Kind | None:
        return self._chance.choice([None, "file", "folder"])

    def names(self, folder: str) -> list[str]:
        odd = [
            "..",
            ".",
            "",
            "a/b",
            "main.py",
            "a",
            "é",
            "\udcff",
            "\n",
            "package.json",
            "uv.lock",
            "tsconfig.json",
        ]
        return self._chance.sample(odd, self._chance.randrange(len(odd)))

    def digest(self, path: str) -> bytes | None:
        return self._chance.choice([None, self._chance.randbytes(8)])


@pytest.mark.parametrize("seed", range(50))
def test_a_reader_that_contradicts_itself_is_survived(seed: int) -> None:
    for language in LANGUAGES:
        wanted(Liar(seed), Ask(File("a/main.py"), language))
        wanted(Liar(seed), Ask(Words(("sh", "-c", "cd a; pytest; node b.js; ./x.sh")), language))


@examples(60)
@given(content=st.binary(max_size=300), language=st.sampled_from(LANGUAGES), name=st.text(max_size=20))
def test_no_bytes_are_an_error(content: bytes, language: Language, name: str) -> None:
    manifests = (
        "pyproject.toml",
        "uv.lock",
        "requirements.txt",
        "package.json",
        "tsconfig.json",
        "Pipfile.lock",
    )
    for each in manifests:
        wanted(MemoryReader({name: content, "main": content, each: content}), Ask(File("main"), language))
    wanted(MemoryReader({}), Ask(File(name), language))


@examples(150)
@given(parts=st.lists(st.sampled_from(FRAGMENTS), max_size=40), language=st.sampled_from(LANGUAGES))
def test_no_text_is_an_error(parts: list[str], language: Language) -> None:
    text = "".join(parts)
    content = text.encode(errors="surrogatepass")

    wanted(MemoryReader({"main": content}), Ask(File("main"), language))
    wanted(MemoryReader({}), Ask(Code(text), language))
    wanted(MemoryReader({"x.py": content}), Ask(Words(("sh", "-c", text)), "bash", commands=frozenset()))
    wanted(
        MemoryReader({"requirements.txt": content, "package.json": content}), Ask(Words(tuple(parts)), "bash")
    )


@pytest.mark.parametrize("before", ["a", "a[b]", "a (", "a>=1", "a>=1 ,", "a>=1;"])
def test_a_requirement_of_mere_space_is_looked_at_once(before: str) -> None:
    text = before + " " * 900 + "\x01"
    started = time.process_time()

    assert isinstance(vetted(text, "python", Policy()), Refusal)
    assert unsafe([text]) == [text]

    assert time.process_time() - started < SOON_S


@examples(300)
@given(name=st.text(max_size=60), language=st.sampled_from(LANGUAGES))
def test_no_name_is_an_error(name: str, language: Language) -> None:
    meaning(name, language, Policy())
    vetted(name, language, Policy())


@examples(30)
@given(data=st.data())
def test_the_order_of_files_and_folders_does_not_matter(data: st.DataObject) -> None:
    files: Mapping[str, str] = {
        "main.py": "import a, b.c, numpy\nfrom d import e",
        "a.py": "try:\n    import rich\nexcept ImportError:\n    pass\nimport b",
        "b/__init__.py": "import yaml, sklern",
        "b/c.py": "import rich, d.e, strange_thing",
        "d/e.py": "from b import c\nimport cv2",
        "test_x.py": "import httpx",
        "requirements.txt": "flask\nclick",
        "src/b/__init__.py": "import torch",
    }
    shuffled = dict(data.draw(st.permutations(list(files.items()))))

    for entry in ("main.py", Words(("pytest",))):
        assert look(shuffled, entry) == look(files, entry)


def test_an_unchanged_file_is_not_read_again() -> None:
    files = {"main.py": "import a, numpy  # once", "a.py": "import rich  # once"}
    first, again = MemoryReader(files), MemoryReader(files)
    ask = Ask(File("main.py"), "python")

    assert wanted(first, ask) == wanted(again, ask)
    assert "a.py" in first.reads and "a.py" not in again.reads


def test_a_file_is_the_same_with_and_without_a_digest() -> None:
    files = {"main.py": "import a, numpy", "a.py": "import rich"}

    found = wanted(MemoryReader(files, has_digests=False), Ask(File("main.py"), "python"))

    assert names(found) == {"numpy", "rich"} and optional(found) == set()
