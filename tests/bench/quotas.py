"""What quotas cost per call: the same calls in four sessions in turn: without limits, with a limit on device memory,
with limits on objects, and with a limit on calls per second that is never reached.

`python tests/bench/quotas.py` prints the minimum and the median over the rounds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.daemon.running import vgpud_with_real_workers
from tests.shim.client import run

ROUNDS = 5
SESSIONS = {
    "none": "",
    "memory": "token-of-memory-",
    "objects": "token-of-objects",
    "calls_per_s": "token-of-calls---",
}
SHARES = """
[[shares]]
name = "memory"
memory_mib = 8192
[[shares]]
name = "objects"
streams = 1000
events = 1000
graphs = 1000
[[shares]]
name = "calls"
calls_per_s = 1000000000
[[tokens]]
name = "memory"
value = "token-of-memory-"
share = "memory"
[[tokens]]
name = "objects"
value = "token-of-objects"
share = "objects"
[[tokens]]
name = "calls"
value = "token-of-calls---"
share = "calls"
"""
PROGRAM = """
ctx, handle, p = context(), c_void_p(), alloc(64)
stream = new(cuda.cuStreamCreate, 1)

def memory():
    cuda.cuMemAlloc_v2(byref(handle), c_size_t(1 << 20))
    cuda.cuMemFree_v2(handle)

def event():
    cuda.cuEventCreate(byref(handle), 0)
    cuda.cuEventDestroy_v2(handle)

def graph():
    cuda.cuGraphCreate(byref(handle), 0)
    cuda.cuGraphDestroy(handle)

def fill():
    cuda.cuMemsetD8Async(p, 1, c_size_t(64), stream)

for call, count in ((memory, 500), (event, 2000), (graph, 500), (fill, 10000)):
    best = 1e9
    for _ in range(6):
        begun = time.perf_counter()
        for _ in range(count):
            call()
        ok(cuda.cuCtxSynchronize())
        best = min(best, time.perf_counter() - begun)
    print(call.__name__, best / count * 1e6)
"""


def main() -> None:
    """Measure and print."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for running in vgpud_with_real_workers(Path(folder), SHARES):
            for _ in range(ROUNDS):
                for limits, token in SESSIONS.items():
                    changes = {"VGPU_TOKEN": token} if token else {}
                    for line in run(str(running.endpoint), PROGRAM, timeout_s=300, **changes).splitlines():
                        name, us = line.split()
                        found[name, limits].append(float(us))
    for (name, limits), values in found.items():
        print(f"{name:6} limits {limits:12} least {min(values):7.2f} us, median {statistics.median(values):7.2f} us")


if __name__ == "__main__":
    main()
