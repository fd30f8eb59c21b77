"""The form of an instruction: how many operands it takes, and whether it needs a type.

A violation is an error of the image, by line, as a card's assembler reports it. What is well formed and not implemented
is refused by the emitter. An opcode that is not listed is not checked here."""

from __future__ import annotations

import re

from vgpusim.ptx import ir

_COUNTS: dict[tuple[int, int], str] = {
    (0, 0): "exit ret trap brkpt",
    (0, 1): "nanosleep pmevent griddepcontrol setmaxnreg",
    (1, 1): "activemask elect",
    (1, 2): "discard applypriority prefetch prefetchu bar barrier",
    (2, 2): "abs neg not cnot popc clz brev bfind mov sin cos ex2 lg2 tanh rcp sqrt rsqrt testp isspacep cvta "
            "movmatrix getctarank",
    (2, 3): "ld ldu st ldmatrix stmatrix vote match redux red elect",
    (2, 4): "cvt",
    (3, 3): "add sub mul div rem and or xor shl shr copysign mul24 addc subc szext bmsk mapa",
    (3, 4): "min max set setp",
    (3, 5): "atom",
    (4, 4): "fma mad mad24 madc sad bfe shf prmt dp4a dp2a slct selp",
    (4, 5): "shfl",
    (5, 5): "bfi",
    (5, 6): "lop3",
}  # fmt: skip
_COUNT = {opcode: bounds for bounds, opcodes in _COUNTS.items() for opcode in opcodes.split()}
_COUNT |= {"elect": (2, 2), "bar": (0, 4), "barrier": (0, 4), "shfl": (4, 5)}

_TYPED = frozenset(
    """
    abs add addc and atom bfe bfi bfind bmsk brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2 fma ld ldu lg2
    lop3 mad mad24 madc max min mov mul mul24 neg not or popc prmt rcp red redux rem rsqrt sad selp set setp shf
    shfl shl shr sin slct sqrt st sub subc szext tanh testp xor
    """.split()  # noqa: SIM905
)
_TWO_TYPES = frozenset(["set", "slct", "dp4a", "dp2a"])
_LANES = (1, 2, 4, 8)
_SHAPE = re.compile(r"m\d+n\d+(k\d+)?$|m\d+k\d+$")


def fault(ins: ir.Instruction) -> str | None:
    """What is malformed about an instruction, None when nothing is."""
    bounds = _COUNT.get(ins.opcode)
    count = len(ins.operands)
    if bounds is not None and not bounds[0] <= count <= bounds[1]:
        wanted = str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]} to {bounds[1]}"
        return f"takes {wanted} operands, not {count}"
    if ins.opcode in _TYPED:
        types = sum(name in ir.TYPE_NBITS for name in ins.modifiers)
        if types < (2 if ins.opcode in _TWO_TYPES else 1):
            return "has too few types"
    if ins.opcode in ("ld", "ldu", "st"):
        address, value = ins.operands[:2] if ins.opcode == "st" else (ins.operands[1], ins.operands[0])
        if not isinstance(address, ir.Address):
            return "needs an address"
        if isinstance(value, ir.Vector) and len(value.items) not in _LANES:
            return f"moves a vector of {len(value.items)} elements"
    return None


_MODIFIERS = frozenset(
    """
    128x128b 128x256b 16x128b 16x256b 16x64b 1d 1x 2d 2dms 2x 32x128b 32x32b 3d 4x 4x256b 64x128b L1 L2 NaN a a1d a2d
    a2dms abi abs acq_rel acquire acube add add_noftz addr addr_mode_0 addr_mode_1 addr_mode_2 alias aligned all alloc
    and any approx array_size arrive arrive_drop async async_generic b b1 b1024 b4 b4e b4x16 b4x16_p64 b4x2 b6 b6x16_p32
    b6x2 b8 ballot base bf bfly block_scale box_dim bulk bulk_group c ca cas cc cg channel_data_type channel_order clamp
    cluster col collector commit commit_group complete_tx const cp cp_fenceproxy cs cta cta_group cube cv cvt d dealloc
    dec depth desc down dsmem e2m1 e2m1x2 e2m1x4 e2m3 e2m3x2 e2m3x4 e3m2 e3m2x2 e3m2x4 e4m3 e4m3x2 e4m3x4 e5m2 e5m2x2
    e5m2x4 ecl ecr element_stride elemtype eq equ exch expect_tx f4e fence fill_mode filter_mode finite
    force_unnormalized_coords fractional ftz full g ge get geu gl global global_address global_dim global_stride gpu
    grad gt gtu h0 h1 height hi hs idx im2col im2col_no_offs inc inc_wrap infinite init interleave_layout inval
    is_canceled is_explicit item kind l launch_dependents layout ld ld_reduce le leu level lo load local ls lt ltu lu
    max maxntid mbarrier mbarrier_init merge min mma mma_async mmio mul multicast mxf4 mxf4nvf4 mxf8f6f4 n1x2 n1x4 nan
    nc ne neg neu noComplete nofetch noftz noinc normal normalized_coords not notanumber num num_mipmap_levels
    num_samples number oob or ordered_metadata pack param parity pending_count popc proxy query_cancel r rank rc16 rc8
    read red reduce registers relaxed release relinquish_alloc_permit relu replace rm rmi rn rna rni row row_major rp
    rpi rs rz rzi s s2 s2f6x2 s4 s8x4 samplerref sat satfinite sc scale_vec_size sem shared shift shiftamt shr15 shr7 sp
    sparsity spform st store subnormal sum surfref swizzle_atomicity swizzle_mode sync sys tensor tensormap
    tensormap_generic test_wait texref tf32 tile to trans transpose trap try_cancel try_wait u u2 u4 u8x4 ue4m3 ue4m3x2
    ue5m3 ue5m3x2 ue8m0 ue8m0x2 uni unified unpack up v2 v4 v8 vec volatile vote wait wait_all wait_group wait_sync warp
    warpx2 warpx4 wb weak wide wide2 width wrap ws wt x1 x128 x16 x2 x32 x4 x64 x8 xor xorsign zero zfill
    """.split()  # noqa: SIM905
)
"""Modifiers of any instruction that are not types; those with `::` and shapes are known by their form."""


OF_PARTS = frozenset("vadd vsub vabsdiff vmin vmax vshl vshr vset vmad".split())  # noqa: SIM905
"""Instructions whose operands d, a and b may be parts of registers, which the parser leaves as modifiers `a:b0`."""


def unknown_modifier(ins: ir.Instruction) -> str | None:
    """An unknown modifier. It must not be ignored, because that could change the result."""
    for name in ins.modifiers:
        known = name in ir.TYPE_NBITS or name in _MODIFIERS or "::" in name or _SHAPE.match(name)
        if not known and not (":" in name and ins.opcode in OF_PARTS):
            return name
    return None
