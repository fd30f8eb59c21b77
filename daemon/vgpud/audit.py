"""The audit log: calls that a share's policy denies, and what administrators do.

Each record is a line of vgpud's log with `audit=True`, which `log.level` may hide, and a JSON document in the file that
`log.audit` names. The file is appended to, opened again at each reload (after logrotate has renamed it), and written by
one write() for each record.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from .log import KeyedRateLimit, RateLimit, get_logger

if TYPE_CHECKING:
    from pathlib import Path

_DENIALS_S, _DENIALS_BURST = 1.0, 60.0  # records about denied calls, for each tenant
_FAULTS_S = 0.1  # lines that say the file cannot be written


class Audit:
    """One for a vgpud. All methods run on the event loop."""

    def __init__(self) -> None:
        self._log = get_logger()
        self._path: Path | None = None
        self._fd: int | None = None
        self._denials = KeyedRateLimit(rate=_DENIALS_S, burst=_DENIALS_BURST)
        self._faults = RateLimit(_FAULTS_S, burst=1.0)

    def open(self, path: Path | None) -> None:
        """Append to this file from now on, or to none; closes the one before. Raises OSError: nothing has changed."""
        # O_NONBLOCK: a FIFO that nobody reads is an error at once.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = None if path is None else os.open(path, flags, 0o600)
        self.close()
        self._path, self._fd = path, fd

    def close(self) -> None:
        """Close the file; records go to the log alone."""
        if self._fd is not None:
            os.close(self._fd)
        self._path = self._fd = None

    def info(self, event: str, **fields: object) -> None:
        """Record what extends access, or changes nothing."""
        self._log.info(event, **fields, audit=True)
        self._write(event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Record what takes something from a tenant, or was denied."""
        self._log.warning(event, **fields, audit=True)
        self._write(event, fields)

    def denial(self, event: str, tenant: str, **fields: object) -> None:
        """Record denied calls of a tenant, which decides how many there are: at a bounded rate."""
        limit = self._denials.of(tenant)
        if limit.allows():
            self.warning(event, tenant=tenant, **fields, held_back=limit.take_suppressed() or None)

    def _write(self, event: str, fields: dict[str, object]) -> None:
        if self._fd is None:
            return
        found = {key: value for key, value in fields.items() if value is not None}
        line = json.dumps({"time": round(time.time(), 3), "event": event} | found, default=str).encode() + b"\n"
        try:
            written = os.write(self._fd, line)
            why = "" if written == len(line) else "the disk is full"
        except OSError as error:
            why = str(error.strerror)
        if why and self._faults.allows():
            self._log.error("the audit log cannot be written", path=str(self._path), error=why)
