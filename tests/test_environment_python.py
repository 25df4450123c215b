"""What Python programs want by their imports, from the entry outward."""

import json

import pytest

from petri.environment import Ask, Because, Code, File, Words, wanted
from petri.environment.needs.python.imports import imports, quick_roots
from tests.projects import MANIFEST_ONLY, OFF, Files, MemoryReader, look, names, optional, refused


@pytest.mark.parametrize(
    "source",
    [
        "import requests",
        "import os, sys, requests as r",
        "from requests import get",
        "from requests.adapters import *",
        "import os; import requests",
        "if os: import requests",
        "import os, \\\n    requests",
        "from requests import (  # (a comment\n    get,\n    post,\n)",
        "def f():\n    import requests",
        "class A:\n\tdef f(self):\n\t\tfrom requests import get",
        "async def f():\n    async with x: import requests",
        "for x in y:\n    pass\nelse:\n    import requests",
        "match x:\n    case 1:\n        import requests",
        "mod = __import__('requests')",
        "import importlib\nm = importlib.import_module('requests')",
        "from importlib import import_module\nimport_module( \n 'requests.adapters')",
        "x = '''\n''' ; import requests",
        "try:\n    f()\nfinally:\n    import requests",
        "try:\n    f()\nexcept ValueError:\n    pass\nelse:\n    import requests",
        "\ufeffimport requests",
        "import os\r\nimport requests\r\n",
        "x = 1\x0c\nimport requests",
    ],
)
def test_an_import_is_found_however_it_is_written(source: str) -> None:
    assert names(look({"main.py": source})) == {"requests"}


@pytest.mark.parametrize(
    "source",
    [
        "# import requests",
        "'''\nimport requests\n'''",
        '"""\nimport requests\n""" + "import requests"',
        "x = 'a\\\nimport requests'",
        "s = r'\\'; t = '''\nimport requests'''",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import requests",
        "import typing as t\nif t.TYPE_CHECKING:\n    from requests import get",
        "if False:\n    import requests",
        "import sys\nif sys.platform == 'win32':\n    import requests",
        "import sys\nif sys.version_info < (3, 8):\n    import requests",
        "import sys\nif sys.version_info[0] == 2:\n    import requests",
        "import os\nif os.name == 'nt' and x:\n    import requests",
        "import platform\nif platform.system() == 'Darwin': import requests",
        "import sys\nif sys.platform.startswith('linux'):\n    pass\nelse:\n    import requests",
        "important = 'requests'\nimporter(requests)",
        "import_module(name)",
        "import_module('req' + name)",
        "from . import requests",
        "plugins = ['requests']; load('requests')",
        "from importlib.metadata import entry_points\nentry_points(group='requests')",
        "INSTALLED_APPS = ['requests', 'requests.apps.Config']",
        "import logging.config as c\nc.dictConfig({'handlers': {'x': {'class': 'requests.Handler'}}})",
        "import pkgutil\npkgutil.resolve_name('requests:get')",
        "pytest_plugins = ('requests',)",
        "import_string('requests.get'); my_import_module('requests'); import_module_from('requests')",
        "import_module(f'requests'); import_module(name='requests'); __import__(\"requests\" if x else y)",
    ],
)
def test_what_is_no_import_here_is_not_found(source: str) -> None:
    found = look({"main.py": source})

    assert (names(found), optional(found), refused(found)) == (set(), set(), {})


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import requests\nexcept ImportError:\n    requests = None",
        "try: import requests\nexcept ModuleNotFoundError: pass",
        "try:\n    import requests\nexcept (ValueError, ImportError) as e:\n    print(e)",
        "try:\n    from requests import get\nexcept Exception:\n    get = None",
        "try:\n    import requests\nexcept:\n    pass",
        "from contextlib import suppress\nwith suppress(ImportError):\n    import requests",
        "import contextlib\nwith contextlib.suppress(ImportError, OSError): import requests",
        "from importlib.util import find_spec\nif find_spec('requests'):\n    import requests",
        "requests = importorskip('requests')",
        "try:\n    f()\nexcept ImportError:\n    import requests",
        "try:\n    import requests\nexcept ImportError:\n    def get():\n        raise RuntimeError",
        "try:\n    import urllib2\nexcept ImportError:\n    import urllib\nexcept E:\n    import requests",
    ],
)
def test_what_a_program_can_do_without_is_optional(source: str) -> None:
    found = look({"main.py": source})

    assert (names(found), optional(found)) == (set(), {"requests"})


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import requests\nexcept ImportError:\n    sys.exit('install requests')",
        "try:\n    import requests\nexcept ImportError: raise",
        "try:\n    import requests\nexcept ImportError as e:\n    raise SystemExit(1) from e",
        "try:\n    import requests\nexcept ImportError:\n    install('requests')\n    import requests",
        "try:\n    import requests\nexcept ValueError:\n    pass",
        "try:\n    import requests\nexcept ImportError:\n    import simplejson",
    ],
)
def test_a_guard_that_leads_nowhere_does_not_make_it_optional(source: str) -> None:
    assert names(look({"main.py": source})) == {"requests"}


