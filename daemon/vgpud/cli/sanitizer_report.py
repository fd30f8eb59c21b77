"""The findings of the simulator's sanitizer, in the format of compute-sanitizer.

Workers report by lines of JSON (daemon/vgpusim/device/vgx_sim_watch_report.c), which vgpud puts into its log."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vgpusim import demangle

from .worker_log import is_of, said, session_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .host_stack import HostStack

_Finding = tuple[dict[str, Any], int]  # a report, and how many are of the same accesses
TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
_WORD = "sanitizer"
_SUMS = ("launches", "suppressed")  # kinds of reports that only count
_UNWATCHED = {
    True: "No kernel was watched: the program ended, or failed, before it launched one",
    False: "No kernel was watched: the program did not call vgpu's libcuda (it failed before, or loaded another)",
}  # by whether a worker served the program


def read_reports(lines: list[str]) -> tuple[list[dict[str, Any]], list[str], bool]:
    """The reports in vgpud's log, the other lines of the log, and whether a report is truncated."""
    reports, others, is_cut_short = [], [], False
    for line in lines:
        if not is_of(line, _WORD):
            others.append(line)
            continue
        report = _report_in(line)
        if report is not None:
            reports.append(report)
        else:
            is_cut_short = True
    return reports, others, is_cut_short


def _report_in(line: str) -> dict[str, Any] | None:
    text = said(line, _WORD)
    if text is None:
        return None
    try:
        report: dict[str, Any] = json.loads(text)
    except ValueError:
        return None  # cut short
    if session := session_of(line):
        report["session"] = session
    return report


def _where(report: dict[str, Any], place: str = "place") -> str:
    return f"{demangle.text(report['kernel'])} in {report[place]}"


def _triple(text: str | list[int]) -> str:
    return str(text).replace(" ", "").replace("[", "(").replace("]", ")")


