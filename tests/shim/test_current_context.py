"""Which context the worker's thread has entered stays known when a call changes the driver's current one."""

import sys
import textwrap
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests.shim.client import PRELUDE

Run = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    "left", ["ok(cuda.cuCtxPopCurrent_v2(byref(c_void_p())))", "ok(cuda.cuCtxSetCurrent(primary))"]
)
def test_memory_after_a_new_context_is_the_primarys(vgpu_run: Run, left: str) -> None:
    """cuCtxCreate while the primary context is current, which then is used again: numba-cuda's Test3rdPartyContext."""
    program = f"""
    primary, other = context(), c_void_p()
    before = alloc(4096)
    ok(cuda.cuCtxCreate_v2(byref(other), 0, 0))
    {left}
    after = alloc(4096)
    ok(cuda.cuCtxDestroy_v2(other))
    free, total, back = c_size_t(), c_size_t(), create_string_buffer(4)
    ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    for memory in before, after:
        ok(cuda.cuMemsetD32_v2(memory, c_uint(7), c_size_t(1)))
        ok(cuda.cuMemcpyDtoH_v2(back, memory, c_size_t(4)))
        assert back.raw == bytes([7, 0, 0, 0])
    ok(cuda.cuCtxCreate_v2(byref(other), 0, 0))
    ok(cuda.cuCtxDestroy_v2(other))
    ok(cuda.cuMemFree_v2(after))
    ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    print("ok")
    """
    done = vgpu_run([sys.executable, "-c", PRELUDE + textwrap.dedent(program)])
    assert done.stdout.splitlines()[-1:] == ["ok"], done.stdout + done.stderr
