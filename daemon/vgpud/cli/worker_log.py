"""Workers' lines in vgpud's log for the commands that watch a program's kernels: `vgpu sanitize`, `vgpu sim profile`.

A worker's line is a JSON string in a field of vgpud's line (vgpud.log), and begins with a word for its kind."""

from __future__ import annotations

import json
import re

_FIELD = 'line="'


def is_of(line: str, word: str) -> bool:
    """Whether a line of the log holds a worker's line that begins with "word: "."""
    return f"{_FIELD}{word}: " in line


def said(line: str, word: str) -> str | None:
    """A worker's text after "word: " in a line of the log; None if the line has no such text, or is truncated."""
    start = line.find(f"{_FIELD}{word}: ")
    if start < 0:
        return None
    try:
        text, _ = json.JSONDecoder().raw_decode(line, start + len(_FIELD) - 1)
    except ValueError:
        return None
    return str(text)[len(word) + 2 :]


def session_of(line: str) -> int | None:
    """The session that a line of the log is about."""
    found = re.search(r" session=(\d+) ", line)
    return int(found[1]) if found else None
