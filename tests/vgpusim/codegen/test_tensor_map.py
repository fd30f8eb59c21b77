"""tensormap.replace and tensormap.cp_fenceproxy: what they write. tests/programs/tensor_copy.cu copies by such maps."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from vgpusim.codegen.compile import PtxError

from tests.vgpusim.codegen.harness import run

HEADER = ".version {}\n.target sm_90a\n.address_size 64\n"
PUBLISH = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
FIELDS = [
    ("global_address.global.b1024.b64", "%x1"),
    ("rank.global.b1024.b32", "2"),
    ("box_dim.global.b1024.b32", "1, 64"),
    ("global_dim.global.b1024.b32", "0, %r0"),
    ("global_dim.global.b1024.b32", "1, 0"),
    ("global_stride.global.b1024.b64", "1, %x1"),
    ("element_stride.b1024.b32", "4, 3"),
    ("elemtype.global.b1024.b32", "10"),
    ("swizzle_mode.global.b1024.b32", "2"),
    ("interleave_layout.global.b1024.b32", "0"),
    ("fill_mode.global.b1024.b32", "0"),
]


def kernel(body: str, version: str = "8.5") -> str:
    return f"""{HEADER.format(version)}.visible .entry k(.param .u64 map) {{
.reg .b32 %r<4>; .reg .b64 %x<4>; .shared .align 128 .b8 other[128];
ld.param.u64 %x0, [map]; mov.u64 %x1, 0x123456780; mov.u32 %r0, 100; {body} ret; }}"""


def aligned() -> np.ndarray:
    whole = np.zeros(256, np.uint8)
    begin = -whole.ctypes.data % 128
    return whole[begin : begin + 128]


def test_each_field_lies_where_copies_look_for_it() -> None:
    """The layout is struct map of device/vgx_sim_tensor.c."""
    body = " ".join(f"tensormap.replace.tile.{field} [%x0], {value};" for field, value in FIELDS)
    found = aligned()
    assert not run(kernel(body), "k", 1, 1, [found]).failed
    strides, last, box, step = [0, 0x123456780, 0, 0], [99, 0xFFFFFFFF, 0, 0, 0], [0, 64, 0, 0, 0], [0, 0, 0, 0, 3]
    wanted = struct.pack("<IBBBBQ4Q5I5I5I", 0x50414D54, 9, 3, 2, 0, 0x123456780, *strides, *last, *box, *step)
    assert found.tobytes() == wanted.ljust(128, b"\0")


def test_a_map_in_shared_memory_is_copied() -> None:
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r2, other; mad.lo.u32 %r3, %r1, 4, %r2; st.shared.u32 [%r3], %r1;
bar.sync 0; setp.ne.u32 %p0, %r1, 0; @%p0 bra SEND;
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [other], %x1;
SEND: bar.warp.sync -1;
{PUBLISH} [%x0], [other], 128;
fence.proxy.tensormap::generic.acquire.gpu [%x0], 128;"""
    found = aligned()
    assert not run(kernel(f".reg .pred %p0; {body}"), "k", 1, 32, [found]).failed
    wanted = np.arange(32, dtype=np.uint32)
    wanted[0], wanted[2:4] = 0x50414D54, (0x23456780, 1)
    assert found.view(np.uint32).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("instruction", "version", "result"),
    [
        ("tensormap.replace.tile.fill_mode.global.b1024.b32 [%x0], 1", "8.5", 801),
        ("tensormap.replace.tile.interleave_layout.global.b1024.b32 [%x0], 2", "8.5", 801),
        ("tensormap.replace.tile.elemtype.global.b1024.b32 [%x0], 11", "8.5", 801),
        ("tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%x0], 4", "8.6", 801),
        ("tensormap.replace.tile.global_stride.global.b1024.b64 [%x0], 0, %x1", "8.4", 801),
        ("tensormap.replace.tile.box_dim.global.b1024.b32 [%x0], 5, 8", "8.5", 218),
        ("tensormap.replace.tile.elemtype.global.b1024.b32 [%x0], %r0", "8.5", 218),
        ("tensormap.replace.tile.rank.global.b1024.b32 [%x0], 1, 2", "8.5", 218),
        (f"{PUBLISH} [%x0], [other], 64", "8.5", 218),
    ],
)  # fmt: skip
def test_what_is_refused(instruction: str, version: str, result: int) -> None:
    with pytest.raises(PtxError, match="tensormap") as caught:
        run(kernel(f"{instruction};", version), "k", 1, 32, [aligned()])
    assert caught.value.result == result
