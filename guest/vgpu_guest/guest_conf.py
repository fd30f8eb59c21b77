"""guest.conf as vgpu's libraries read it (shim/connect/vgs_endpoint.c), and the lines that they ignore.

Its lines are `key = value`; `#` begins a comment line. A problem names the line and the key that was probably meant,
never the value, which may be a token.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import asdict, dataclass, field
from typing import Any

KEYS = ("endpoint", "token", "shared_memory")
NBYTES_CAP = 8191  # the library reads at most this much
_LINE = re.compile(r"\s*([a-z_]{1,31})\s*=\s*(\S{1,255})")
_MEANT = re.compile(r"(?P<before>\s*(?P<key>[A-Za-z_-]+)\s*(?P<separator>[=:]?)\s*)\S")


@dataclass(frozen=True)
class Problem:
    """A line that the library ignores. `meant` is the key that was probably intended, "" if none is similar."""

    line: int
    what: str
    meant: str = ""
    expression: str = ""  # sed expression that corrects the line


@dataclass
class GuestConf:
    """`values` by their keys, and the invalid lines."""

    values: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON holds them, to be sent over a pipe."""
        return asdict(self)


def parse(text: str) -> GuestConf:
    """Parse the whole text of a file."""
    found = GuestConf()
    for number, line in enumerate(text.split("\n"), 1):
        pair = _LINE.match(line)
        if pair and pair[1] in KEYS:
            found.values[pair[1]] = pair[2]
        elif line.strip() and not line.lstrip().startswith("#"):
            found.problems.append(_problem(number, line))
    return found


def _problem(number: int, line: str) -> Problem:
    words = _MEANT.match(line)
    if words is None:
        return Problem(number, "is no `key = value`")
    key, separator = words["key"], words["separator"]
    near = difflib.get_close_matches(key.lower().replace("-", "_"), KEYS, 1, 0.6)
    meant = near[0] if near else ""
    if key in KEYS:
        what = f"has {separator!r} after {key}, not '='" if separator else f"has no '=' after {key}"
    else:
        what = f"has the unknown key {key!r}"
    expression = rf"{number}s/^[[:space:]]*[A-Za-z_-]*[[:space:]]*[=:]*[[:space:]]*/{meant} = /" if meant else ""
    return Problem(number, what, meant, expression)
