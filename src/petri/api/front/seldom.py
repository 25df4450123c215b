"""What happens to many clients, said in the log without a line for each: they could fill the disk."""

import logging
import time

_log = logging.getLogger("petri.api")
_PAUSE_S = 60


class Seldom:
    """One warning that is said once a minute at most, with how often it was true since."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence
        self._count = 0
        self._said_at = -float(_PAUSE_S)

    def say(self, detail: str = "") -> None:
        """It is true once more. `detail` is about this time only."""
        self._count += 1
        now = time.monotonic()
        if now - self._said_at >= _PAUSE_S:
            _log.warning("%s (%d times since this was last said)%s", self._sentence, self._count, detail)
            self._said_at, self._count = now, 0
