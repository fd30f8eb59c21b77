"""A kernel that does not end is ended after limits.kernel_run_s; its program gets CUDA's error, and others go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running, vgpud_with_real_workers
from tests.patience import PATIENCE_S
from tests.shim.client import PRELUDE, environment

PROGRAM = """
ptx = b'''.version 7.0
.target sm_75
.address_size 64
.visible .entry endless(.param .u64 p) {
.reg .u32 %r<3>; .reg .pred %p<3>; .reg .u64 %d<3>;
ld.param.u64 %d1, [p];
again: ld.volatile.global.u32 %r1, [%d1];
setp.eq.u32 %p1, %r1, 0; @%p1 bra again;
ret; }'''
context()
module = new(cuda.cuModuleLoadData, ptx)
kernel = new(cuda.cuModuleGetFunction, module, b"endless")
word = alloc(4)
ok(cuda.cuMemsetD32_v2(word, c_uint(flag), c_uint64(1)))
one = [c_uint(1)] * 3
ok(cuda.cuLaunchKernel(kernel, *one, *one, c_uint(0), None, (c_void_p * 1)(ctypes.addressof(word)), None))
print(cuda.cuCtxSynchronize())
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path, "[limits]\nkernel_run_s = 0.5\n")


def run(running: Running, flag: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + f"flag = {flag}\n" + PROGRAM],
        env=environment(str(running.endpoint)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_an_endless_kernel_is_ended(running: Running) -> None:
    done = run(running, 0)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "702\n"
    assert "longer than limits.kernel_run_s of vgpud" in done.stderr
    assert run(running, 1).stdout == "0\n"
