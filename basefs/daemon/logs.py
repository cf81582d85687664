"""What a daemon logs, and where: to a terminal or a file, to systemd's journal, or as JSON for other collectors.

Names of files, keys and nodes, the words of peers and the output of handlers are in it, whatever bytes they hold: here,
and nowhere else, control characters become escapes, so that a message is one line, and a line of a traceback cannot
pass as another message, since it is indented.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from basefs.path import escaped

#: What `--log-format` takes; without it the journal is recognised, and everything else gets text.
FORMATS = ("text", "journal", "json")
#: Bytes of the log of a daemon in the background, twice that on disk: the one before is kept as NAME.log.1.
MAX_BYTES = 4 * 1024 * 1024

#: syslog's priorities (RFC 5424, section 6.2.1) of Python's levels.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))


class TextFormatter(logging.Formatter):
    """A line for each message, in front of it what the format says, and indented lines of a traceback after it."""

    def __init__(self, format: str = "%(asctime)s %(levelname)s %(name)s: %(message)s") -> None:
        super().__init__(format)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line."""
        return escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """The traceback."""
        return "\n".join("  " + escaped(line) for line in super().formatException(ei).splitlines())


class JournalFormatter(TextFormatter):
    """Lines that begin with their priority (sd-daemon(3)); the journal knows the time by itself."""

    def __init__(self) -> None:
        super().__init__("%(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """All lines of a traceback have the priority of the first."""
        priority = next(number for level, number in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UNIX seconds), `level`, `logger`, `message`, `filesystem`, and `exception`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        """As the class says."""
        line: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "filesystem": self._name,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(name: str, *, debug: bool, style: str | None, file: Path | None) -> None:
    """Log for the daemon of the filesystem `name`.

    `style` is one of FORMATS, or `None` for what suits stderr; `file` is where to log instead of stderr, which does not
    grow without end.  Raises OSError.
    """
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        handler = RotatingFileHandler(file, maxBytes=MAX_BYTES, backupCount=1, errors="backslashreplace")
    handler.setFormatter(_formatter(name, style or ("journal" if file is None and _is_journal() else "text")))
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler])
    # asyncio's own debug lines tell about its selector, never about BaseFS.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("fuse").setLevel(logging.WARNING)


def _formatter(name: str, style: str) -> logging.Formatter:
    if style == "journal":
        return JournalFormatter()
    if style == "json":
        return JsonFormatter(name)
    return TextFormatter()


def _is_journal() -> bool:
    """Whether stderr is what systemd connected to the journal (systemd.exec(5), $JOURNAL_STREAM)."""
    with contextlib.suppress(OSError):
        facts = os.fstat(sys.stderr.fileno())
        return os.environ.get("JOURNAL_STREAM") == f"{facts.st_dev}:{facts.st_ino}"
    return False
