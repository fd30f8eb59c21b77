"""Known lines of programs' logs, and the causes behind them. A log is untrusted: read bounded, matched line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG_NBYTES = 64 << 20
_LINE_NBYTES = 4096
_LINES_CAP = 1_000_000


@dataclass(frozen=True)
class Pattern:
    """A log line that shows a cause: `kind` is a verdict, `cause` describes the cause."""

    kind: str
    regex: re.Pattern[str]
    cause: str


@dataclass(frozen=True)
class Match:
    """A known line of a log."""

    kind: str
    cause: str
    number: int
    line: str


def _load() -> tuple[Pattern, ...]:
    rows = Path(__file__).with_name("log_lines.tsv").read_text(encoding="utf-8").splitlines()
    fields = (row.split("\t") for row in rows if row and not row.startswith("#"))
    return tuple(Pattern(kind, re.compile(regex), cause) for kind, regex, cause in fields)


PATTERNS = _load()


def matches(file: IO[bytes]) -> Iterator[Match]:
    """Known lines, each cause once, in the order of the log."""
    seen: set[str] = set()
    left_nbytes, number = LOG_NBYTES, 0
    while left_nbytes > 0 and number < _LINES_CAP:
        raw = file.readline(_LINE_NBYTES)
        if not raw:
            return
        left_nbytes -= len(raw)
        number += 1
        line = raw.decode(errors="replace").rstrip()
        found = next((pattern for pattern in PATTERNS if pattern.regex.search(line)), None)
        if found is not None and found.cause not in seen:
            seen.add(found.cause)
            yield Match(found.kind, found.cause, number, line)