def test_needed_in_one_place_is_needed() -> None:
    found = look({"main.py": "try:\n    import yaml\nexcept ImportError:\n    pass\nimport yaml"})

    assert (names(found), optional(found)) == ({"pyyaml"}, set())


def test_the_version_decides_which_branch_runs() -> None:
    source = (
        "import sys\nif sys.version_info >= (3, 11):\n    import tomllib\nelse:\n    import tomli as tomllib"
    )

    assert names(look({"main.py": source}, python=(3, 11))) == set()
    assert names(look({"main.py": source}, python=(3, 10))) == {"tomli"}


def test_the_standard_library_is_never_installed() -> None:
    source = "import distutils.core, imp, asyncore, cgi, urllib2, ConfigParser, _thread, zoneinfo, __future__"

    found = look({"main.py": source}, python=(3, 13))

    assert (names(found), refused(found)) == (set(), {})


def test_only_what_the_entry_leads_to_counts() -> None:
    files = {
        "main.py": "import a.b\nfrom c import d, e",
        "a/__init__.py": "import numpy",
        "a/b.py": "from .. import other\nfrom . import near",
        "a/near.py": "import httpx",
        "c/d.py": "import rich",
        "c/e/__init__.py": "from .deep import x",
        "c/e/deep.py": "import click",
        "c/unused.py": "import torch",
        "other_main.py": "import django",
    }

    assert names(look(files)) == {"numpy", "httpx", "rich", "click"}


def test_a_project_that_imports_itself_in_a_circle_is_walked_once() -> None:
    files = {"main.py": "import a, b", "a.py": "import b\nimport numpy", "b.py": "import a, main, a.c, b"}
    reader = MemoryReader(files, has_digests=False)

    found = wanted(reader, Ask(File("main.py"), "python"))

    assert names(found) == {"numpy"}
    assert [reader.reads.count(path) for path in ("a.py", "b.py")] == [1, 1]


@pytest.mark.parametrize(
    "files",
    [
        {"main.py": "import requests", "requests.py": ""},
        {"main.py": "import requests", "requests/__init__.py": ""},
        {"main.py": "import requests.x", "requests/x.py": ""},
        {"main.py": "import requests", "src/requests/__init__.py": ""},
        {"main.py": "import requests", "lib/requests.py": ""},
        {"app/main.py": "import requests", "app/requests.py": ""},
        {"app/main.py": "import requests", "requests.py": ""},
        {"main.py": "import requests", "requests.cpython-311-x86_64-linux-gnu.so": ""},
    ],
)
def test_a_module_of_the_projects_own_is_not_a_package(files: Files) -> None:
    entry = next(path for path in files if path.endswith("main.py"))

    assert names(look(files, entry)) == set()


def test_a_folder_without_code_shadows_nothing() -> None:
    files = {"main.py": "import docker, redis", "docker/Dockerfile": "FROM x", "redis/conf/redis.conf": ""}

    assert names(look(files)) == {"docker", "redis"}


def test_a_module_that_is_named_like_what_it_wraps_does_not_hide_it_from_its_package() -> None:
    files = {"main.py": "import app.redis", "app/__init__.py": "", "app/redis.py": "import redis"}

    assert names(look(files)) == {"redis"}


def test_a_folder_of_a_shared_namespace_is_only_the_part_that_is_there() -> None:
    files = {"main.py": "import google.mine, google.cloud.storage", "google/mine.py": "import rich"}

    assert names(look(files)) == {"google-cloud-storage", "rich"}


def test_a_module_that_changes_of_the_path_make_findable_is_no_package() -> None:
    files = {
        "main.py": "import sys\nsys.path.append('vendored/deep')\nimport xxtea, mystuff",
        "vendored/deep/xxtea.py": "",
        "vendored/deep/mystuff/__init__.py": "",
    }
    found = look(files)

    assert (names(found), refused(found)) == (set(), {})


def test_a_standard_module_that_the_project_replaces_is_followed() -> None:
    assert names(look({"main.py": "import random", "random.py": "import numpy"})) == {"numpy"}


def test_an_import_in_a_file_that_is_optional_is_optional() -> None:
    files = {"main.py": "try:\n    import extra\nexcept ImportError:\n    pass", "extra.py": "import numpy"}

    found = look(files)

    assert (names(found), optional(found)) == (set(), {"numpy"})


def test_a_syntax_error_is_pythons_to_tell() -> None:
    found = look({"main.py": "import numpy\ndef (:\n  import yaml\nimport requests ="})

    assert (names(found), refused(found)) == ({"numpy", "pyyaml"}, {})


def test_every_requirement_says_who_needs_it_and_where() -> None:
    files = {"main.py": "import os\n\nimport cv2\nimport a", "a.py": "from cv2 import imread, imwrite"}

    (found,) = look(files).requirements

    assert found.text == "opencv-python-headless"
    assert found.because == (
        Because("main.py", 3, "import cv2"),
        Because("a.py", 1, "from cv2 import imread, imwrite"),
    )


