"""What an upgrade costs: programs at work, and programs that start, while `vgpu restart` replaces vgpud.

    python tests/bench/upgrade.py [--programs 20] [--restarts 3]

Each program fills, copies back and compares in a loop; the longest iteration is printed for the time before the first
restart and for the time after it. Programs that start during a restart are timed from their start to their end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

from click.testing import CliRunner  # noqa: E402
from vgpud.cli.main import vgpu  # noqa: E402

from tests.daemon.at_work import BEGIN, AtWork, start  # noqa: E402
from tests.daemon.running import vgpud_with_real_workers  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for running in vgpud_with_real_workers(Path(folder)):
            programs = AtWork(running, options.programs)
            time.sleep(5.0)
            programs.mark()
            started = []
            for _ in range(options.restarts):
                began = time.monotonic()
                late = start(running, BEGIN)
                done = CliRunner().invoke(vgpu, ["restart", "--admin", str(running.admin_path)])
                assert done.exit_code == 0, done.output
                print(f"restart: {time.monotonic() - began:.2f} s")
                out, _ = late.communicate()
                started.append((late.returncode, out == "begun\n", time.monotonic() - began))
            result = programs.end()
    print(f"{options.programs} programs, {result.failed} failed; {result.turns} turns")
    print(
        f"longest turn: {result.longest_before_ms:.1f} ms before, "
        f"{result.longest_after_ms:.1f} ms from the first restart on"
    )
    print("started during a restart:", ", ".join(f"exit {code}, {taken:.2f} s" for code, _, taken in started))


main()
