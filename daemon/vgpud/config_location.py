"""Find the line of a TOML key. tomllib checks the syntax but forgets positions; an error message needs them."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _complete(statement: str) -> bool:
    """Whether `key = value` is complete: a multi-line array or string is complete only with its last line."""
    try:
        tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return False
    return True


def locate(text: str, path: Sequence[Any]) -> int | None:
    """The 1-based line of the key at `path` (names and array indices), or of its nearest enclosing key or table.

    `text` is valid TOML. Returns None when nothing on the path is written (a default).
    """
    best_line, best_depth = None, 0
    table: list[Any] = []
    counts: dict[str, int] = {}
    statement = ""
    for number, line in enumerate(text.splitlines(), 1):
        if statement:  # inside a value that began on an earlier line
            statement += "\n" + line
            if _complete(statement):
                statement = ""
            continue
        here: list[Any] | None = None
        if header := _HEADER.match(line):
            table = list(_parts(header[2]))
            if header[1] == "[[":
                counts[header[2]] = counts.get(header[2], -1) + 1
                table.append(counts[header[2]])
            here = table
        elif key := _KEY.match(line):
            here = table + _parts(key[1])
            if not _complete(line):
                statement = line
        if here is None:
            continue
        shared = len(here) if list(path[: len(here)]) == here else 0
        if shared > best_depth:
            best_line, best_depth = number, shared
    return best_line


def syntax_error_line(text: str, error: tomllib.TOMLDecodeError) -> int:
    """The 1-based line of a syntax error: tomllib tells it only in its message, and not for the end of the text."""
    found = re.search(r"at line (\d+)", str(error))
    return int(found[1]) if found else max(1, len(text.splitlines()))
