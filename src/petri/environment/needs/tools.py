"""Commands that distributions bring along, as they are typed: `pytest`, `uvicorn main:app`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Tool:
    """A command, the distribution it is part of, and what of the project it runs."""

    distribution: str
    runs: Literal["tests", "a file", "a module", "nothing"] = "nothing"


TOOLS: Mapping[str, Tool] = {
    "pytest": Tool("pytest", "tests"),
    "py.test": Tool("pytest", "tests"),
    "nose2": Tool("nose2", "tests"),
    "streamlit": Tool("streamlit", "a file"),
    "fastapi": Tool("fastapi[standard]", "a file"),
    "chainlit": Tool("chainlit", "a file"),
    "ipython": Tool("ipython", "a file"),
    "papermill": Tool("papermill"),
    "uvicorn": Tool("uvicorn", "a module"),
    "gunicorn": Tool("gunicorn", "a module"),
    "hypercorn": Tool("hypercorn", "a module"),
    "daphne": Tool("daphne", "a module"),
    "flask": Tool("flask"),
    "celery": Tool("celery"),
    "scrapy": Tool("scrapy"),
    "alembic": Tool("alembic"),
    "black": Tool("black"),
    "ruff": Tool("ruff"),
    "isort": Tool("isort"),
    "mypy": Tool("mypy"),
    "pyright": Tool("pyright"),
    "flake8": Tool("flake8"),
    "pylint": Tool("pylint"),
    "bandit": Tool("bandit"),
    "coverage": Tool("coverage"),
    "tox": Tool("tox"),
    "nox": Tool("nox"),
    "jupyter": Tool("jupyter-core"),
    "mkdocs": Tool("mkdocs"),
    "sphinx-build": Tool("sphinx"),
    "cython": Tool("cython"),
    "yt-dlp": Tool("yt-dlp"),
    "csvkit": Tool("csvkit"),
}
