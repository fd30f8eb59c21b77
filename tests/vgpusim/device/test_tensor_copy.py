"""Where boxes of a tensor may begin in their row, as on an H200 (580.159.04, 2026-11-30). What is copied:
tests/programs/tensor_copy.cu."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from subprocess import CompletedProcess

import numpy as np
import pytest

from tests.shim.client import PRELUDE

from .conftest import Simulator

Run = Callable[..., CompletedProcess[str]]

COPY, WRITES, ADD = 6 << 4, 1 << 12, 1 << 13  # of codegen/emit_tensor_copy.py
LOAD, STORE, REDUCE = COPY | 2, COPY | 2 | WRITES, COPY | 2 | WRITES | ADD
UNALIGNED, NEGATIVE = b"not a multiple of 16", b"is negative"
WORDS, HALVES, BYTES = (7, 4), (6, 2), (0, 1)  # CUtensorMapDataType, bytes


@pytest.mark.parametrize(
    ("form", "element", "x", "wrong"),
    [
        (LOAD, WORDS, 30, UNALIGNED),
        (LOAD, WORDS, -3, UNALIGNED),
        (LOAD, WORDS, -4, None),
        (LOAD, WORDS, 28, None),
        (LOAD, HALVES, 4, UNALIGNED),
        (LOAD, HALVES, -8, None),
        (LOAD, BYTES, 8, UNALIGNED),
        (LOAD, BYTES, 16, None),
        (STORE, WORDS, 1, UNALIGNED),
        (STORE, WORDS, -4, NEGATIVE),
        (STORE, WORDS, 32, None),
        (REDUCE, WORDS, 2, UNALIGNED),
        (REDUCE, WORDS, -4, NEGATIVE),
        (REDUCE, WORDS, 24, None),
    ],
)
def test_where_a_box_may_begin(
    sim: Simulator, form: int, element: tuple[int, int], x: int, wrong: bytes | None
) -> None:
    kind, nbytes = element
    tensor, box = sim.alloc(30 * 160), np.full(12 * 80 + 128, 1, np.uint8)
    ctypes.memset(tensor, 0, 30 * 160)
    made, context = ctypes.create_string_buffer(128), ctypes.c_void_p()
    dims, strides = (ctypes.c_uint64 * 2)(160 // nbytes, 30), (ctypes.c_uint64 * 1)(160)
    extent, ones = (ctypes.c_uint32 * 2)(80 // nbytes, 12), (ctypes.c_uint32 * 2)(1, 1)
    sim.ok("cuTensorMapEncodeTiled", made, kind, 2, ctypes.c_void_p(tensor), dims, strides, extent, ones, 0, 0, 0, 0)
    sim.ok("cuCtxGetCurrent", ctypes.byref(context))
    rows, moved = np.zeros((12, 32), np.uint64), np.zeros(32, np.uint64)
    rows[0], rows[1], rows[2] = ctypes.addressof(made), np.uint64(x % 2**64), 2
    rows[6] = box.ctypes.data + -box.ctypes.data % 128
    sim.lib.vgx_sim_sample.restype = ctypes.c_char_p
    said = sim.lib.vgx_sim_sample(context, ctypes.c_uint64(form), 1, rows.ctypes, moved.ctypes)
    if wrong is None:
        assert said is None
        assert moved[0] == 12 * 80
    else:
        assert wrong in said
        assert b"illegal instruction" in said
        assert ctypes.string_at(tensor, 30 * 160) == bytes(30 * 160)  # nothing was written before
    sim.ok("cuMemFree_v2", ctypes.c_uint64(tensor))


def test_a_kernel_ends_with_an_illegal_instruction(h100_run: Run) -> None:
    program = f"""{PRELUDE}
context()
PTX = b'''.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u32 x) {{
  .reg .b64 %rd<3>; .reg .b32 %r<3>; .shared .align 128 .b8 box[960];
  mov.b64 %rd1, map; cvta.param.u64 %rd2, %rd1; ld.param.u32 %r1, [x]; mov.u32 %r2, box;
  cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd2, {{%r1, 2}}], [%r2];
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;
}}'''
module, function, tensor, made = c_void_p(), c_void_p(), c_uint64(), create_string_buffer(192)
ok(cuda.cuModuleLoadData(byref(module), PTX))
ok(cuda.cuModuleGetFunction(byref(function), module, b"k"))
ok(cuda.cuMemAlloc_v2(byref(tensor), c_size_t(4800)))
at = ctypes.addressof(made) + -ctypes.addressof(made) % 64
ok(cuda.cuTensorMapEncodeTiled(c_void_p(at), 7, 2, tensor, (c_uint64 * 2)(40, 30), (c_uint64 * 1)(160),
                               (c_uint * 2)(20, 12), (c_uint * 2)(1, 1), 0, 0, 0, 0))
for x, result in ((28, 0), (30, 715)):
    column = c_int(x)
    arguments = (c_void_p * 2)(at, ctypes.addressof(column))
    ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
    assert cuda.cuCtxSynchronize() == result, x
"""
    done = h100_run([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
    assert "kernel k ended with error 715: a tensor copy whose first coordinate" in done.stderr, done.stderr
