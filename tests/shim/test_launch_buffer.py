"""Parameters that a launch gives in a buffer (CU_LAUNCH_PARAM_BUFFER_POINTER)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import vgpud_with_real_workers
from tests.shim.client import run

PTX = """
.version 8.0
.target sm_70
.address_size 64
.visible .entry note(.param .u64 to, .param .u32 low, .param .u32 high) {
  .reg .u64 %to;
  .reg .u32 %low, %high;
  ld.param.u64 %to, [to];
  ld.param.u32 %low, [low];
  ld.param.u32 %high, [high];
  st.global.u32 [%to], %low;
  st.global.u32 [%to+4], %high;
  ret;
}
"""


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    for running in vgpud_with_real_workers(tmp_path):
        yield str(running.endpoint)


def test_a_buffer_may_end_before_the_parameters_do(endpoint: str) -> None:
    """NCCL's kernels have 4 KiB of parameters, and its launch buffers hold only the part that a launch needs."""
    said = run(
        endpoint,
        f"""
        import struct
        context()
        module, kernel = c_void_p(), c_void_p()
        ok(cuda.cuModuleLoadData(byref(module), {PTX.encode()!r}))
        ok(cuda.cuModuleGetFunction(byref(kernel), module, b"note"))
        p = alloc(8)
        for nbytes in (16, 12, 16, 12):  # the second time a launch is written where it travels
            block = create_string_buffer(struct.pack("<QII", p.value, 7, 9), 16)
            size = c_size_t(nbytes)
            extra = (c_void_p * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), 0)
            ok(cuda.cuMemsetD8_v2(p, 0xFF, c_size_t(8)))
            ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, extra))
            seen = create_string_buffer(8)
            ok(cuda.cuMemcpyDtoH_v2(seen, p, c_size_t(8)))
            print(*struct.unpack("<II", seen.raw))
        """,
    )
    assert said.split("\n") == ["7 9", "7 0", "7 9", "7 0", ""]
