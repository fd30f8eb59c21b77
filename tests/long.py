"""The long forms of the proofs in docs/security.md, in one command: `python3 tests/long.py --wheels DIR --out DIR`.

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
    kernels   the simulator's kernels against C, on two processors: tests/bench/kernels.py; needs --programs
    slowdown  how much slower the sanitizer's tools make them: tests/sanitizer/slowdown.py; needs --programs
    records   50,000,000 hostile records in process, under sanitizers, within --seconds
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.gpu.run import build, describe, fetch, run_steps  # noqa: E402

BUILD = (("-m", "protocol.gen"), ("shim/build.py",), ("daemon/executor/build_ffi.py",))


def steps(part: float, jobs: int, seconds: float, programs: Path | None) -> dict[str, tuple[str, ...]]:
    """Each step's name and Python arguments."""

    def some(count: int) -> str:
        return str(max(1, round(count * part)))

    at_once = ("--jobs", str(jobs))
    search = ("-m", "tests.fuzz.in_process", str(seconds))
    two = ("--processors", "2")
    speed: dict[str, tuple[str, ...]] = {}
    if programs:
        speed = {
            "kernels": ("tests/bench/kernels.py", "--programs", str(programs.resolve()), *two),
            "slowdown": ("-m", "tests.sanitizer.slowdown", "--program", str(programs.resolve() / "kernels"), *two),
        }
    return speed | {
        "starts": ("tests/bench/walls.py", "starts", some(300)),
        "idle": ("tests/bench/walls.py", "idle", some(1000)),
        "flood": ("tests/bench/walls.py", "flood", some(100)),
        "live": ("-m", "tests.fuzz.executor", str(seconds), "--frames", some(1_000_000), *at_once),
        "chaos": ("-m", "tests.chaos", some(2000), *at_once),
        "kills": ("-m", "tests.chaos", some(5000), "--kills", *at_once),
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
    parser.add_argument("--seconds", type=float, default=480.0, help="that live and records may take (480)")
    parser.add_argument("--limit-s", type=int, default=3600, help="seconds that a step may take (3600)")
    parser.add_argument(
        "--programs", type=Path, metavar="DIR", help="what `tests/bench/kernels.py --build DIR` compiled"
    )
    parser.add_argument("--commit", default="", help="of this tree, where it is a copy without .git")
    parser.add_argument(
        "--only", nargs="+", metavar="STEP", help="some of: kernels slowdown starts idle flood live chaos kills records"
    )
    options = parser.parse_args()
    if options.fetch:
        return fetch(options.fetch, options.python_version, left_out=())
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    chosen = steps(options.part, options.jobs, options.seconds, options.programs)
    if unknown := set(options.only or ()) - set(chosen):
        parser.error(f"no such step: {' '.join(sorted(unknown))}")
    (out / "machine.txt").write_text(describe(sys.executable, options.commit))
    with tempfile.TemporaryDirectory(prefix="vgpu-long-") as name:
        os.chmod(name, 0o755)  # workers have user ids of their own
        try:
            env = build(Path(name), options.wheels, out, BUILD)
        except RuntimeError as error:
            print(error)
            return 1
        return run_steps(Path(name), env, {step: chosen[step] for step in options.only or chosen}, out, options.limit_s)


if __name__ == "__main__":
    sys.exit(main())
