"""Logging: one line an event. Under systemd a line starts with its priority and has no time: the journal adds it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
_VALUE_CAP = 1024


Fields = MutableMapping[str, Any]
Logger = structlog.stdlib.BoundLogger


def escape(value: object) -> str:
    """A value as one word or quoted string, in printable ASCII, so no text can forge a line or control a terminal."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > _VALUE_CAP:
        text = text[:_VALUE_CAP] + "..."
    plain = text.isascii() and text.isprintable() and text and not set(text) & set(' "\\=')
    return text if plain else json.dumps(text).replace("\x7f", "\\u007f")


class _Renderer:
    def __init__(self, style: str) -> None:
        self._style = style

    def __call__(self, _logger: object, method: str, fields: Fields) -> str:
        level = str(fields.pop("level", method))
        event = str(fields.pop("event", ""))
        if "exception" in fields:
            fields["exception"] = str(fields["exception"])[-_VALUE_CAP:]  # the end of the text says most
        if self._style == "json":
            values = {
                key: value if isinstance(value, int | float | bool | None) else str(value)
                for key, value in fields.items()
            }
            return json.dumps({"time": round(time.time(), 3), "level": level, "event": event} | values)
        line = " ".join([event, *(f"{key}={escape(value)}" for key, value in fields.items() if value is not None)])
        if self._style == "journal":
            return f"<{_PRIORITY.get(level, 6)}>{line}"
        return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {level:7} {line}"


def stderr_is_journal() -> bool:
    """Whether systemd connected our stderr to the journal: JOURNAL_STREAM names its device and inode."""
    try:
        status = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def configure_log(level: str, style: str, *, file: TextIO | None = None) -> None:
    """Set the process's logging up. `style`: auto, human, journal or json."""
    if style == "auto":
        style = "journal" if stderr_is_journal() else "human"
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, _Renderer(style)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Stream(file or sys.stderr))),
        cache_logger_on_first_use=False,
    )


def get_logger(**fields: object) -> Logger:
    """A logger whose lines carry `fields`."""
    return cast("Logger", structlog.get_logger(**fields))


class _Stream:
    """A log that cannot be written is lost, not a reason to stop serving."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._file.flush()


class RateLimit:
    """A token bucket: max(burst, rate) events at once, then `rate` a second. Counts the events that it
    suppresses.
    """

    __slots__ = ("_burst", "_level", "_rate", "_then", "suppressed")

    def __init__(self, rate: float, burst: float = 20.0) -> None:
        self._rate, self._burst = rate, max(burst, rate)
        self._level, self._then = self._burst, time.monotonic()
        self.suppressed = 0

    def allows(self) -> bool:
        """Whether another event may be logged now."""
        now = time.monotonic()
        self._level = min(self._burst, self._level + (now - self._then) * self._rate)
        self._then = now
        if self._level < 1:
            self.suppressed += 1
            return False
        self._level -= 1
        return True

    def take_suppressed(self) -> int:
        """How many events were suppressed since the last call."""
        count, self.suppressed = self.suppressed, 0
        return count


class KeyedRateLimit:
    """A RateLimit for each of a bounded number of keys: the least recently used key is dropped."""

    def __init__(self, rate: float, burst: float, capacity: int = 1024) -> None:
        self._rate, self._burst, self._capacity = rate, burst, capacity
        self._limits: OrderedDict[str, RateLimit] = OrderedDict()

    def of(self, key: str) -> RateLimit:
        """The key's limit."""
        limit = self._limits.pop(key, None) or RateLimit(self._rate, self._burst)
        self._limits[key] = limit
        if len(self._limits) > self._capacity:
            self._limits.popitem(last=False)
        return limit
