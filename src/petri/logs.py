"""What the server says on stderr: one line for each record, whatever a caller put into a name."""

import logging
import re
import sys

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class OneLine(logging.Formatter):
    """Escapes everything that could end a line or drive a terminal: names in requests are not ours."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record, its traceback included, as one harmless line."""
        return _CONTROL.sub(_escaped, super().format(record))


def set_up_logs(level: str) -> None:
    """Send everything of `level` and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("alembic", "uvicorn.error", "httpx"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
