"""What the server says on stderr: one line for each record, whatever a caller put into a name."""

import logging
import sys


class OneLine(logging.Formatter):
    """Escapes what could end a line, drive a terminal or turn text around: names in requests are not ours."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record, its traceback included, as one harmless line."""
        return harmless(super().format(record))


def set_up_logs(level: str) -> None:
    """Send everything of `level` and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("alembic", "uvicorn.error", "httpx"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))


def harmless(text: str) -> str:
    """Return `text` with every character escaped that is not seen as it is, and every half of one."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
