"""The long forms of the proofs in docs/security.md, and the simulator's speed: `python3 tests/long.py --wheels DIR`.

It needs a quiet machine with many cores, a C compiler and Python. Like tests/gpu/run.py, it builds in a copy of this
tree, with wheels that `python3 tests/long.py --fetch DIR` downloads on another machine (without --wheels: with the
installed packages). Each step writes its output to a file in --out and prints the last line. The exit code is 1 if a
step failed; the other steps run nevertheless. `--part 0.01` runs a short form of each step.

    live      1,000,000 hostile frames to live workers, on the socket and in rings
    chaos     2,000 rounds of clients, workers and launchers killed and stopped, half frames and records
    kills     5,000 rounds in which something is killed by SIGKILL
    starts    300 programs that start at once
    idle      1,000 idle sessions, and the memory of each worker
    flood     a bystander's pings before, while and after 100 sessions ask without a pause
    records   50,000,000 hostile records in process, under sanitizers, within --seconds

With --programs, on two processors each (of two cores, if there are enough):

    kernels   the simulator's kernels against C: tests/bench/kernels.py
    rodinia   kernels of Rodinia's kind against OpenMP
    sort      Thrust's radix sort against std::sort
    products  wmma and cuBLAS against NumPy
    slowdown  how much slower the sanitizer's tools make the kernels: tests/sanitizer/slowdown.py
    calls     `vgpu bench` on the simulator: driver calls, and processes until their first kernel

`--speed` runs these six at once, on pairs of processors of their own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.gpu.run import VGPU, build, describe, fetch, run_step  # noqa: E402

BUILD = (("-m", "protocol.gen"), ("shim/build.py",), ("daemon/bench/build.py",), ("daemon/executor/build_ffi.py",))
SPEED = ("kernels", "rodinia", "sort", "products", "slowdown", "calls")


def pairs() -> list[set[int]]:
    """Pairs of processors for measurements beside each other: of two cores while there are enough of them."""
    usable = os.sched_getaffinity(0)
    cores: dict[str, list[int]] = {}
    for cpu in sorted(usable):
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(path.read_text() if path.exists() else str(cpu), []).append(cpu)
    in_order = [cpu for _, cpu in sorted((threads.index(cpu), cpu) for threads in cores.values() for cpu in threads)]
    return [set(in_order[i : i + 2]) for i in range(0, max(1, len(in_order) - 1), 2)]


def steps(part: float, jobs: int, seconds: float, programs: Path | None, out: Path) -> dict[str, tuple[str, ...]]:
    """Each step's name and Python arguments."""

    def some(count: int) -> str:
        return str(max(1, round(count * part)))

    at_once = ("--jobs", str(jobs))
    search = ("-m", "tests.fuzz.in_process", str(seconds))
    speed: dict[str, tuple[str, ...]] = {}
    if programs:
        compiled = str(programs.resolve())
        for name in ("kernels", "rodinia", "sort", "products"):
            speed[name] = ("tests/bench/kernels.py", "--programs", compiled, "--only", name)
        speed["slowdown"] = ("-m", "tests.sanitizer.slowdown", "--program", f"{compiled}/kernels")
        rounds = ("--work", "calls", "--work", "first", "--rounds", some(11))
        speed["calls"] = ("-c", VGPU, "bench", "--simulator", "h100", *rounds, "--out", str(out), "--name", "simulator")
    return speed | {
        "starts": ("tests/bench/walls.py", "starts", some(300)),
        "idle": ("tests/bench/walls.py", "idle", some(1000)),
        "flood": ("tests/bench/walls.py", "flood", some(100)),
        "live": ("-m", "tests.fuzz.executor", str(seconds), "--frames", some(1_000_000), *at_once),
        "chaos": ("-m", "tests.chaos", some(2000), "--seconds", str(seconds), *at_once),
        "kills": ("-m", "tests.chaos", some(5000), "--kills", "--seconds", str(seconds), *at_once),
        # A session's threads wait for each other, so three searches for each processor keep it busy.
        "records": (*search, "--records", some(50_000_000), "--jobs", str(3 * jobs)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the results (results)")
    parser.add_argument("--wheels", type=Path, help="folder with what --fetch has downloaded; without it: installed")
    parser.add_argument("--fetch", type=Path, metavar="DIR", help="download the wheels, and that is all")
    parser.add_argument("--python-version", default="3.12", help="of the machine where it runs, for --fetch (3.12)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="beside each other (one a core)")
    parser.add_argument("--part", type=float, default=1.0, help="of the counts (1)")
    parser.add_argument(
        "--seconds", type=float, default=480.0, help="that live, chaos, kills and records may take, each (480)"
    )
    parser.add_argument("--limit-s", type=int, default=3600, help="seconds that a step may take (3600)")
    parser.add_argument(
        "--programs", type=Path, metavar="DIR", help="what `tests/bench/kernels.py --build DIR` compiled"
    )
    parser.add_argument("--commit", default="", help="of this tree, where it is a copy without .git")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="some of the steps")
    parser.add_argument("--speed", action="store_true", help=f"at once: {' '.join(SPEED)}")
    options = parser.parse_args()
    if options.fetch:
        return fetch(options.fetch, options.python_version, left_out=())
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    chosen = steps(options.part, options.jobs, options.seconds, options.programs, out)
    wanted = options.only or list(SPEED if options.speed else chosen)
    if unknown := set(wanted) - set(chosen):
        parser.error(f"no such step: {' '.join(sorted(unknown))}")
    (out / "machine.txt").write_text(describe(sys.executable, options.commit))
    with tempfile.TemporaryDirectory(prefix="vgpu-long-") as name:
        os.chmod(name, 0o755)  # workers have user ids of their own
        try:
            env = build(Path(name), options.wheels, out, BUILD)
        except RuntimeError as error:
            print(error)
            return 1
        everywhere, places = os.sched_getaffinity(0), pairs()

        def run(step: str) -> bool:
            place = places[wanted.index(step) % len(places) if options.speed else 0] if step in SPEED else everywhere
            os.sched_setaffinity(0, place)  # of this thread, and of what it starts
            if step in SPEED:
                print(f"{step}: on processors {' and '.join(map(str, sorted(place)))}", flush=True)
            return run_step(Path(name), env, step, chosen[step], out, options.limit_s)

        workers = min(len(wanted), len(places)) if options.speed else 1
        with ThreadPoolExecutor(workers) as pool:
            done = list(pool.map(run, wanted))
    return not all(done)


if __name__ == "__main__":
    sys.exit(main())
