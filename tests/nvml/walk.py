"""Call nvidia-ml-py's functions one after another with the arguments of a recorded run on a real H100.

Lines of the record read `name [arguments] => outcome`; an outcome is `error CODE text`, a JSON value, or a number.
Lines without an answer of NVML (the binding refused the argument, or crashed on it) are left out.
"""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path
from typing import Any

import pynvml

_LINE = re.compile(r"(nvml\w+) \[(.*?)\] => (.*)")


def recorded(path: Path) -> list[tuple[str, str, str]]:
    """(name, arguments, outcome) of each line that is an answer."""
    rows = []
    for line in path.read_text().splitlines():
        match = _LINE.fullmatch(line)
        if match and not match[3].startswith(("CRASH", "py ")):
            rows.append((match[1], match[2], match[3]))
    return rows


def plain(value: Any) -> Any:
    """Convert a result to JSON types: a struct becomes an object by field name, a byte string becomes text."""
    if isinstance(value, ctypes.Structure | ctypes.Union):
        return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, ctypes._SimpleCData):
        return repr(value)
    if isinstance(value, list | tuple | ctypes.Array):
        return [plain(item) for item in value]
    return value


def outcome(name: str, arguments: str, device: Any) -> str:
    """The outcome of the same call on `device`."""
    given = [device if text == "'dev'" else int(text) for text in arguments.split(", ") if text]
    try:
        return json.dumps(plain(getattr(pynvml, name)(*given)))
    except pynvml.NVMLError as error:
        return f"error {error.value}"
