"""What `vgpu sim profile` shows: launches as workers log them, added up by kernel, and as a trace.

Workers write these lines in daemon/vgpusim/device/vgx_sim_count.c."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vgpusim import demangle
from vgpusim.codegen import counters

from .worker_log import is_of, said, session_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WORD = "profile"
_UNFINISHED = "unfinished "  # begins the line of a kernel that still ran at the session's end
_FACTS = 12  # numbers in a line before the counters
_NAME_LENGTH = 60  # in the table


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel. Times: CLOCK_MONOTONIC. `nbytes`: by memory space and kind of access (counters.py)."""

    kernel: str
    session: int
    result: int  # a CUresult
    begin_ns: int
    end_ns: int
    device: int
    thread: int  # thread of the worker that ran the launch
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_nbytes: int
    warp_instructions: int
    thread_instructions: int
    branches: int
    divergent_branches: int
    nbytes: dict[str, int]


@dataclass(slots=True)
class Run:
    """A run, as vgpud's log describes it.

    Args:
        launches: In the order in which they ended.
        unfinished: The kernel of each launch that still ran at the program's end.
        is_cut_short: The line of a launch is truncated: the worker or vgpud was killed while writing it.
        others: The log's other lines.
    """

    launches: list[Launch] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    is_cut_short: bool = False
    others: list[str] = field(default_factory=list)


def read_run(lines: Iterable[str]) -> Run:
    """Parse the lines of vgpud's log."""
    run = Run()
    for line in lines:
        if not is_of(line, _WORD):
            run.others.append(line)
            continue
        text = said(line, _WORD)
        try:
            if text is None:
                run.is_cut_short = True
            elif text.startswith(_UNFINISHED):
                run.unfinished.append(demangle.text(text.removeprefix(_UNFINISHED)))
            else:
                run.launches.append(_launch_in(line, text))
        except ValueError:
            run.is_cut_short = True
    return run


def _launch_in(line: str, text: str) -> Launch:
    """The launch that a line describes. Raises ValueError if the line is truncated."""
    *words, name = text.split(" ", _FACTS + counters.COUNT)
    numbers = [int(word) for word in words]
    if len(numbers) < _FACTS + counters.COUNT:
        raise ValueError(text)
    result, begin_ns, end_ns, device, thread, *shape, shared_nbytes = numbers[:_FACTS]
    counts = numbers[_FACTS:]
    warps, threads, branches, divergent = counts[: counters.BYTES]
    places = [f"{space} {kind}" for space in counters.SPACES for kind in counters.KINDS]
    return Launch(
        kernel=demangle.text(name),
        session=session_of(line) or 0,
        result=result,
        begin_ns=begin_ns,
        end_ns=end_ns,
        device=device,
        thread=thread,
        grid=(shape[0], shape[1], shape[2]),
        block=(shape[3], shape[4], shape[5]),
        shared_nbytes=shared_nbytes,
        warp_instructions=warps,
        thread_instructions=threads,
        branches=branches,
        divergent_branches=divergent,
        nbytes=dict(zip(places, counts[counters.BYTES :], strict=True)),
    )


@dataclass(slots=True)
class KernelTotal:
    """Sums over all launches of a kernel; those that did not finish are only counted."""

    kernel: str
    launches: int = 0
    failed: int = 0
    unfinished: int = 0
    time_ns: int = 0
    warp_instructions: int = 0
    thread_instructions: int = 0
    branches: int = 0
    divergent_branches: int = 0
    nbytes: dict[str, int] = field(default_factory=dict)

    def add(self, launch: Launch) -> None:
        self.launches += 1
        self.failed += launch.result != 0
        self.time_ns += launch.end_ns - launch.begin_ns
        for name in ("warp_instructions", "thread_instructions", "branches", "divergent_branches"):
            setattr(self, name, getattr(self, name) + getattr(launch, name))
        for place, nbytes in launch.nbytes.items():
            self.nbytes[place] = self.nbytes.get(place, 0) + nbytes

    @property
    def active_lanes(self) -> float:
        """Mean share of active lanes in an instruction: 1 for whole warps without divergence."""
        return self.thread_instructions / (32 * self.warp_instructions) if self.warp_instructions else 0.0

    def as_json(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in self.__slots__ if name != "nbytes"}
        return facts | {"active_lanes": self.active_lanes, "bytes": self.nbytes}


