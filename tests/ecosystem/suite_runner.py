"""Runs suites (suites.py) on simulated devices, in many processes at once.

Each process runs a few tests of one file under `vgpu run`, with a device of its own. A test that ends its process, or
takes too long, does not stop the others: the rest of its file goes on in a new process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from random import Random

from tests.conftest import VGPU, merged
from tests.ecosystem.suites import Suite

GRACE_S = 15  # for `vgpu run --timeout`, which ends the program and all that it started
SHORTEST_S = 10  # no process begins with less time
TAIL = 2500
LONG_S = 20
SAMPLE = 8  # processes of a suite that is sampled: before the others end; more if there is time
WELL = ("passed", "skipped", "xfailed")


@dataclass(frozen=True)
class Result:
    suite: str
    test: str
    outcome: str  # of pytest, or "timeout", "crashed", "not run"
    seconds: float = 0.0
    message: str = ""
    text: str = ""

    @property
    def is_well(self) -> bool:
        return self.outcome in WELL

    @property
    def row(self) -> str:
        message = self.message.encode("unicode_escape").decode()
        return "\t".join((self.suite, self.outcome, f"{self.seconds:.1f}", self.test, message))


@dataclass(frozen=True)
class Unit:
    """What one process runs."""

    suite: Suite
    tests: tuple[str, ...]


def units(suite: Suite, tests: Sequence[str]) -> Iterator[Unit]:
    """At most `suite.at_once` tests of one file for each process."""
    for _, group in groupby(tests, key=lambda test: test.partition("::")[0]):
        members = tuple(group)
        for first in range(0, len(members), suite.at_once):
            yield Unit(suite, members[first : first + suite.at_once])


def ordered(all_units: Sequence[Unit], known_s: Mapping[str, float]) -> list[Unit]:
    """Suites advance at the same rate, so that lack of time leaves a part of each; what is known to be long is first.

    Args:
        known_s: seconds by test.
    """
    total = Counter(unit.suite.name for unit in all_units)
    seen: Counter[str] = Counter()
    places = []
    for unit in all_units:
        whole = min(SAMPLE, total[unit.suite.name]) if unit.suite.is_sampled else total[unit.suite.name]
        places.append(seen[unit.suite.name] / whole)
        seen[unit.suite.name] += 1
    longest = [max(known_s.get(test, 0.0) for test in unit.tests) for unit in all_units]
    keys = [(-seconds if seconds > LONG_S else 0.0, place) for seconds, place in zip(longest, places, strict=True)]
    return [unit for _, unit in sorted(zip(keys, all_units, strict=True), key=lambda pair: pair[0])]


class Runner:
    """Runs units until a time; then `results` has every test."""

    def __init__(
        self, jobs: int, end: float, native: bool = False, report: Callable[[Result], None] = lambda _: None
    ) -> None:
        """`report` is called with each result as it comes, by one thread at a time.

        Args:
            end: a time of the monotonic clock.
            native: without `vgpu run`, on the machine's own device.
        """
        self.results: list[Result] = []
        self._report = report
        self._jobs, self._end, self._native = jobs, end, native
        self._units: deque[Unit] = deque()
        self._lock = threading.Lock()

    def collect(self, suites: Sequence[Suite], few: int = 0, done: Container[tuple[str, str]] = ()) -> list[Unit]:
        """All units of the suites, or `few` of each, from all over the suite.

        Args:
            done: suite and name of each test to be left out.
        """

        def of(suite: Suite) -> list[Unit]:
            tests = list(suite.programs)
            if suite.tests:
                _, output = self._execute(suite, ["--collect-only", *suite.tests], Path(os.devnull), suite.limit_s)
                tests = [line for line in output.splitlines() if "::" in line and not line.startswith("ERROR")]
                if not tests:
                    result = Result(suite.name, "collection", "crashed", text=output[-TAIL:])
                    self.results.append(result)
                    return []
            found = list(units(suite, [test for test in tests if (suite.name, test) not in done]))
            if suite.is_sampled:
                Random(suite.name).shuffle(found)
            return found[:: max(1, len(found) // few)][:few] if few else found

        with ThreadPoolExecutor(len(suites)) as pool:
            return [unit for found in pool.map(of, suites) for unit in found]

    def run(self, all_units: Sequence[Unit], known_s: Mapping[str, float] | None = None) -> None:
        self._units.extend(ordered(all_units, known_s or {}))
        with tempfile.TemporaryDirectory(prefix="vgpu-suites-") as folder, ThreadPoolExecutor(self._jobs) as pool:
            for done in [pool.submit(self._work, Path(folder, str(number))) for number in range(self._jobs)]:
                done.result()

    def _work(self, report: Path) -> None:
        while True:
            with self._lock:
                if not self._units:
                    return
                unit = self._units.popleft()
            limit_s = min(float(unit.suite.limit_s), self._end - time.monotonic())
            if limit_s < SHORTEST_S:
                results = [Result(unit.suite.name, test, "not run") for test in unit.tests]
            else:
                run = self._run_program if unit.suite.programs else self._run_pytest
                results = run(unit, report, limit_s)
            reached = {result.test for result in results}
            rest = tuple(test for test in unit.tests if test not in reached)
            with self._lock:
                for result in results:
                    self._report(result)
                self.results += results
                if rest:
                    self._units.appendleft(Unit(unit.suite, rest))

    def _execute(
        self, suite: Suite, arguments: Sequence[str], report: Path, limit_s: float, wanted: str | None = None
    ) -> tuple[int, str]:
        """Run a process of a suite to its end; returns the exit code and the output.

        Args:
            wanted: of the tests in the files that `arguments` names, a line each.
        """
        under = [*VGPU, "run", "--gpu", suite.gpu, "--timeout", str(limit_s), *suite.options, "--"]
        env = merged(None)
        own = dict(suite.env) | ({} if wanted is None else {"VGPU_SUITE_TESTS": wanted})
        for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
            own[name] = os.pathsep.join(filter(None, (own.get(name), env.get(name))))
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                [*([] if self._native or not suite.gpu else under), *suite.command, *arguments],
                cwd=suite.folder,
                env=env | own | {"VGPU_SUITE_REPORT": str(report)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = process.wait(limit_s + (0 if self._native else GRACE_S))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            output.seek(0)
            return code, output.read()

    def _run_program(self, unit: Unit, report: Path, limit_s: float) -> list[Result]:
        suite, test = unit.suite, unit.tests[0]
        begin = time.monotonic()
        code, output = self._execute(suite, suite.programs[test], report, limit_s)
        seconds = round(time.monotonic() - begin, 1)
        last = (output.strip().splitlines() or [""])[-1]
        if suite.expected in output and (suite.expected or code == 0):
            return [Result(suite.name, test, "passed", seconds, last)]
        outcome = self._ended_early(unit, seconds, limit_s) if seconds > limit_s - 1 else "failed"
        return [Result(suite.name, test, outcome, seconds, f"exit {code}: {last}", output[-TAIL:])]

    def _run_pytest(self, unit: Unit, report: Path, limit_s: float) -> list[Result]:
        report.unlink(missing_ok=True)
        begin = time.monotonic()
        files = dict.fromkeys(test.partition("::")[0] for test in unit.tests)
        code, output = self._execute(unit.suite, [*files], report, limit_s, "\n".join(unit.tests))
        seconds = round(time.monotonic() - begin, 1)
        lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
        results = {line["test"]: Result(unit.suite.name, **line) for line in lines if "outcome" in line}
        missing = [test for test in unit.tests if test not in results]
        if missing:  # the process ended early: blame the test that was running
            last = lines[-1]["test"] if lines and lines[-1]["test"] in missing else missing[0]
            late = seconds > limit_s - 1
            outcome = self._ended_early(unit, seconds, limit_s) if late or "Timeout" in output else "crashed"
            results[last] = Result(unit.suite.name, last, outcome, seconds, f"exit {code}", output[-TAIL:])
        return list(results.values())

    @staticmethod
    def _ended_early(unit: Unit, seconds: float, limit_s: float) -> str:
        """A process that the end of the run stopped, not its own limit, says nothing of its test."""
        return "not run" if seconds > limit_s - 1 and limit_s < unit.suite.limit_s else "timeout"
