"""Who decides what a run wants: the script itself, a lock, a manifest, or its imports; in this order."""

import json

import pytest

from petri.environment import Because, Pin, Words
from petri.environment.needs.manifests.poetry import versions
from tests.projects import MANIFEST_ONLY, Files, look, names, refused, texts

INLINE = """\
#!/usr/bin/env python
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "rich",
#   "httpx<1",
# ]
# ///
import numpy
"""
UV_LOCK = """
version = 1
[[package]]
name = "mine"
version = "0.1.0"
source = { editable = "." }
dependencies = [{ name = "rich" }, { name = "tomli", marker = "python_full_version < '3.11'" }]
[[package]]
name = "rich"
version = "13.9.4"
source = { registry = "x" }
sdist = { url = "x", hash = "sha256:aa", size = 1 }
wheels = [{ url = "y", hash = "sha256:bb", size = 1 }]
[[package]]
name = "fromgit"
version = "1"
source = { git = "x" }
"""
POETRY_LOCK = """
[[package]]
name = "Rich"
version = "13.9.4"
files = [{ file = "x", hash = "sha256:cc" }]
"""
PYLOCK = """
lock-version = "1.0"
[[packages]]
name = "rich"
version = "13.9.4"
marker = "sys_platform == 'linux'"
wheels = [{ name = "x", hashes = { sha256 = "dd" } }]
"""
PYPROJECT = '[project]\nname = "mine"\nrequires-python = ">=3.10"\ndependencies = ["Rich>=13", "click"]\n'
POETRY = """
[tool.poetry.dependencies]
python = "^3.11"
rich = "^13.1"
click = { version = "~8.1", extras = ["x"], markers = "os_name == 'posix'" }
local = { path = "../x" }
some = { version = "*", optional = true }
[tool.poetry.group.dev.dependencies]
pytest-mock = "*"
"""
HASHED = "rich==13.9.4 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\nclick==8.1.7 --hash=sha256:cc\n"


def test_a_script_that_says_itself_what_it_wants_is_taken_by_its_word() -> None:
    files = {"main.py": INLINE, "pyproject.toml": PYPROJECT, "uv.lock": UV_LOCK, "requirements.txt": "flask"}

    found = look(files)

    assert (found.source, texts(found), found.python) == ("pep723", {"rich", "httpx<1"}, ">=3.11")
    assert found.requirements[0].because == (Because("main.py", 2, "rich"),)
    assert found.why == "main.py declares it"


@pytest.mark.parametrize(
    "source",
    [
        "# /// script\n# dependencies = ['rich'\n# ///\nimport numpy",
        "# /// script\n# dependencies = 3\n# ///\nimport rich",
        "# /// script\n# ///\nimport rich",
        "# /// script\n# dependencies = [3, {}]\n# ///\n",
    ],
)
def test_a_script_that_says_it_wrong_wants_nothing(source: str) -> None:
    assert look({"main.py": source}).requirements == ()


@pytest.mark.parametrize(
    "source",
    ["x = '# /// script'\nimport rich", "# /// script\n# dependencies = ['flask']\nimport rich"],
)
def test_what_is_no_block_is_none(source: str) -> None:
    assert names(look({"main.py": source})) == {"rich"}


@pytest.mark.parametrize(
    ("lock", "text", "pins", "wants"),
    [
        ("uv.lock", UV_LOCK, [Pin("rich", "13.9.4", ("sha256:bb", "sha256:aa"))], {"rich>=13", "click"}),
        ("poetry.lock", POETRY_LOCK, [Pin("rich", "13.9.4", ("sha256:cc",))], {"rich>=13", "click"}),
        ("pdm.lock", POETRY_LOCK, [Pin("rich", "13.9.4", ("sha256:cc",))], {"rich>=13", "click"}),
        (
            "pylock.toml",
            PYLOCK,
            [Pin("rich", "13.9.4", ("sha256:dd",), "sys_platform == 'linux'")],
            {"rich==13.9.4; sys_platform == 'linux'"},
        ),
        (
            "Pipfile.lock",
            json.dumps(
                {"default": {"rich": {"version": "==13.9.4", "hashes": ["sha256:ee"]}, "x": {"git": "y"}}}
            ),
            [Pin("rich", "13.9.4", ("sha256:ee",))],
            {"rich==13.9.4"},
        ),
    ],
)
def test_a_lock_outranks_the_manifest_it_was_made_from(
    lock: str, text: str, pins: list[Pin], wants: set[str]
) -> None:
    found = look({"main.py": "import rich", "pyproject.toml": PYPROJECT, lock: text})

    assert found.source == "lock" and found.lock is not None
    assert (found.lock.path, found.lock.text, list(found.lock.pins)) == (lock, text, pins)
    assert texts(found) == wants


def test_a_lock_alone_says_what_the_project_asked_for() -> None:
    assert texts(look({"main.py": "", "uv.lock": UV_LOCK})) == {"rich", "tomli; python_full_version < '3.11'"}


def test_requirements_with_hashes_are_a_lock() -> None:
    found = look({"main.py": "import rich", "requirements.txt": HASHED})

    assert found.source == "lock" and found.lock is not None
    assert found.lock.pins == (
        Pin("rich", "13.9.4", ("sha256:aa", "sha256:bb")),
        Pin("click", "8.1.7", ("sha256:cc",)),
    )
    assert texts(found) == {"rich==13.9.4", "click==8.1.7"}


def test_one_line_without_a_hash_makes_it_a_manifest() -> None:
    assert look({"main.py": "", "requirements.txt": HASHED + "flask"}).source == "manifest"


