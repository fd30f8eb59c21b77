"""A kernel that takes too long to compile ends its session, and no other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running, vgpud_with_real_workers, wait_until
from tests.patience import PATIENCE_S
from tests.shim.client import PRELUDE, environment

BRANCHES = 4000  # seconds of a processor, far more than the limit below
LIMIT_S = 0.3
PROGRAM = """
body = "".join(
    f"setp.eq.u32 %p1, %r1, {i}; @%p1 bra L{i * 7919 % count}; add.u32 %r2, %r2, {i}; L{i}: xor.b32 %r1, %r1, %r2;"
    for i in range(count))
ptx = f'''.version 7.0
.target sm_75
.address_size 64
.visible .entry hostile(.param .u64 p) {{
.reg .u32 %r<9>; .reg .pred %p<3>; .reg .u64 %d<3>;
mov.u32 %r1, %tid.x; mov.u32 %r2, 0; ld.param.u64 %d1, [p];
{body}
st.global.u32 [%d1], %r1; ret; }}'''
context()
module = new(cuda.cuModuleLoadData, ptx.encode())
kernel = new(cuda.cuModuleGetFunction, module, b"hostile")
out = alloc(4096)
arguments = (c_void_p * 1)(ctypes.addressof(out))
one = [c_uint(1)] * 3
cuda.cuLaunchKernel(kernel, *one, *one, c_uint(0), None, arguments, None)
print(cuda.cuCtxSynchronize())
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path, f"[limits]\nkernel_compile_s = {LIMIT_S}\n")


def run(running: Running, count: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + f"count = {count}\n" + PROGRAM],
        env=environment(str(running.endpoint)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_compilation_over_its_limit_ends_its_session(running: Running) -> None:
    done = run(running, BRANCHES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() not in ("0", "")
    why = f"compiling kernel hostile has used {LIMIT_S} s of processor time, so the session ends"
    assert why in done.stderr
    assert "limits.kernel_compile_s in vgpud.toml" in done.stderr
    running.wait_log(rf'worker ended .*reason="?{why}')
    wait_until(lambda: running.status()["sessions"] == [])
    assert run(running, 2).stdout == "0\n"