def totals(run: Run) -> list[KernelTotal]:
    """The totals of each kernel, longest time first."""
    by_kernel: dict[str, KernelTotal] = {}
    for launch in run.launches:
        by_kernel.setdefault(launch.kernel, KernelTotal(launch.kernel)).add(launch)
    for kernel in run.unfinished:
        by_kernel.setdefault(kernel, KernelTotal(kernel)).unfinished += 1
    return sorted(by_kernel.values(), key=lambda total: -total.time_ns)


HEADER = ("TIME", "SHARE", "LAUNCHES", "MEAN", "INSTRUCTIONS", "LANES", "DIVERGENT", "GLOBAL READ", "WRITTEN",
          "SHARED", "OTHER", "KERNEL")  # fmt: skip


def rows(kernels: Sequence[KernelTotal]) -> list[list[str]]:
    """The table's lines, under HEADER."""
    whole = sum(kernel.time_ns for kernel in kernels) or 1
    return [
        [
            _time(kernel.time_ns), f"{kernel.time_ns / whole:.1%}", str(kernel.launches),
            _time(kernel.time_ns // kernel.launches) if kernel.launches else "-", _count(kernel.thread_instructions),
            f"{kernel.active_lanes:.1%}",
            f"{kernel.divergent_branches / kernel.branches:.1%}" if kernel.branches else "-",
            *(_bytes(kernel, *places) for places in (
                ("global read", "global atomic"), ("global write", "global atomic"),
                ("shared read", "shared write", "shared atomic"),
                ("local read", "local write", "local atomic", "other read", "other write", "other atomic"),
            )),
            _short(kernel.kernel) + (f" ({kernel.failed} failed)" if kernel.failed else "")
            + (f" ({kernel.unfinished} still running at the end)" if kernel.unfinished else ""),
        ]
        for kernel in kernels
    ]  # fmt: skip


def trace(launches: Sequence[Launch]) -> dict[str, Any]:
    """Chrome's trace format, which Perfetto opens: a process for each device of a session, a track for each worker
    thread that ran launches, so that no two launches overlap on one track."""
    first = min((launch.begin_ns for launch in launches), default=0)
    events: list[dict[str, Any]] = []
    for process in dict.fromkeys((launch.session, launch.device) for launch in launches):
        name = f"session {process[0]}, simulated device {process[1]}"
        events.append({"ph": "M", "name": "process_name", "pid": _pid(*process), "args": {"name": name}})
    for launch in launches:
        arguments = {
            "grid": list(launch.grid), "block": list(launch.block), "shared memory": launch.shared_nbytes,
            "result": launch.result, "thread instructions": launch.thread_instructions,
            "warp instructions": launch.warp_instructions, "branches": launch.branches,
            "divergent branches": launch.divergent_branches,
            "bytes": {place: nbytes for place, nbytes in launch.nbytes.items() if nbytes},
        }  # fmt: skip
        events.append({
            "ph": "X", "cat": "kernel", "name": launch.kernel, "pid": _pid(launch.session, launch.device),
            "tid": launch.thread, "ts": (launch.begin_ns - first) / 1000,
            "dur": (launch.end_ns - launch.begin_ns) / 1000, "args": arguments,
        })  # fmt: skip
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _pid(session: int, device: int) -> int:
    return session * 64 + device


def _bytes(kernel: KernelTotal, *places: str) -> str:
    return _count(sum(kernel.nbytes.get(place, 0) for place in places))


def _time(ns: int) -> str:
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.4g} {unit}"
    return f"{ns} ns"


def _count(number: int) -> str:
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def _short(name: str) -> str:
    return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 3] + "..."