@pytest.mark.parametrize(
    ("files", "wants"),
    [
        ({"pyproject.toml": PYPROJECT, "requirements.txt": "flask"}, {"rich>=13", "click"}),
        (
            {"pyproject.toml": POETRY},
            {"rich>=13.1,<14", "click[x]>=8.1,<8.2; os_name == 'posix'"},
        ),
        ({"pyproject.toml": "[tool.ruff]\nx = 1", "requirements.txt": "flask"}, {"flask"}),
        (
            {
                "requirements.txt": "# c\nFlask>=3 # web\n-r more/base.txt\n--index-url x\n"
                "-c y\nrich \\\n  ==1\n\n-e .",
                "more/base.txt": "click\n-r ../requirements.txt\n-r /etc/passwd\n-r ../../x",
            },
            {"flask>=3", "rich==1", "click"},
        ),
        (
            {
                "Pipfile": '[packages]\nrich = "*"\nflask = {version = ">=3", extras = ["async"]}\n'
                '[dev-packages]\nx = "*"'
            },
            {"rich", "flask[async]>=3"},
        ),
        (
            {
                "environment.yml": "name: x\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.11\n"
                "  - numpy=1.26\n  - conda-forge::pandas=2.2.1=py311_0\n  - pytorch>=2\n  - libpng\n  - pip\n"
                "  - pip:\n    - rich>13\n"
            },
            {"numpy==1.26.*", "pandas==2.2.1", "torch>=2", "rich>13"},
        ),
        (
            {"setup.cfg": "[options]\ninstall_requires =\n    rich>=13\n    # c\n    click\npackages = x\n"},
            {"rich>=13", "click"},
        ),
    ],
)
def test_a_manifest_outranks_imports(files: Files, wants: set[str]) -> None:
    found = look({"main.py": "", **files})

    assert (found.source, texts(found)) == ("manifest", wants)


def test_imports_add_what_a_manifest_lacks_and_say_so() -> None:
    files = {
        "main.py": "import cv2, yaml, rich, numpy",
        "requirements.txt": "opencv-contrib-python\nrich\nPyYAML",
    }

    found = look(files)

    assert texts(found) == {"opencv-contrib-python", "rich", "pyyaml", "numpy"}
    assert found.why == "requirements.txt declares it; imports and commands add numpy"
    assert texts(look(files, policy=MANIFEST_ONLY)) == texts(found) - {"numpy"}


def test_an_unknown_import_may_be_a_declared_packages() -> None:
    files = {"main.py": "import odd_module", "requirements.txt": "in-house-thing"}

    assert refused(look(files)) == {}
    assert refused(look({**files, "requirements.txt": "numpy"})).keys() == {"odd_module"}


def test_the_nearest_manifest_speaks() -> None:
    files = {
        "requirements.txt": "flask",
        "svc/requirements.txt": "rich",
        "svc/app/main.py": "",
        "other/main.py": "",
    }

    assert names(look(files, "svc/app/main.py")) == {"rich"}
    assert names(look(files, "other/main.py")) == {"flask"}


def test_tests_get_what_is_declared_for_tests() -> None:
    groups = '[dependency-groups]\ndev = ["hypothesis", {include-group = "x"}]\n'
    extras = '[project.optional-dependencies]\ntest = ["respx"]\ndocs = ["sphinx"]\n'
    files = {"pyproject.toml": PYPROJECT + extras + groups, "test_a.py": ""}

    assert names(look(files, Words(("pytest",)))) == {"rich", "click", "hypothesis", "respx", "pytest"}
    assert names(look({"pyproject.toml": POETRY}, Words(("pytest",)))) >= {"pytest-mock", "pytest"}
    assert names(look(files, "test_a.py")) == {"rich", "click"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("reqeusts", "looks like a misspelling of `requests`"),
        ("numpy @ https://x/y.whl", "is not from the package index"),
        ("git+https://x/y.git", "is not from the package index"),
        ("../local", "is not from the package index"),
        ("not a requirement", "is not a requirement"),
    ],
)
def test_a_line_that_cannot_be_followed_is_refused_and_the_others_are_not(line: str, words: str) -> None:
    found = look({"main.py": "", "requirements.txt": f"rich\n{line}\n"})

    assert names(found) == {"rich"}
    assert [words in each for each in refused(found).values()] == [True]


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "[project"},
        {"pyproject.toml": "project = 3"},
        {"pyproject.toml": "[project]\ndependencies = 'rich'"},
        {"pyproject.toml": b"\xff\xfe\x00"},
        {"pyproject.toml": "a" + ".a" * 100_000 + " = 1"},
        {"pyproject.toml": "a = " + "[" * 100_000},
        {"uv.lock": "[[package]]\nname = 3"},
        {"Pipfile.lock": "[" * 100_000},
        {"Pipfile.lock": '{"default": {"x": 3, "y": {"version": 3}}}'},
        {"poetry.lock": "package = [1, [], {}]"},
        {"requirements.txt": ""},
        {"environment.yml": "dependencies: !!python/object:os.system"},
        {"package.json": "[]"},
    ],
)
def test_a_broken_manifest_speaks_for_nobody(files: Files) -> None:
    assert names(look({"main.py": "import rich", **files})) == {"rich"}


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("^1.2.3", ">=1.2.3,<2"),
        ("^0.2.3", ">=0.2.3,<0.3"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("^0", ">=0,<1"),
        ("~1.2.3", ">=1.2.3,<1.3"),
        ("~1", ">=1,<2"),
        ("~=1.2", "~=1.2"),
        (">=1,<2", ">=1,<2"),
        ("1.2.*", "==1.2.*"),
        ("*", ""),
        ("^1 || ^2", ""),
        ("nonsense", ""),
    ],
)
def test_poetrys_versions_are_everybodys(said: str, means: str) -> None:
    assert versions(said) == means
