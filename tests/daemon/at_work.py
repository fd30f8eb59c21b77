"""Programs that compute without a pause while something happens to their vgpud, and how long their calls waited."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from tests.daemon.running import Running
from tests.shim.client import PRELUDE, PYTHON, environment

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
    """Start a program of `text`; it has loaded the guest library but has no context yet."""
    return subprocess.Popen(
        [*PYTHON, "-c", PRELUDE + text],
        env=environment(str(running.endpoint)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@dataclass
class Result:
    """What the programs did. The times are those of the longest turn: a fill, a copy back and a comparison."""

    failed: int
    turns: int
    longest_before_ms: float
    longest_after_ms: float


class AtWork:
    """Programs that fill, copy back and compare in a loop."""

    def __init__(self, running: Running, count: int) -> None:
        self._programs = [start(running, BEGIN + WORK) for _ in range(count)]
        for program in self._programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "begun\n"

    def mark(self) -> None:
        """Mark the event: turns from now on count as after it."""
        for program in self._programs:
            assert program.stdin is not None
            program.stdin.write("\n")
            program.stdin.flush()

    def end(self) -> Result:
        """End all programs and return what they did."""
        lines = [program.communicate(timeout=120)[0].split() for program in self._programs]
        failed = sum(program.returncode != 0 for program in self._programs)
        done = [line for line in lines if len(line) == 3]
        before, after = (max((float(line[column]) for line in done), default=0) * 1e3 for column in (1, 2))
        return Result(failed, sum(int(line[0]) for line in done), before, after)
