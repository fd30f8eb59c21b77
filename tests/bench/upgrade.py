"""What an upgrade costs: programs at work, and programs that start, while `vgpu restart` replaces vgpud.

    python tests/bench/upgrade.py [--programs 20] [--restarts 3]

Each program clears, fills, copies and compares in a loop; its longest turn is printed for the time before the first
restart and from then on. Programs that start during a restart are timed from their start to their first result.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

from click.testing import CliRunner  # noqa: E402
from vgpud.cli.main import vgpu  # noqa: E402

from tests.daemon.running import Running, vgpud_with_real_workers  # noqa: E402
from tests.shim.client import PRELUDE, PYTHON, environment  # noqa: E402

BEGIN = """
import select
context()
p = alloc(1 << 16)
back = (c_uint * 1024)()
def turn(value):
    ok(cuda.cuMemsetD32_v2(p, value, c_size_t(1024)))
    ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(4096)))
    assert set(back) == {value}
turn(1)
print("begun", flush=True)
"""
WORK = """
turns, longest = 0, [0.0, 0.0]
part = 0
while True:
    if select.select([sys.stdin], [], [], 0)[0]:
        line = sys.stdin.readline()
        if not line:
            break
        part = 1
    before = time.monotonic()
    turn(turns % 1000 + 2)
    longest[part] = max(longest[part], time.monotonic() - before)
    turns += 1
    time.sleep(0.005)
print(turns, *longest, flush=True)
"""


def start(running: Running, text: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PYTHON, "-c", PRELUDE + text],
        env=environment(str(running.endpoint)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for running in vgpud_with_real_workers(Path(folder)):
            programs = [start(running, BEGIN + WORK) for _ in range(options.programs)]
            for program in programs:
                assert program.stdout is not None
                assert program.stdout.readline() == "begun\n"
            time.sleep(5.0)
            for program in programs:
                assert program.stdin is not None
                program.stdin.write("\n")
                program.stdin.flush()
            started = []
            for _ in range(options.restarts):
                began = time.monotonic()
                late = start(running, BEGIN)
                done = CliRunner().invoke(vgpu, ["restart", "--admin", str(running.admin_path)])
                assert done.exit_code == 0, done.output
                print(f"restart: {time.monotonic() - began:.2f} s")
                out, _ = late.communicate()
                started.append((late.returncode, out == "begun\n", time.monotonic() - began))
            results = [program.communicate()[0].split() for program in programs]
            failed = sum(program.returncode != 0 for program in programs)
    before, after = (max(float(result[column]) for result in results) * 1e3 for column in (1, 2))
    print(f"{len(programs)} programs, {failed} failed; {sum(int(result[0]) for result in results)} turns")
    print(f"longest turn: {before:.1f} ms before, {after:.1f} ms from the first restart on")
    print("started during a restart:", ", ".join(f"exit {code}, {taken:.2f} s" for code, _, taken in started))


main()
