"""A share's limits on amounts, not objects: bytes of images, processor time for compiling, host memory, calls in a
second."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running, vgpud_with_real_workers
from tests.shim.client import PRELUDE, environment, run

CALLS_PER_S = 2000
SHARES = f"""
default_share = "all"
[[shares]]
name = "all"
image_mib = 1
compile_s = 0.5
host_memory_mib = 8
[[shares]]
name = "slow"
calls_per_s = {CALLS_PER_S}
[[tokens]]
name = "slow"
value = "slow-slow-slow-slow"
share = "slow"
"""
COMMON = """
ctx = context()

def image(nbytes, name=b"k"):
    text = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry " + name + b"() { ret; }\\n"
    return text + b"//" + b"x" * (nbytes - len(text) - 3) + b"\\0"

def load(data):
    handle = c_void_p()
    return cuda.cuModuleLoadData(byref(handle), data), handle
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("amounts"), SHARES)


def told(running: Running, program: str, **changes: str) -> str:
    """Run a program that must succeed; return its standard error, which the user reads."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + COMMON + program],
        env=environment(str(running.endpoint), **changes),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_images_are_counted_while_they_are_loaded(running: Running) -> None:
    said = told(
        running,
        """
small = image(300 << 10)
held = []
for _ in range(3):
    result, module = load(small)
    ok(result)
    held.append(module)
assert load(small)[0] == 2
ok(cuda.cuModuleUnload(held.pop()))
ok(load(small)[0])
assert load(small)[0] == 2
assert load(image(1025 << 10))[0] == 2, "more than there may be at all"
""",
    )
    assert said.count("1 MiB of program images") == 1
    assert "image_mib in share all" in said


def test_compiling_is_bounded(running: Running, tmp_path: Path) -> None:
    """The budget is checked before each kernel: one compilation may exceed it, and no further one begins."""
    said = told(
        running,
        """
def kernel(n):
    body = b"".join(b"add.u32 %%r1, %%r1, %d;\\n" % (i * n + 3) for i in range(1500))
    text = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k() {.reg .u32 %r<2>;\\n"
    return text + b"mov.u32 %r1, %tid.x;\\n" + body + b"ret; }\\0"

for n in range(1, 400):
    result, module = load(kernel(n))
    if result == 0:
        function = new(cuda.cuModuleGetFunction, module, b"k")
        result = cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) or cuda.cuCtxSynchronize()
        cuda.cuModuleUnload(module)
    if result:
        break
assert result == 223 and n > 2, (result, n)
""",
    )
    assert "compile_s in share all" in said


def test_host_memory_has_a_limit_of_the_share(running: Running) -> None:
    """Memory over the limit stays the client's alone: the worker does not map it, and copies carry its bytes."""
    program = """
for mib in (4, 2, 8, 32):
    p = c_void_p()
    ok(cuda.cuMemAllocHost_v2(byref(p), c_size_t(mib << 20)))
    ctypes.memset(p, mib, mib << 20)
    device, back = alloc(mib << 20), create_string_buffer(1)
    ok(cuda.cuMemcpyHtoD_v2(device, p, c_size_t(mib << 20)))
    ok(cuda.cuMemcpyDtoH_v2(back, c_uint64(device.value + (mib << 20) - 1), c_size_t(1)))
    assert back.raw == bytes([mib])
print("held", flush=True)
sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + COMMON + program],
        env=environment(str(running.endpoint)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        [session] = [each for each in running.admin.get("sessions")["sessions"] if each["pid"] == process.pid]
        host = session["quotas"]["host_nbytes"]
        assert host["limit"] == 8 << 20
        assert 6 << 20 <= host["used"] < 8 << 20  # with the library's own staging memory
        process.communicate("\n")


def test_calls_are_held_back_and_none_is_refused(running: Running) -> None:
    """A lower bound on the time, which no machine is too slow for: throttled calls are not faster than the share."""
    said = run(
        str(running.endpoint),
        f"""
{COMMON}
p = alloc(64)
begun = time.monotonic()
for _ in range({CALLS_PER_S}):
    ok(cuda.cuMemsetD8_v2(p, 1, c_size_t(64)))
ok(cuda.cuCtxSynchronize())
print(time.monotonic() - begun)
""",
        VGPU_TOKEN="slow-slow-slow-slow",
    )
    assert float(said) > 0.85  # the calls of a tenth of a second are not delayed
    assert 'vgpu_tenant_held_seconds_total{tenant="token:slow"}' in running.admin.metrics()
    held = next(
        line
        for line in running.admin.metrics().splitlines()
        if line.startswith('vgpu_tenant_held_seconds_total{tenant="token')
    )
    assert float(held.split()[-1]) > 0