@dataclass
class Report:
    """The text of a run.

    Args:
        limit: How many errors are printed; all are counted.
        is_whole: False where the run was cut short, so that reports may be missing.
        stacks: The host call stacks that reports name by number.
    """

    tool: str
    reports: Sequence[dict[str, Any]]
    limit: int
    is_whole: bool = True
    stacks: Mapping[int, HostStack] = field(default_factory=dict)

    @property
    def error_count(self) -> int:
        """The number of findings; races between the same two accesses count as one."""
        return len(self._grouped()) + self._sum("suppressed")

    @property
    def is_void(self) -> bool:
        """Whether nothing is known of the program: no kernel ran where its accesses are watched, and nothing was
        found."""
        return not self._sum("launches") and not self.error_count

    def _sum(self, kind: str) -> int:
        return sum(int(report["count"]) for report in self.reports if report["kind"] == kind)

    def _grouped(self) -> list[_Finding]:
        """Each finding with its number of reports: races between the same two accesses are one finding."""
        found: dict[object, dict[str, Any]] = {}
        counts: Counter[object] = Counter()
        for number, report in enumerate(self.reports):
            if report["kind"] in _SUMS:
                continue
            key: object = number
            if report["kind"] == "race":
                key = tuple(report[name] for name in ("kernel", "place", "before_place", "access", "before", "space"))
            found.setdefault(key, report)
            counts[key] += 1
        return [(report, counts[key]) for key, report in found.items()]

    def _printed(self, grouped: list[_Finding]) -> list[_Finding]:
        """Those that are printed, in order. Where there are more than the limit, kernels take turns, so that one with
        many hides no other."""
        rank: Counter[object] = Counter()
        order = []
        for number, (report, _) in enumerate(grouped):
            kernel = report.get("kernel")
            order.append((rank[kernel], number))
            rank[kernel] += 1
        taken = {number for _, number in sorted(order)[: self.limit]}
        return [finding for number, finding in enumerate(grouped) if number in taken]

    def _unprinted(self, grouped: list[_Finding], printed: list[_Finding]) -> Iterator[str]:
        """How many findings of each kernel are not printed, or were only counted."""
        counts = Counter(report.get("kernel") for report, _ in grouped)
        counts.subtract(report.get("kernel") for report, _ in printed)
        for report in self.reports:
            if report["kind"] == "suppressed":
                counts[report.get("kernel")] += int(report["count"])
        for kernel, count in counts.items():
            if count:
                where = demangle.text(kernel) if kernel else "other places"
                yield f"{count} more error{'s' if count != 1 else ''} in {where}"

    def lines(self) -> Iterator[str]:
        """The lines of the text, without compute-sanitizer's prefix (=========)."""
        yield f"VGPU SANITIZE: {self.tool}"
        grouped = self._grouped()
        printed = self._printed(grouped)
        for report, count in printed:
            yield from getattr(self, f"_{report['kind']}")(report, count)
            yield from self._host_stacks(report)
            yield ""
        yield from self._unprinted(grouped, printed)
        if not self.is_whole:
            yield "The run was cut short: some errors may be missing here"
        leaks = [report["nbytes"] for report, _ in grouped if report["kind"] == "leak"]
        if leaks:
            yield f"LEAK SUMMARY: {sum(leaks)} bytes leaked in {len(leaks)} allocations"
        if self.is_void:
            yield _UNWATCHED[any(report["kind"] == "launches" for report in self.reports)]
            yield f"{'RACECHECK' if self.tool == 'racecheck' else 'ERROR'} SUMMARY: nothing was watched"
            return
        yield f"Launches watched: {self._sum('launches')}"
        if self.tool == "racecheck":
            yield f"RACECHECK SUMMARY: {len(printed)} hazards displayed ({self.error_count} errors, 0 warnings)"
            return
        if len(printed) < self.error_count:
            yield f"ERROR SUMMARY: {self.error_count} errors ({len(printed)} printed)"
        else:
            yield f"ERROR SUMMARY: {self.error_count} error{'s' if self.error_count != 1 else ''}"

    def _host_stacks(self, report: dict[str, Any]) -> Iterator[str]:
        times = {
            "launched_by": "kernel launch time",
            "allocated_by": "allocation time",
            "freed_by": "the time of the free",
        }
        for name, time in times.items():
            if stack := self.stacks.get(report.get(name, 0)):
                yield from stack.lines(time)

    def _by(self, report: dict[str, Any]) -> Iterator[str]:
        yield f"    at {_where(report)}"
        yield f"    by thread {_triple(report['thread'])} in block {_triple(report['block'])}"

    def _invalid(self, report: dict[str, Any], _count: int) -> Iterator[str]:
        yield f"Invalid __{report['space']}__ {report['access']} of size {report['nbytes']} bytes"
        yield from self._by(report)
        yield f"    Address 0x{report['address']:x} is out of bounds"
        yield from self._nearest(report)

    def _nearest(self, report: dict[str, Any]) -> Iterator[str]:
        address = report["address"]
        if "freed" in report:
            yield (
                f"    and is {address - report['freed']} bytes inside a freed allocation at 0x{report['freed']:x} of "
                f"size {report['freed_nbytes']} bytes"
            )
        elif "allocation" in report:
            start, nbytes = report["allocation"], report["allocation_nbytes"]
            if address < start:
                where = f"{start - address} bytes before"
            elif address < start + nbytes:
                where = f"{address - start} bytes inside"
            else:
                where = f"{address - start - nbytes + 1} bytes after"
            yield f"    and is {where} the nearest allocation at 0x{start:x} of size {nbytes} bytes"

    def _misaligned(self, report: dict[str, Any], _count: int) -> Iterator[str]:
        yield f"Invalid __{report['space']}__ {report['access']} of size {report['nbytes']} bytes"
        yield from self._by(report)
        yield f"    Address 0x{report['address']:x} is misaligned"

    def _uninitialised(self, report: dict[str, Any], _count: int) -> Iterator[str]:
        yield f"Uninitialized __{report['space']}__ memory read of size {report['nbytes']} bytes"
        yield from self._by(report)
        yield f"    Address 0x{report['address']:x}"

    def _race(self, report: dict[str, Any], count: int) -> Iterator[str]:
        before = {"read": "Read", "write": "Write", "atomic": "Atomic"}
        yield (f"Error: Race reported between {before[report['before']]} access at {_where(report, 'before_place')}")
        yield (
            f"    and {before[report['access']]} access at {_where(report)} [{count} hazard{'s' if count != 1 else ''}]"
        )
        yield (
            f"    {report['hazard']} of __{report['space']}__ memory at 0x{report['address']:x} by thread "
            f"{_triple(report['thread'])} in block {_triple(report['block'])}"
        )
        if "before_thread" in report:
            yield f"    after thread {_triple(report['before_thread'])} in block {_triple(report['before_block'])}"

    def _barrier(self, report: dict[str, Any], _count: int) -> Iterator[str]:
        what = report["what"]
        yield f"Barrier error detected. {what[:1].upper()}{what[1:]}"
        yield f"    at {report['text']} in {_where(report)}"
        yield f"    by thread {_triple(report['thread'])} in block {_triple(report['block'])}"

    def _leak(self, report: dict[str, Any], _count: int) -> Iterator[str]:
        yield f"Leaked {report['nbytes']} bytes at 0x{report['address']:x}"
