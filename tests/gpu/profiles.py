"""Profiles of the same work natively and remoted: which kernels and copies, in which order, how long.

`python tests/gpu/profiles.py --out DIR` on a machine with a card and PyTorch, and CuPy, JAX and TensorFlow if it has
them; it takes less than five minutes. Each work (tests/gpu/profiled.py) runs in a process of its own under its
framework's profiler: natively, under `vgpu run`, natively again. Tables go to standard output and, as they come, to
DIR/profiles.md, beside the Chrome traces. The exit code is 1 if one of these does not hold:

- names, counts and order of kernels and copies are equal;
- each name's median time is within 5 % of the native one, or within two ticks of the device's clock, the difference of
  two native runs, or what the medians of so few repetitions are uncertain by: a kernel of 1.3 us takes between 1.18 and
  1.60 us natively, from one repetition to the next. Copies of pageable memory are not judged: remoted, they go through
  registered memory;
- the Chrome trace has no kind of error that the native trace lacks;
- of 100,000 launches none is lost, and while no profiler is active a launch takes as long as without vgpu's libcupti
  (within 5 %). The time of a launch under a profiler is reported beside the native time, but not judged.

`--simulator GPU` compares two runs on a simulated device, without judging times: a way to try the script.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

PROGRAM = Path(__file__).with_name("profiled.py")
VGPU = "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu())"
NEEDS = {"train": "torch", "graph": "torch", "cupy": "cupy", "jax": "jax", "many": "torch", "tensorflow": "tensorflow",
         "kernels": "torch"}  # fmt: skip
DEFAULT = ("train", "many", "graph", "cupy", "jax", "tensorflow")
SETTINGS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": "--xla_gpu_autotune_level=0",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "2"}  # fmt: skip
TOLERANCE, TICKS_US = 0.05, 0.064  # a device's clock has ticks of 32 ns
HOST_CLOCKS_US = 2.0  # tolerance, as XLA aligns CUPTI's clock with its own by one reading of each
PROCESS_LIMIT_S = 90.0
Row = Sequence[Any]  # a name, and microseconds


@dataclass(slots=True)
class Report:
    """The findings, which are printed and appended to a file as they arrive."""

    file: Path
    faults: list[str] = field(default_factory=list)

    def write(self, *lines: str) -> None:
        with self.file.open("a") as file:
            print(*lines, sep="\n", file=file)
        print(*lines, sep="\n", flush=True)

    def fault(self, text: str) -> None:
        self.faults.append(text.splitlines()[0])
        self.write(f"- FAULT: {text}")


def places(rows: Sequence[Row], repeats: int) -> dict[str, list[list[float]]]:
    """For each name and each of its occurrences within a repetition, the times in all repetitions."""
    times_of: dict[tuple[str, int], list[float]] = defaultdict(list)
    counts: Counter[str] = Counter(name for name, _ in rows)
    seen: Counter[str] = Counter()
    for name, duration in rows:
        size = counts[name] // repeats if counts[name] % repeats == 0 else counts[name]
        times_of[name, seen[name] % size].append(duration)
        seen[name] += 1
    found: dict[str, list[list[float]]] = defaultdict(list)
    for (name, _), durations in times_of.items():
        found[name].append(durations)
    return found


def medians(rows: Sequence[Row], repeats: int) -> dict[str, list[float]]:
    """For each name and each of its occurrences within a repetition, the median time over the repetitions."""
    return {name: [statistics.median(each) for each in found] for name, found in places(rows, repeats).items()}


def uncertainty(found: Sequence[Sequence[float]]) -> float:
    """By how much a name's medians may be off: the mean half width of their notches, 1.57 IQR / sqrt(n) (McGill, Tukey,
    Larsen 1978), which hold the true median in 95 of 100 cases."""
    widths = []
    for durations in found:
        if len(durations) > 1:
            first, _, third = statistics.quantiles(durations, n=4, method="inclusive")
            widths.append(1.57 * (third - first) / len(durations) ** 0.5)
    return statistics.mean(widths) if widths else 0.0


def compare(work: str, native: Sequence[Row], remoted: Sequence[Row], again: Sequence[Row] | None) -> list[str]:
    """The differences in names, counts and order, as lines that begin with the work's name."""
    faults = []
    here, there = Counter(row[0] for row in native), Counter(row[0] for row in remoted)
    if not native:
        faults.append(f"{work}: no record")
    if here != there:
        names = sorted(here.keys() | there.keys())
        faults += [
            f"{work}: {name[:80]}: {here[name]} records natively, {there[name]} remoted"
            for name in names
            if here[name] != there[name]
        ][:20]
    elif [row[0] for row in native] != [row[0] for row in remoted]:
        steady = again is None or [row[0] for row in native] == [row[0] for row in again]
        faults += [f"{work}: the order differs"] if steady else []
    return faults


