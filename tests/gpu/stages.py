"""Where the time of driver calls goes that take longer remoted than natively: `python tests/gpu/stages.py`.

On a machine with a card and nothing beside it; a minute. Two tables, of tests/bench/driver.c's measurements:

- For each: natively, remoted, what the worker executes (the driver itself and the worker's look-ups), the round trips
  that are waited for, and the rest. A round trip is what a call takes that asks next to nothing (the number of a
  module's kernels), without its execution. Medians over the rounds of means, as the worker's are; of windows in
  brackets. The rest is negative where the client does not wait for the worker.
- The same calls natively in a worker's circumstances, one after another (DRIVER_AS in driver.c): which of them makes
  the driver itself slower in the worker than in a program.

With `--card` the driver is tests/bench/card.c, which needs no card and says nothing about one.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

from vgpud.cli.admin_client import AdminClient  # noqa: E402
from vgpud.worker.seccomp import DRIVER, filter_program  # noqa: E402

from tests.bench import driver  # noqa: E402
from tests.bench.driver import Timing  # noqa: E402

TRIP = "call_count"
# Measurements, and the round trips that each waits for. Of the others the rest is the way to the worker, the device's
# work and the wait for the flag that the device writes.
ROWS = {
    TRIP: 1,
    "call_memory_info": 1,
    "alloc_free_1m": 2,
    "alloc_free_beside": 2,
    "record_and_wait_event": 0,
    "launch_and_wait_event": 0,
    "launch_stream_sync": 0,
    "launch_context_sync": 0,
    "launch_event_sync": 0,
    "htod_4": 0,
    "htod_4k": 0,
}
IN_CIRCUMSTANCES = ("call_memory_info", "alloc_free_1m", "alloc_free_beside", "launch_stream_sync", "htod_4")
FILTER = "filter"
CIRCUMSTANCES = ("", "thread", "arena", "sleepers", "spinner", FILTER, f"thread arena sleepers spinner {FILTER}")


@dataclass
class Row:
    """What the rounds have measured of one call."""

    native: list[Timing] = field(default_factory=list)
    remoted: list[Timing] = field(default_factory=list)
    in_worker_us: list[float] = field(default_factory=list)


def mean_us(timings: list[Timing]) -> float:
    return statistics.median(timing.mean_us for timing in timings)


def shown(timings: list[Timing]) -> str:
    return f"{mean_us(timings):.2f} ({statistics.median(timing.us for timing in timings):.2f})"


def stages(rows: dict[str, Row]) -> list[str]:
    """The first table. The rest is what neither the worker nor round trips explain."""
    lines = ["| call | native us | remoted us | ratio | in the worker | beyond native | round trips | rest |"]
    lines.append("|---" * 8 + "|")
    trip_us = mean_us(rows[TRIP].remoted) - statistics.median(rows[TRIP].in_worker_us)
    for name, row in rows.items():
        native_us, remoted_us = mean_us(row.native), mean_us(row.remoted)
        worker_us, trips_us = statistics.median(row.in_worker_us), ROWS[name] * trip_us
        lines.append(
            f"| {name} | {shown(row.native)} | {shown(row.remoted)} | {remoted_us / native_us:.2f} | {worker_us:.2f} "
            f"| {worker_us - native_us:+.2f} | {ROWS[name]}: {trips_us:.2f} | {remoted_us - worker_us - trips_us:.2f} |"
        )
    return lines


def in_circumstances(found: dict[str, dict[str, list[Timing]]]) -> list[str]:
    """The second table: medians, and in brackets the ratio to the program without circumstances."""
    names = list(found[""])
    lines = ["| natively | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for circumstance, of_names in found.items():
        cells = []
        for name in names:
            us, plain_us = (statistics.median(t.us for t in each[name]) for each in (of_names, found[""]))
            cells.append(f"{us:.2f} ({us / plain_us:.2f})")
        lines.append(f"| {circumstance or 'a program as it is'} | " + " | ".join(cells) + " |")
    return lines


def environment(native: dict[str, str], circumstance: str, filter_path: Path) -> dict[str, str]:
    """Of a native program in these circumstances."""
    names = circumstance.split()
    as_worker = {"DRIVER_AS": " ".join(name for name in names if name != FILTER)}
    return native | as_worker | ({"DRIVER_FILTER": str(filter_path)} if FILTER in names else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libcuda", default="libcuda.so.1", help="NVIDIA's driver, if the linker does not find it")
    parser.add_argument("--card", action="store_true", help="tests/bench/card.c in the driver's place")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="some of the calls")
    parser.add_argument("--socket", action="store_true", help="without shared memory")
    parser.set_defaults(backend="cuda", libraries=ROOT / "build/guest")
    options = parser.parse_args()
    rows = {name: Row() for name in dict.fromkeys((TRIP, *options.rows))}
    found: dict[str, dict[str, list[Timing]]] = {each: {} for each in CIRCUMSTANCES}
    with tempfile.TemporaryDirectory(prefix="vgpu-stages-") as temporary:
        directory = Path(temporary)
        program, native = driver.prepare(directory, options)
        filter_path = directory / "filter"
        filter_path.write_bytes(filter_program(platform.machine(), 0, DRIVER))
        with driver.serving(directory / "0", options) as remote:
            admin = AdminClient(directory / "0" / "a")
            for _ in range(options.rounds):
                here = driver.run(program, native, *rows)
                for name, row in rows.items():
                    row.native.append(here[name])
                    before = driver.executed(admin)
                    there = driver.run(program, remote, name)[name]
                    row.remoted.append(there)
                    row.in_worker_us.append(driver.in_worker_us(admin, before, there.repetitions)[0])
            print(*stages(rows), sep="\n", flush=True)
            names = [name for name in IN_CIRCUMSTANCES if name in rows]
            for _ in range(options.rounds if names else 0):
                for circumstance, of_names in found.items():
                    env = environment(native, circumstance, filter_path)
                    for name, timing in driver.run(program, env, *names).items():
                        of_names.setdefault(name, []).append(timing)
    if names:
        print("", *in_circumstances(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
