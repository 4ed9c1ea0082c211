"""The server's log on standard error: lines for people, or one JSON object a line. Texts of requests are not in it."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = getattr(record, "facts", {})
        more = "".join(f" {name}={value}" for name, value in facts.items() if value is not None)
        line = f"{record.levelname.lower()}: {record.getMessage()}{more}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(*, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else _Text())
    for name, level in (("lucebox", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