@dataclass(frozen=True, slots=True)
class Time:
    """The mean times of a kernel's or copy's name; `spread_us` is the difference between the two native runs, or the
    uncertainty of the medians of both sides, if that is more."""

    name: str
    count: int
    native_us: float
    remoted_us: float
    spread_us: float

    @property
    def is_judged(self) -> bool:
        return "ageable" not in self.name

    @property
    def is_close(self) -> bool:
        allowed = max(TOLERANCE * self.native_us, TICKS_US, self.spread_us)
        return not self.is_judged or abs(self.remoted_us - self.native_us) <= allowed


def times(
    native: Sequence[Row], remoted: Sequence[Row], again: Sequence[Row] | None, repeats: int
) -> tuple[list[Time], float]:
    """The times of each name that both runs have, longest total first, and the ratio of the totals of judged names."""
    first, theirs, second = medians(native, repeats), medians(remoted, repeats), medians(again or native, repeats)
    here, there = places([*native, *(again or ())], repeats * (2 if again else 1)), places(remoted, repeats)
    counts = Counter(row[0] for row in native)
    found = []
    for name, durations in first.items():
        if name in theirs:
            a, b = statistics.mean(durations), statistics.mean(theirs[name])
            c = statistics.mean(second.get(name, durations))
            unsure = uncertainty(here[name]) + uncertainty(there[name])
            found.append(Time(name, counts[name], (a + c) / 2, b, max(abs(a - c), unsure)))
    found.sort(key=lambda each: -each.native_us * each.count)
    judged = [each for each in found if each.is_judged]
    whole = sum(each.native_us * each.count for each in judged)
    return found, sum(each.remoted_us * each.count for each in judged) / whole if whole else 1.0


