"""How something in a cell asks the server for packages: one line of JSON there, several back."""

import json
import socket
from collections.abc import Callable
from typing import Any

_DOOR = "/environment/door"
_NOBODY = "this run cannot ask for packages: the server does not answer"
_ENOUGH = "the server hung up: it takes no more questions from this run"


def ask(question: dict[str, Any], say: Callable[[str], object]) -> dict[str, Any]:
    """Return the server's answer to `question`; `say` takes each line of how it goes meanwhile."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        try:
            door.connect(_DOOR)
            door.sendall(json.dumps(question).encode() + b"\n")
            with door.makefile("rb") as lines:
                for line in lines:
                    answer: dict[str, Any] = json.loads(line)
                    if "say" not in answer:
                        return answer
                    say(answer["say"])
        except OSError:
            return {"done": False, "said": _NOBODY}
    return {"done": False, "said": _ENOUGH}
