"""`python -m protocol.gen --halves`: which halves of travelling functions are written by hand, where, and how long."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.gen.load import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.gen.load import Api

PREFIXES = {"client": "vgs_", "worker": "vgx_"}
SOURCES = ("shim/cuda", "daemon/executor")
BODY = re.compile(r"^[A-Za-z][^\n;{}()=]*?\b(vg[sx]_\w+)\([^;{}]*?\) \{\n.*?^\}", re.M | re.S)


@dataclass(frozen=True)
class Half:
    module: str  # of the specification
    function: str
    side: str  # client or worker
    file: str  # empty: made by a macro
    lines: int


def bodies() -> dict[str, tuple[str, int]]:
    """Where each C function of the two sides is defined, and its number of lines."""
    found = {}
    for folder in SOURCES:
        for path in sorted((ROOT.parent / folder).glob("*.c")):
            for body in BODY.finditer(path.read_text()):
                found[body[1]] = (path.name, body[0].count("\n") + 1)
    return found


def halves(api: Api) -> Iterator[Half]:
    defined = bodies()
    for f in api.travelling():
        for side in f.hand_written:
            file, lines = defined.get(PREFIXES[side] + f.name, ("", 0))
            yield Half(f.module, f.name, side, file, lines)


def report(api: Api) -> str:
    found = list(halves(api))
    rows = [f"{h.module:12} {h.function:40} {h.side:7} {h.lines:4} {h.file}\n" for h in found]
    functions = len({h.function for h in found})
    every = len(api.travelling())
    return "".join(rows) + (
        f"{functions} of {every} travelling functions ({100 * functions / every:.0f} %) have a half by hand: "
        f"{len(found)} halves, {sum(h.lines for h in found)} lines\n"
    )