def table(rows: Sequence[Time]) -> list[str]:
    """A Markdown table of the twenty names that take longest, and of all whose times differ too much."""
    lines = ["", "| name | records | native us | remoted us | ratio | uncertain by us |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for place, row in enumerate(rows):
        if place < 20 or not row.is_close:
            name = row.name[:70].replace("|", "/")
            ratio = row.remoted_us / row.native_us if row.native_us else 1.0
            note = "" if row.is_judged else " (not judged)"
            lines.append(
                f"| {name} | {row.count} | {row.native_us:.2f} | {row.remoted_us:.2f} | {ratio:.3f}{note} "
                f"| {row.spread_us:.2f} |"
            )
    return lines


def kinds(problems: Sequence[str]) -> Counter[str]:
    """Counts the kinds of problems of a trace; N replaces the numbers in their texts."""
    found = [text.rpartition(": ")[2] if text.startswith("event ") else text for text in problems]
    found = ["slices that overlap" if "inside which it begins" in text else text for text in found]
    return Counter(re.sub(r"[\d.]+", "N", text) for text in found)


class Runs:
    """Runs works in processes of their own, natively or remoted, until --limit-s is over."""

    def __init__(self, options: argparse.Namespace, endpoint: str, native: dict[str, str]) -> None:
        self.options, self.endpoint, self.native = options, endpoint, native
        self.deadline_s = time.monotonic() + options.limit_s

    def run(self, work: str, side: str, *flags: str) -> Any:
        """Run the program; returns the JSON of its last line. `flags` are for `vgpu run`.

        Raises:
            RuntimeError: The program failed; the text ends with its error output.
        """
        trace = self.options.out / f"{work}-{side.replace(' ', '-')}.json.gz"
        command = [self.options.python, str(PROGRAM), work, str(trace)]
        env = self.native | SETTINGS
        if side.startswith("remoted"):
            command = [sys.executable, "-c", VGPU, "run", "--endpoint", self.endpoint, *flags, "--", *command]
            env = {key: value for key, value in env.items() if key != "LD_LIBRARY_PATH" or value}
        left_s = min(PROCESS_LIMIT_S, self.deadline_s - time.monotonic())
        if left_s < 5:
            raise RuntimeError(f"{work}, {side}: not run, --limit-s is over")
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=left_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{work}, {side}: not done after {left_s:.0f} s") from error
        if done.returncode:
            raise RuntimeError(f"{work}, {side}: ended with {done.returncode}\n{done.stderr[-2000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def has(self, module: str) -> bool:
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        return subprocess.run([self.options.python, "-c", code], env=self.native, check=False).returncode == 0


def examine(runs: Runs, report: Report, work: str, simulated: bool) -> None:
    """Run one program on all sides and report the differences."""
    from tests.chrome_trace import problems
    from tests.gpu.profiled import REPEATS

    first = "remoted first" if simulated else "native"
    native = runs.run(work, first)
    remoted = runs.run(work, "remoted")
    again = None if simulated else runs.run(work, "native again")
    report.write(f"{len(native)} records natively, {len(remoted)} remoted.")
    for fault in compare(work, native, remoted, again):
        report.fault(fault)
    rows, whole = times(native, remoted, again, REPEATS)
    report.write(*table(rows), "", f"All that are judged together: ratio {whole:.3f}.")
    if not simulated:
        for row in rows:
            if not row.is_close:
                report.fault(f"{work}: {row.name[:80]} takes {row.remoted_us:.2f} us, natively {row.native_us:.2f}")
    traces = [runs.options.out / f"{work}-{side.replace(' ', '-')}.json.gz" for side in (first, "remoted")]
    if not all(trace.exists() for trace in traces):
        report.write("No Chrome traces.")
        return
    read = (json.loads(gzip.decompress(trace.read_bytes())) for trace in traces)
    theirs, ours = (kinds(problems(trace, HOST_CLOCKS_US)) for trace in read)
    new = {key: count for key, count in ours.items() if key not in theirs}
    report.write(f"Chrome traces: natively {dict(theirs) or 'valid'}, remoted {dict(ours) or 'valid'}.")
    for key, count in new.items():
        report.fault(f"{work}: the remoted trace has {count} times: {key}")


def examine_many(runs: Runs, report: Report, simulated: bool) -> None:
    """Time 100,000 launches on each side, twice in turn; the smaller of the two medians counts."""
    sides = [("many", "remoted", ()), ("many-bare", "remoted bare", ("--no-cupti",))]
    sides += [] if simulated else [("many", "native", ())]
    facts: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(2):
        for work, side, flags in sides:
            facts[side].append(runs.run(work, side, *flags))

    def best(side: str, key: str) -> str:
        return f"{min(each[key] for each in facts[side]):.3f}" if key in facts[side][0] else "-"

    report.write("| side | without a profiler us | with one us | afterwards us | records |", "|---|---|---|---|---|")
    for _, side, _ in sides:
        seen = "/".join(str(each.get("seen", "-")) for each in facts[side])
        report.write(f"| {side} | {best(side, 'off')} | {best(side, 'on')} | {best(side, 'after')} | {seen} |")
    for each in facts["remoted"]:
        if each["seen"] != each["launched"]:
            report.fault(f"many: {each['seen']} records of {each['launched']} launches")
    ratio = float(best("remoted", "off")) / float(best("remoted bare", "off"))
    report.write("", f"Without a profiler, with vgpu's libcupti beside without it: ratio {ratio:.3f}.")
    if ratio > 1 + TOLERANCE and not simulated:
        report.fault(f"many: vgpu's libcupti costs a launch {ratio:.3f} times its time while no profiler is active")


def host_cupti() -> str:
    """The folder of NVIDIA's libcupti among Python's packages."""
    found = [file for part in sys.path if part for file in Path(part).glob("nvidia/*/lib/libcupti.so.1[23]")]
    return str(found[0].parent) if found else ""


def main() -> int:
    from vgpud.bench.side import Host, native

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libcuda", default="libcuda.so.1")
    parser.add_argument("--simulator", metavar="GPU", default="")
    parser.add_argument("--works", nargs="+", choices=NEEDS, default=list(DEFAULT))
    parser.add_argument("--python", default=sys.executable, help="runs the works (this one)")
    parser.add_argument("--limit-s", type=int, default=420, help="after which no more is started (420)")
    parser.add_argument("--out", type=Path, default=Path("profiles"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    report = Report(options.out / "profiles.md")
    simulated = bool(options.simulator)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-profiles-")))
        plain = native(options.libcuda).of_program()
        found = "" if simulated else host_cupti()
        if found:  # the worker gets the times of kernels from it
            os.environ["LD_LIBRARY_PATH"] = f"{found}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        report.write(f"The host's CUPTI: {found or 'of the system, if it has one'}.")
        backend = "simulator" if simulated else "cuda"
        host = stack.enter_context(Host("shm", folder, backend, options.simulator or "h100", options.libcuda))
        runs = Runs(options, host.side.environment["VGPU_ENDPOINT"], plain)
        for work in options.works:
            begin_s = time.monotonic()
            report.write("", f"## {work}", "")
            if not runs.has(NEEDS[work]):
                report.write(f"{NEEDS[work]} is not installed: left out.")
                continue
            try:
                if work == "many":
                    examine_many(runs, report, simulated)
                else:
                    examine(runs, report, work, simulated)
            except RuntimeError as error:
                report.fault(str(error))
            report.write(f"({time.monotonic() - begin_s:.0f} s)")
    report.write("", "## Faults", "", *([f"- {text}" for text in report.faults] or ["None."]))
    return bool(report.faults)


if __name__ == "__main__":
    sys.exit(main())
