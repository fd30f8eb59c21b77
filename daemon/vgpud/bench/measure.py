"""Windows of work that alternate between sides, and their results."""

from __future__ import annotations

import contextlib
import json
import os
import select
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vgpu_guest.libraries import LIBRARIES

from .side import BenchError, Host, Side

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CALLS = LIBRARIES / "bench/calls"
WORK = Path(__file__).with_name("work.py")
SETS = ("calls", "torch", "cupy", "jax", "triton")
_START_TIMEOUT_S = 300.0  # over a socket, torch first uploads the images that it loads
_WINDOW_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 60.0
_FIRST_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Row:
    """One piece of work. `times_ms`: by side, milliseconds per iteration in each round; rounds are paired."""

    name: str
    times_ms: dict[str, list[float]] = field(default_factory=dict)

    def median_ms(self, side: str) -> float | None:
        """None for a side that did not do this work."""
        times = self.times_ms.get(side)
        return statistics.median(times) if times else None

    def ratios(self, side: str, base: str = "native") -> list[float]:
        """Time of `side` over time of `base` in each round, ascending; empty if one of the two has no times."""
        pairs = zip(self.times_ms.get(base, []), self.times_ms.get(side, []), strict=False)
        return sorted(time_ms / base_ms for base_ms, time_ms in pairs)


@dataclass(slots=True)
class Report:
    """A run: its rows, and what was left out and why."""

    sides: list[str]
    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile of ascending values."""
    return values[len(values) // 4], statistics.median(values), values[3 * len(values) // 4]


class _Server:
    """A process that runs windows of work on one side, on request."""

    def __init__(self, side: Side, name: str, python: str) -> None:
        command = [str(CALLS)] if name == "calls" else [python, str(WORK), name]
        self.side = side
        self.names: list[str] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=side.of_program()
        )
        assert self._process.stderr is not None
        self._error = b""

    def start(self) -> None:
        """Wait for the names of the work that the process offers. Raises BenchError with its error output."""
        line = self._line(_START_TIMEOUT_S)
        try:
            self.names = [str(name) for name in json.loads(line)]
        except ValueError as error:
            raise BenchError(f"{self.side.name}: said {line[:80]!r} instead of names") from error

    def window(self, name: str) -> float:
        """Run one window; milliseconds per iteration. Raises BenchError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(name.encode() + b"\n")
            self._process.stdin.flush()
            return float(self._line(_WINDOW_TIMEOUT_S))
        except (OSError, ValueError) as error:
            raise BenchError(f"{self.side.name}: {name}: {error}") from error

    def end(self) -> None:
        """Wait until the process has checked its work and exited. Raises BenchError if a check failed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{self.side.name}: does not end") from error
        if code:
            raise BenchError(f"{self.side.name}: {self._last_words()}")

    def kill(self) -> None:
        """End the process, whatever its state, and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _line(self, timeout_s: float) -> bytes:
        """A line of the process's standard output. Its standard error is read meanwhile, so that the process never
        blocks on a full pipe.
        """
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        out, err, text = self._process.stdout.fileno(), self._process.stderr.fileno(), b""
        reading = [out, err]
        deadline = time.monotonic() + timeout_s
        while not text.endswith(b"\n"):
            ready, _, _ = select.select(reading, [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise BenchError(f"{self.side.name}: no answer within {timeout_s:.0f} s")
            if err in ready:
                data = os.read(err, 65536)
                self._error = (self._error + data)[-4096:]
                if not data:
                    reading.remove(err)
            if out in ready:
                data = os.read(out, 65536)
                if not data:
                    raise BenchError(f"{self.side.name}: {self._last_words()}")
                text += data
        return text

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        rest = self._process.stderr.read() if self._process.poll() is not None else b""
        lines = (self._error + (rest or b"")).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"ended with {self._process.wait(_END_TIMEOUT_S)}"


def compare(
    name: str, sides: Sequence[Side], rounds: int, *, python: str = sys.executable, say: Callable[[str], None]
) -> Report:
    """Run one set of work on all sides.

    Args:
        name: One of SETS.
        sides: In the order of the table; the first is the base of ratios if it is native.
        rounds: Windows of each piece of work on each side.
        python: The interpreter that has the framework.
        say: Called with each line of progress.
    Returns:
        The rows of the set; a side that could not run the set is in `skipped`, with the reason.
    """
    report = Report([side.name for side in sides])
    servers: list[_Server] = []
    try:
        for side in sides:
            say(f"{name}: starting on {side.name}")
            server = _Server(side, name, python)
            servers.append(server)
            try:
                server.start()
            except BenchError as error:
                report.skipped.append(f"{name}: {error}")
                server.kill()
                servers.remove(server)
        offered = list(dict.fromkeys(work for server in servers for work in server.names))
        report.rows = [Row(work) for work in offered]
        for turn in range(rounds):
            say(f"{name}: round {turn + 1} of {rounds}")
            for row in report.rows:
                first = turn % len(servers)  # sides take turns at being first
                for server in [*servers[first:], *servers[:first]]:
                    if row.name in server.names:
                        time_ms = server.window(row.name)
                        row.times_ms.setdefault(server.side.name, []).append(time_ms)
        for server in servers:
            server.end()
    except BenchError as error:
        report.skipped.append(f"{name}: {error}")
        report.rows = [row for row in report.rows if row.times_ms]
    finally:
        for server in servers:
            server.kill()
    return report


def first_kernel(sides: Sequence[tuple[Side, Host | None]], rounds: int, *, say: Callable[[str], None]) -> Report:
    """Measure new processes: the time until libcuda is loaded and cuInit is done, and until the first kernel is done.

    Each process starts when every vgpud that this benchmark started has a worker ready again.
    """
    report = Report([side.name for side, _ in sides])
    init, first = Row("dlopen until cuInit is done"), Row("dlopen until the first kernel's result")
    ours = [host for _, host in sides if host is not None]
    for turn in range(rounds):
        say(f"first kernel: round {turn + 1} of {rounds}")
        for side, _ in sides:
            if any(side.name in line for line in report.skipped):
                continue
            try:
                for other in ours:  # no vgpud starts a worker while a client of another one is timed
                    other.wait_ready()
                done = subprocess.run(
                    [str(CALLS), "--first"],
                    env=side.of_program(),
                    capture_output=True,
                    text=True,
                    timeout=_FIRST_TIMEOUT_S,
                    check=True,
                )
            except (OSError, subprocess.SubprocessError, BenchError) as error:
                words = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
                report.skipped.append(f"first kernel: {side.name}: {words[-1] if words else error}")
                continue
            for row, value in zip((init, first), done.stdout.split(), strict=True):
                row.times_ms.setdefault(side.name, []).append(float(value) * 1e3)
    report.rows = [row for row in (init, first) if row.times_ms]
    return report
