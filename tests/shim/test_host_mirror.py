"""Copies of host memory, on channels that share none: which pages travel after a wait (shim/cuda/vgs_host_mirror.c)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vgpud.bench.side import Host

from tests.bench.delay import Delay
from tests.shim.client import run

NBYTES = 4 << 20
STEPS = 20
PROGRAM = f"""
NBYTES, STEPS, MAPPED = {NBYTES}, {STEPS}, 2
def mapped():
    h, d = c_void_p(), c_uint64()
    ok(cuda.cuMemHostAlloc(byref(h), c_size_t(NBYTES), MAPPED))
    ok(cuda.cuMemHostGetDevicePointer_v2(byref(d), h, 0))
    return (c_uint * (NBYTES // 4)).from_address(h.value), d.value
PTX = rb'''
.version 7.5
.target sm_75
.address_size 64
.visible .entry add_one(.param .u64 data) {{
  .reg .u64 %rd<2>; .reg .u32 %r<2>;
  ld.param.u64 %rd0, [data];
  ld.global.u32 %r0, [%rd0];
  add.u32 %r0, %r0, 1;
  st.global.u32 [%rd0], %r0;
  ret;
}}
'''
ctx = context()
kernel = new(cuda.cuModuleGetFunction, new(cuda.cuModuleLoadData, PTX), b"add_one")
words, address = mapped()
other, _ = mapped()
words[:] = range(NBYTES // 4)
def add_one(index):
    value = c_uint64(address + 4 * index)
    arguments = (c_void_p * 1)(ctypes.addressof(value))
    ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
expected = list(words)
"""


@pytest.fixture
def received(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Run a program after PROGRAM over TCP; returns how many bytes vgpud has sent to it."""
    with Host("tcp", tmp_path, "simulator", "h100", "libcuda.so.1") as host:
        environment = host.side.environment
        with Delay(environment["VGPU_ENDPOINT"], 0) as delay:

            def counted(program: str) -> int:
                before = delay.passed()
                changes = {"VGPU_TOKEN": environment["VGPU_TOKEN"]}
                run(delay.endpoint, PROGRAM + program, **changes)
                return delay.passed().since(before).received_nbytes

            yield counted


def test_only_pages_that_a_kernel_has_changed_come_back(received: Callable[[str], int]) -> None:
    nbytes = received(
        """
for i in range(STEPS):
    index = (i * 12345) % len(words)
    add_one(index)
    ok(cuda.cuCtxSynchronize())
    expected[index] += 1
    assert words[index] == expected[index]
assert list(words) == expected and not any(other)
"""
    )
    # What the program has written comes back once, as kernels may have written beside it; then a page in each step.
    assert nbytes < NBYTES + STEPS * 4 * 4096 + (64 << 10)


def test_what_host_and_kernels_write_beside_each_other_is_kept(received: Callable[[str], int]) -> None:
    """A page that the program has written is known again once it has come back; so is one that returns to zeros."""
    received(
        """
page = 1024
for i in range(STEPS):
    add_one(page)          # of a page of which the program writes another word, before and after the launch
    words[page + 1] = i
    ok(cuda.cuCtxSynchronize())
    assert (words[page], words[page + 1]) == (expected[page] + i + 1, i)
words[page], words[0] = 2**32 - 1, 2**32 - 1
words[page + 1:2 * page] = [0] * (page - 1)
add_one(page)              # all of the page is zeros, as it was when it was made
add_one(0)
ok(cuda.cuCtxSynchronize())
assert words[0] == 0 and not any(words[page:2 * page])
for index in range(0, len(words), page):   # more than one answer holds
    add_one(index)
ok(cuda.cuCtxSynchronize())
expected[0], expected[page:2 * page] = 0, [0] * page
for index in range(0, len(words), page):
    expected[index] += 1
assert list(words) == expected
"""
    )
