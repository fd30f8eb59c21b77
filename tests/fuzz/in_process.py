"""Hostile records for the executor and the simulator in one process; new code that they execute guides the search.

`python -m tests.fuzz.in_process SECONDS [--records N] [--jobs N] [--sanitize WHICH] [--seed N] [--replay FILE]`
(`make fuzz-records`).
`--stalls N` lets threads sleep at random places, which shows what depends on their order without a busy machine.
`--floor` measures instead which lines of the executor are executed, and compares them with floor.tsv (`make
fuzz-floor`); `--faults N` makes one call at a time fail, in N different streams of records (`make faults`).
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz import evidence, recordings
from tests.fuzz.build import FAILING, FAULTS, HERE, ROOT, build
from tests.fuzz.grammar import LEFT_OUT, only_on_socket
from tests.fuzz.lines import Lines, executed_lines, percent, read_floor

STEPS = 256  # records in a fresh input


def faults(streams: int, most: int = 1 << 20) -> tuple[int, int]:
    """In `streams` streams of records, make each call to a function of FAILING fail, one at a time, each in a session
    of its own; at most about `most` calls of each function, spread over the stream.

    Returns how many calls failed, and in how many of their sessions descriptors were counted. Raises RuntimeError, with
    the command to repeat it, when a session's process fails, or when the executor leaves memory that nothing points to,
    or descriptors. These are not counted where a thread still waits in the simulator for what will not happen, when a
    worker would exit: a word that no other stream has written, because the rings' records had another order.
    """
    tried, counted = fail_calls(build("faults", sanitize="address,undefined", more=FAULTS), streams, most)
    print(f"{streams} streams, {tried} calls failed one at a time, no session ended by a signal")
    print(f"{counted} of them ended in time, with no descriptor left open")
    return tried, counted


def fail_calls(program: Path, streams: int, most: int) -> tuple[int, int]:
    """As faults(), with a program that was built with FAULTS."""

    def session(seed: int, fault: str) -> dict[str, int]:
        command = [program, "0", str(seed), str(STEPS), "/dev/null", "--fixed"]
        environment = os.environ | LEAKS | {"VGPU_FAULTS": fault}
        # longer than END_MS of vgt_fuzz_session.c, after which the session ends itself
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"VGPU_FAULTS={fault} {' '.join(map(str, command))}: {done.returncode}\n{done.stderr}")
        words = done.stdout.split()
        return {key: int(value) for key, value in zip(words[::2], words[1::2], strict=True)}

    tried = counted = 0
    for seed in range(1, streams + 1):
        counts = session(seed, "none:0")
        for name in FAILING:
            for number in range(1, counts[name] + 1, 1 + counts[name] // most):
                found = session(seed, f"{name}:{number}")
                if found["descriptors"] > 0:
                    raise RuntimeError(
                        f"VGPU_FAULTS={name}:{number}, seed {seed}: {found['descriptors']} descriptors are left open"
                    )
                tried += 1
                counted += not found["late"]
    return tried, counted


OPTIONS = {
    # What is freed is kept from being used again for some hundred sessions; fewer pages are touched for the first time.
    "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1:abort_on_error=1"
    ":quarantine_size_mb=32",
    "TSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:handle_segv=0:handle_sigbus=0:history_size=4:"
    f"atexit_sleep_ms=0:suppressions={ROOT}/tests/races/suppressions.txt",
}

LEAKS = OPTIONS | {
    "ASAN_OPTIONS": OPTIONS["ASAN_OPTIONS"].replace("detect_leaks=0", "detect_leaks=1"),
    "LSAN_OPTIONS": f"print_suppressions=0:suppressions={HERE}/leaks.txt",
}


def run(
    program: Path,
    seconds: float,
    seed: int,
    more: str | None = None,
    processor: int | None = None,
    out: Path | None = None,
) -> tuple[int, dict[str, int]]:
    """Run the program, `more` being a file to replay or --records=N, on `processor` or on all of them; return its exit
    status and its counts. A batch that failed leaves its inputs and a report in the program's folder, or in `out`; that
    has the counts after each batch, too."""
    crash = (out or program.parent) / f"crash-{seed}.bin"
    environment = os.environ | OPTIONS
    if out:
        environment |= evidence.sanitizer_options(OPTIONS, crash) | {"VGT_COUNTS": str(out / f"counts-{seed}.txt")}
    # ThreadSanitizer's own addresses must be free, which random ones may not leave them.
    alone = ["setarch", "-R"] if "thread" in program.parent.name else []
    if processor is not None:
        alone += ["taskset", "-c", str(processor)]
    command = [*alone, program, str(seconds), str(seed), str(STEPS), crash, *([more] if more else [])]
    evidence.report_path(crash).unlink(missing_ok=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode:
        evidence.complete(crash, program)
    words = done.stdout.split()
    print(done.stdout, end="", flush=True)
    return done.returncode, {key: int(value) for key, value in zip(words[::2], words[1::2], strict=False)}


def measure_lines(seconds: float, seed: int, streams: int = 2, most: int = 15, searches: int = 1) -> Iterator[Lines]:
    """The lines of each file that have been executed by `streams` streams in which at most about `most` calls of
    each function of WRAPPED fail, and by 1, 2, … `searches` searches. Raises RuntimeError when a session's process
    fails."""
    traced = ("--coverage", "-fprofile-update=atomic", "-O0", "-fsanitize-coverage=trace-pc")
    program = build("fuzz-lines", more=(*traced, *FAULTS))
    for left in program.parent.glob("*.gcda"):
        left.unlink()
    fail_calls(program, streams, most)
    for number in range(searches):
        status, _ = run(program, seconds, seed + number)
        if status != 0:
            raise RuntimeError(f"the search ended with status {status}: seed {seed + number}")
        yield executed_lines(program.parent)


def measure(seconds: float, seed: int, searches: int = 1) -> Iterator[dict[str, int]]:
    """measure_lines in percent."""
    yield from map(percent, measure_lines(seconds, seed, searches=searches))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.in_process")
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("--sanitize", default="address,undefined", help="as in -fsanitize=; empty: none")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--records", type=int, help="end when so many have been executed")
    parser.add_argument("--jobs", type=int, default=1, help="searches beside each other, every second on one processor")
    parser.add_argument("--out", type=Path, help="folder of the counts after each batch and of inputs that failed")
    parser.add_argument("--go-on", action="store_true", help="after a failure, with other seeds, till the time is over")
    parser.add_argument("--replay", help="a file that a failure left")
    parser.add_argument("--recordings", type=Path, help="a folder of recorded sessions to mutate, too")
    parser.add_argument("--stalls", type=int, metavar="N", help="a thread sleeps before one of N basic blocks")
    parser.add_argument("--floor", action="store_true", help="executed lines, compared with floor.tsv")
    parser.add_argument("--faults", type=int, metavar="N", help="fail one call at a time, in N streams")
    given = parser.parse_args()
    if given.faults:
        return 0 if all(faults(given.faults)) else 1
    if given.floor:
        floor, [found] = read_floor(), measure(given.seconds, given.seed)
        for name, percent in found.items():
            print(f"{name}\t{percent}\tfloor {floor.get(name, 'none')}")
        return any(found.get(name, 0) < percent for name, percent in floor.items())
    name = "fuzz-stalls" if given.stalls else "fuzz"
    edges = ("-fsanitize-coverage=trace-pc",)
    program = build(name, sanitize=given.sanitize, more=edges, all_traced=bool(given.stalls))
    os.environ["VGT_STALL"] = str(given.stalls or 0)
    if given.jobs > 2 * len(os.sched_getaffinity(0)):
        os.environ.setdefault("VGT_POLL_US", "1000")
    if given.recordings:
        seeds = program.parent / "seeds.bin"
        files = sorted(given.recordings.rglob("*.vgpurec"))
        count = recordings.write_inputs(seeds, files, only_on_socket(), LEFT_OUT)
        print(f"{count} inputs from {len(files)} recorded sessions")
        os.environ["VGT_SEEDS"] = str(seeds)
    most = f"--records={-(-given.records // given.jobs)}" if given.records else None
    began = time.monotonic()
    usable = sorted(os.sched_getaffinity(0))

    def search(job: int) -> tuple[int, dict[str, int]]:
        # Threads on one processor wake each other without an interrupt; on several they execute at the same time.
        processor = usable[job // 2 % len(usable)] if job % 2 else None
        worst, sums, first = 0, dict.fromkeys(("sessions", "records"), 0), given.seed + (job << 32)
        for seed in range(first, first + (1 << 32), 1 << 24):
            seconds = given.seconds - (time.monotonic() - began)
            status, counts = run(program, seconds, seed, given.replay or most, processor, given.out)
            worst, sums = worst or status, {name: sums[name] + counts.get(name, 0) for name in sums}
            if not (status and given.go_on and time.monotonic() - began < given.seconds):
                break
        return worst, sums

    with ThreadPoolExecutor(given.jobs) as pool:  # each thread waits for a process
        done = list(pool.map(search, range(given.jobs)))
    if given.jobs > 1:
        told = {name: sum(counts.get(name, 0) for _, counts in done) for name in ("sessions", "records")}
        seconds = time.monotonic() - began
        alone = sum(counts.get("records", 0) for _, counts in done[1::2])
        print(f"{alone} of the records in the {given.jobs // 2} jobs that had one processor each")
        print(f"{told['sessions']} sessions, {told['records']} records in {given.jobs} jobs, {seconds:.0f} s")
    executed = sum(counts.get("records", 0) for _, counts in done)
    return int(any(status for status, _ in done) or executed < (given.records or 0))


if __name__ == "__main__":
    sys.exit(main())
