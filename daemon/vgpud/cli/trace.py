"""`vgpu run --trace`: the library's log of each call, unchanged or summed up by function."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .table import format_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_CALL = re.compile(r"vgpu\[\d+\]: (\w+)\(.*\) = (-?\d+) \[(\w+), ([\d.]+) us\]$")


@dataclass
class Sum:
    """The sums over one function's calls. `waited` counts those that waited for their answer."""

    calls: int = 0
    errors: int = 0
    waited: int = 0
    total_us: float = 0.0
    longest_us: float = 0.0


@contextmanager
def traced(kind: str, environment: dict[str, str]) -> Iterator[Callable[[], None]]:
    """Set the program's variables for a kind of trace; the yielded function prints the result after the run.

    Args:
        kind: "calls", "all" (with look-ups of functions), "summary", "json" (a summary, too), or "" for none.
    """
    if not kind:
        yield lambda: None
        return
    environment["VGPU_LOG"] = "trace" if kind == "calls" else "trace-all"
    if kind not in ("summary", "json"):
        yield lambda: None
        return
    form = format_summary if kind == "summary" else format_json
    with tempfile.TemporaryDirectory(prefix="vgpu-trace-") as folder:
        file = Path(folder) / "trace"  # all processes of the program append to it; it is deleted after the run
        environment["VGPU_LOG_FILE"] = str(file)
        yield lambda: click.echo(form(read(file)), err=True)


def read(file: Path) -> dict[str, Sum]:
    """The sums of a log, by function."""
    try:
        with file.open(errors="replace") as lines:
            return add_up(lines)
    except FileNotFoundError:
        return {}


def add_up(lines: Iterable[str]) -> dict[str, Sum]:
    """The sums over a log's lines; lines that are not calls are skipped."""
    found: dict[str, Sum] = {}
    for line in lines:
        call = _CALL.match(line.rstrip("\n"))
        if call is None:
            continue
        one = found.setdefault(call[1], Sum())
        duration_us = float(call[4])
        one.calls += 1
        one.errors += call[2] != "0"
        one.waited += call[3] == "waited"
        one.total_us += duration_us
        one.longest_us = max(one.longest_us, duration_us)
    return found


def format_json(sums: dict[str, Sum]) -> str:
    """JSON with the sums of each function, longest total time first."""
    ordered = sorted(sums.items(), key=lambda item: (-item[1].total_us, item[0]))
    return json.dumps({name: asdict(one) for name, one in ordered}, indent=2)


def format_summary(sums: dict[str, Sum]) -> str:
    """A table like that of strace -c, longest total time first."""
    whole_us = sum(one.total_us for one in sums.values()) or 1.0
    ordered = sorted(sums.items(), key=lambda item: (-item[1].total_us, item[0]))
    rows = [
        [
            f"{100 * one.total_us / whole_us:.1f}",
            f"{one.total_us / 1e3:.3f}",
            f"{one.total_us / one.calls:.1f}",
            f"{one.longest_us:.1f}",
            one.calls,
            one.waited,
            one.errors or "",
            name,
        ]
        for name, one in ordered
    ]
    total = Sum(*(sum(getattr(one, key) for one in sums.values()) for key in ("calls", "errors", "waited")))
    rows.append(["100.0", f"{whole_us / 1e3:.3f}", "", "", total.calls, total.waited, total.errors or "", "total"])
    return format_table(["% TIME", "MS", "US/CALL", "LONGEST US", "CALLS", "WAITED", "ERRORS", "FUNCTION"], rows)