def test_what_a_library_imports_late_is_known_by_what_is_used_of_it() -> None:
    source = "import pandas as pd\npd.read_excel('x').to_parquet ('y')\nmine.read_html()"
    alone = "class A:\n    def read_excel(self): ...\nA().read_excel()"

    assert names(look({"main.py": source})) == {"pandas", "openpyxl", "pyarrow", "lxml"}
    assert names(look({"main.py": alone})) == set()


def test_notebooks_are_their_code() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["import torch"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install x\n", "import numpy"]},
        {"cell_type": "code", "source": "import rich"},
    ]

    assert names(look({"n.ipynb": json.dumps({"cells": cells})}, "n.ipynb")) == {"numpy", "rich"}
    assert names(look({"n.ipynb": "{"}, "n.ipynb")) == set()


def test_code_without_a_file_finds_the_modules_of_the_workspace() -> None:
    assert names(look({"mine.py": "import rich"}, Code("import mine, numpy"))) == {"rich", "numpy"}


@pytest.mark.parametrize(
    ("argv", "wants"),
    [
        (("python3", "main.py", "import", "django"), {"numpy"}),
        (("/usr/bin/python3.11", "-u", "-X", "dev", "/workspace/main.py"), {"numpy"}),
        (("python", "-m", "app"), {"rich", "click"}),
        (("python", "-um", "app.tool"), {"rich", "httpx"}),
        (("python", "-c", "import yaml"), {"pyyaml"}),
        (("python", "-m", "http.server"), set()),
        (("python", "-m", "black", "."), {"black"}),
        (("python", "-m", "unittest"), {"hypothesis", "rich"}),
        (("pytest", "-q"), {"pytest", "hypothesis", "rich"}),
        (("python", "-m", "pytest", "tests/test_a.py::test_x"), {"pytest", "hypothesis", "rich"}),
        (("uvicorn", "--reload", "served:app"), {"uvicorn", "fastapi"}),
        (("streamlit", "run", "main.py"), {"streamlit", "numpy"}),
        (("uv", "run", "main.py"), {"numpy"}),
        (("poetry", "run", "python", "main.py"), {"numpy"}),
        (("./main.py",), {"numpy"}),
        (("/bin/sh", "-c", "cd app && python ../main.py | tee x; python -m tool", "sh"), {"numpy", "httpx"}),
        (("/bin/sh", "-c", 'exec "$@"', "sh", "python", "main.py"), {"numpy"}),
        (("bash", "run.sh"), {"numpy", "pyyaml"}),
        (("env", "A=1", "timeout", "5", "nice", "python", "main.py"), {"numpy"}),
        (("python", "/etc/passwd"), set()),
        (("python", "../../main.py"), set()),
        (("python",), set()),
    ],
)
def test_commands_are_read_for_what_they_run(argv: tuple[str, ...], wants: set[str]) -> None:
    files = {
        "main.py": "import numpy",
        "app/__init__.py": "import rich",
        "app/__main__.py": "import click",
        "app/tool.py": "import httpx",
        "tests/test_a.py": "import hypothesis, app",
        "tests/data.py": "import torch",
        "served.py": "import fastapi",
        "run.sh": "set -e\nA=1 python3 main.py\npython -c 'import yaml'\n# python -c 'import rich'\n",
    }

    assert names(look(files, Words(argv))) == wants


def test_modules_are_not_installed_when_the_policy_says_so() -> None:
    assert names(look({"main.py": "import numpy"}, policy=MANIFEST_ONLY)) == set()
    assert look({"main.py": "import numpy"}, policy=OFF).why == "installing is off"


def test_the_quick_look_finds_too_much_rather_than_too_little() -> None:
    source = (
        b"x=1; import a.b as q, c\nif x: import d\nfrom e.f import (g,\n h)\nimport i, \\\n  k\n'\nimport z"
    )

    assert quick_roots(source) == frozenset("acdeikz")
    assert quick_roots(b"from . import x") is None
    assert quick_roots(b"__import__('x')") is None


def test_a_statement_that_goes_on_is_one_statement() -> None:
    found = look({"main.py": "from requests \\\n    import get\nfrom rich \\\nimport print"})

    assert (names(found), refused(found)) == ({"requests", "rich"}, {})


def test_lines_are_those_of_the_file() -> None:
    source = b'"""\n\n"""\nimport a\n\nif x:\n    # c\n    import b\n'

    assert [(each.module, each.line) for each in imports(source, (3, 11))] == [("a", 4), ("b", 8)]


def test_what_a_later_python_has_is_not_this_ones() -> None:
    files = {"main.py": "import tomllib"}

    assert refused(look(files, python=(3, 11))) == {}
    assert refused(look(files, python=(3, 10))).keys() == {"tomllib"}
