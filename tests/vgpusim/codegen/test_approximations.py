"""Approximate functions of f32 give an H200's bits for every operand of some blocks.

data/approximations-h200.tsv has sums that an H200 (580.159.04, 2026-11-30) computed with this kernel. Each covers 2**20
operands with the same leading 12 bits: zeros and subnormals, usual numbers of both signs, infinities and NaNs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import HEADER, run

_DATA = Path(__file__).parent / "data" / "approximations-h200.tsv"
_LINES = [line.split("\t") for line in _DATA.read_text().splitlines() if not line.startswith("#")]
_KERNEL = """.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .b32 %t<5>; .reg .b64 %x<6>; .reg .f32 %f<2>; .reg .pred %p;
ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out];
mov.u32 %t0, %ctaid.x; mov.u32 %t3, %tid.x; mad.wide.u32 %x1, %t0, 8, %x1; mad.wide.u32 %x0, %t0, 4, %x0;
ld.global.u32 %t0, [%x0]; shl.b32 %t0, %t0, 20; or.b32 %t2, %t0, %t3; mov.u32 %t4, 0; mov.u64 %x5, 0;
next: mov.b32 %f0, %t2; {operation} %f1, %f0; mov.b32 %t1, %f1; cvt.u64.u32 %x4, %t1;
mul.lo.u64 %x4, %x4, 0x9E3779B97F4A7C15; cvt.u64.u32 %x2, %t2; mul.lo.u64 %x2, %x2, 0xD6E8FEB86659FD93;
xor.b64 %x4, %x4, %x2; shr.u64 %x2, %x4, 32; xor.b64 %x4, %x4, %x2; mul.lo.u64 %x4, %x4, 0xC2B2AE3D27D4EB4F;
shr.u64 %x2, %x4, 29; xor.b64 %x4, %x4, %x2; add.u64 %x5, %x5, %x4;
add.u32 %t2, %t2, 256; add.u32 %t4, %t4, 256; setp.lt.u32 %p, %t4, 1048576; @%p bra next;
atom.global.add.u64 %x2, [%x1], %x5; ret; }}"""


@pytest.mark.parametrize(("operation", "blocks"), _LINES)
def test_blocks_of_operands(operation: str, blocks: str) -> None:
    recorded = {int(number, 16): int(total, 16) for number, total in (block.split(":") for block in blocks.split())}
    sums = np.zeros(len(recorded), np.uint64)
    run(HEADER + _KERNEL.format(operation=operation), "k", len(sums), 256, [np.array([*recorded], np.uint32), sums])
    assert dict(zip(recorded, sums.tolist(), strict=True)) == recorded
