"""What weights do: tenants saturate one simulated device, and the share of the work that each one gets is measured.

    python tests/bench/shares.py [--weights 300,100] [--seconds 20]

Each tenant launches one kernel repeatedly; its share of all launches is printed beside its share of the weights.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

from tests.daemon.running import vgpud_with_real_workers  # noqa: E402
from tests.shim.client import PRELUDE, environment  # noqa: E402

PTX = r"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry spin(.param .u32 n) {
  .reg .u32 %r<4>; .reg .pred %p;
  ld.param.u32 %r0, [n]; mov.u32 %r1, 0; mov.u32 %r2, %tid.x;
again:
  mad.lo.u32 %r2, %r2, 1664525, 1013904223; add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, %r0; @%p bra again;
  setp.eq.u32 %p, %r2, 123456789; @%p trap; ret;
}
"""

CLIENT = f"""
context()
module, function = c_void_p(), c_void_p()
ok(cuda.cuModuleLoadData(byref(module), {PTX.encode()!r}))
ok(cuda.cuModuleGetFunction(byref(function), module, b"spin"))
n = c_uint(400000)
arguments = (c_void_p * 1)(ctypes.addressof(n))

def launch():
    ok(cuda.cuLaunchKernel(function, 64, 1, 1, 256, 1, 1, 0, None, arguments, None))
    ok(cuda.cuCtxSynchronize())

launch()
print("ready", flush=True)
sys.stdin.readline()
count, end = 0, time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    launch()
    count += 1
print(count, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default="300,100")
    parser.add_argument("--seconds", default="20")
    options = parser.parse_args()
    weights = [int(weight) for weight in options.weights.split(",")]
    more = ""
    for index, weight in enumerate(weights):
        more += f"[[shares]]\nname = 's{index}'\nweight = {weight}\n"
        more += f"[[tokens]]\nname = 't{index}'\nvalue = 'token-of-tenant-{index:03}'\nshare = 's{index}'\n"
    with tempfile.TemporaryDirectory() as folder:
        for running in vgpud_with_real_workers(Path(folder), more):
            print("control groups:", "control group" not in running.status()["isolation_missing"])
            clients = [
                subprocess.Popen(
                    [sys.executable, "-c", PRELUDE + CLIENT, options.seconds],
                    env=environment(str(running.endpoint), VGPU_TOKEN=f"token-of-tenant-{index:03}"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for index in range(len(weights))
            ]
            for client in clients:
                assert client.stdout is not None
                assert client.stdout.readline() == "ready\n"
            for client in clients:
                assert client.stdin is not None
                client.stdin.write("\n")
                client.stdin.flush()
            counts = [int(client.communicate()[0]) for client in clients]
    for weight, count in zip(weights, counts, strict=True):
        due, got = weight / sum(weights), count / sum(counts)
        print(f"weight {weight:5}: {count:6} launches, {100 * got:5.1f} % of all; due {100 * due:5.1f} %")


main()
