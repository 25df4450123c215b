"""What fields hold: text, names, variables and numbers. What is wrong is told with what would be right."""

import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

MAX_ARGUMENT_BYTES = 131_071
"""Linux refuses a single argument or variable of 128 KiB or more (MAX_ARG_STRLEN)."""
MAX_ENV_BYTES = 262_144
"""All variables of one request together. Linux takes 2 MiB of variables and arguments, and has no more to
give when a sandbox's, a run's and its arguments meet."""
MAX_METADATA_BYTES = 65_536
MAX_STDIN_BYTES = 8 * 2**20
"""It is held in memory until the run has its turn."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ID = re.compile(r"(sb|run|snap)-[a-z2-7]{20}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NO_TEXT = "contains half a surrogate pair, which is no text"

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
FORK_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$"
TENANT_NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
ADDRESS = r"^[0-9a-f]{64}$"
_BEHIND = "letters, digits, `.`, `_` and `-`, the first of them a letter or a digit"
MEANT: dict[str, str] = {
    "string_unicode": _NO_TEXT,
    "dict_type": "this must be a JSON object, such as {}",
    "list_type": "this must be a list, such as []",
    NAME: f"must be 1 to 63 {_BEHIND}",
    FORK_NAME: f"must be 1 to 60 {_BEHIND}",
    TENANT_NAME: f"must be 1 to 63 small {_BEHIND}",
    ADDRESS: "must be the address of a tree: 64 digits from 0 to f",
}
"""What would be right, by the kind of mistake or by the pattern: pydantic's own words are for programmers."""


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which no program argument can hold")
    if len(_unicode(text).encode()) > MAX_ARGUMENT_BYTES:
        raise ValueError(
            f"is {len(text.encode())} bytes; one argument holds {MAX_ARGUMENT_BYTES} at most: "
            "upload it as a file and run that by `filename`"
        )
    return text


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(_NO_TEXT) from None
    return text


def unbuilt(instead: str, *only: object) -> BeforeValidator:
    """Refuse by name what the contract has and this release has not, but for the values in `only`."""

    def refuse(given: object) -> object:
        if given is None or any(given is each or given == each for each in only):
            return given
        raise ValueError(f"this is not built yet: {instead}")

    return BeforeValidator(refuse)


def _stdin(text: str) -> str:
    # Counted in characters first: what is too long need not be encoded to be known as such.
    size = len(text) if len(text) > MAX_STDIN_BYTES else len(_unicode(text).encode())
    if size > MAX_STDIN_BYTES:
        raise ValueError(
            f"is more than {MAX_STDIN_BYTES} bytes, which is all that is taken here: upload it as a file "
            "and read that"
        )
    return text


def _printable(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("contains a control character; use printable text")
    return text


def _no_id(name: str) -> str:
    if _ID.fullmatch(name):
        raise ValueError("is spelt like an id, and would be taken for one; choose another")
    return name


def _environment(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not _ENV_NAME.fullmatch(name):
            raise ValueError(
                f"{name[:80]!r} is not a variable name: letters, digits and _, not first a digit"
            )
        _argument(f"{name}={value}")
    return _within(variables, MAX_ENV_BYTES, "variables", "put what is long into a file")


def _metadata(labels: dict[str, str]) -> dict[str, str]:
    return _within(labels, MAX_METADATA_BYTES, "labels", "keep what is long elsewhere, and here where it is")


def _within(pairs: dict[str, str], most: int, what: str, instead: str) -> dict[str, str]:
    size = sum(len(_unicode(name).encode()) + len(_unicode(value).encode()) for name, value in pairs.items())
    if size > most:
        raise ValueError(f"these {what} are {size} bytes in all, and {most} may be: {instead}")
    return pairs


Text = Annotated[str, AfterValidator(_unicode)]
Argument = Annotated[str, AfterValidator(_argument)]
Stdin = Annotated[str, AfterValidator(_stdin)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_printable)]
Name = Annotated[str, StringConstraints(pattern=NAME), AfterValidator(_no_id)]
ForkName = Annotated[str, StringConstraints(pattern=FORK_NAME), AfterValidator(_no_id)]
Environment = Annotated[dict[str, str], Field(max_length=512), AfterValidator(_environment)]
Metadata = Annotated[
    dict[Label, Annotated[str, StringConstraints(max_length=4096)]],
    Field(max_length=64),
    AfterValidator(_metadata),
]
TenantName = Annotated[str, StringConstraints(pattern=TENANT_NAME)]
Address = Annotated[str, StringConstraints(pattern=ADDRESS)]
"""Of a tree: 64 hexadecimal digits."""
Quota = Annotated[int, Field(ge=0, le=2**53)]
ScopeName = Literal["read", "run", "admin"]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86_400, allow_inf_nan=False)]


class Request(BaseModel):
    """What a caller sends. Frozen, and so hashable: pydantic copies any other default for each request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class Answer(BaseModel):
    """What Petri sends back. Fields may be added; clients ignore those they do not know."""

    model_config = ConfigDict(use_attribute_docstrings=True)
