"""The lines of a log: text for people, or JSON for programs. Each has an event, whose name stays the same when its text
is worded anew, and the ids that it is about.

Nothing here knows what a secret is: whoever logs must not name one.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

#: The event of a line that other libraries log, or that has none for another reason.
OTHER = "other"


def event(name: str, **ids: str | int | None) -> dict[str, Any]:
    """Return the ``extra`` of a line: the name of its event, and what it is about, such as ``space``, ``participant``
    and ``connection``. Those that are None are left out."""
    return {"mewstream_event": name, "mewstream_ids": {key: value for key, value in ids.items() if value is not None}}


class TextFormatter(logging.Formatter):
    """Time, level, logger and text. Names come from strangers: none of them begins a new line, or moves the cursor."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = "".join(each if each.isprintable() else "?" for each in record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One object a line: ``ts``, ``level``, ``logger``, ``event``, ``message``, the ids, and perhaps ``traceback``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "mewstream_event", OTHER),
            "message": record.getMessage(),
            **getattr(record, "mewstream_ids", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


FORMATS: dict[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


def log_to_stderr(level: str, format: str) -> None:
    """Write everything that is logged from a level on to standard error, in one of the ``FORMATS``."""
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[format]())
    logging.basicConfig(level=level.upper(), handlers=[handler])
