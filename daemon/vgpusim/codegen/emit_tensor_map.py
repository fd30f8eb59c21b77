"""tensormap: kernels that change a tensor map. A map is struct map of device/vgx_sim_tensor.c, whose offsets are
asserted there. Every change marks the object as a map, because kernels also make maps out of zeroes."""

from __future__ import annotations

from collections.abc import Callable

from vgpusim.codegen.emit_access import address
from vgpusim.codegen.emit_memory import pointer, space_of
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.ptx import ir

MAP_NBYTES, _MAP_ALIGN = 128, 64
_MAGIC = 0x50414D54
_RANK_MAX = 5
_RANK, _ADDRESS = 5, 8
_DIMENSIONS = {
    "global_dim": (48, 32, 5),
    "box_dim": (68, 32, 5),
    "element_stride": (88, 32, 5),
    "global_stride": (16, 64, 4),
}
"""By field: offset, bits of an element, elements."""
_CHOICES = {
    # Types that copies do not convert, by their numbers in PTX: their CUtensorMapDataType.
    "elemtype": (4, {**{number: number for number in range(8)}, 9: 8, 10: 9}),
    "swizzle_mode": (6, {number: number for number in range(4)}),
    "interleave_layout": (7, {0: 0}),
    "fill_mode": (7, {0: 0}),
    "swizzle_atomicity": (7, {0: 0}),
}
"""By field: offset, and what is written for each number; the others are not supported. Byte 7 is always zero."""
_STRIDES_IN_BYTES = (8, 5)
"""Since this PTX ISA. CUTLASS gives compilers before CUDA 12.5 bytes / 16 as a stride; how a newer assembler reads such
a text is not documented."""


@emits("tensormap")
def tensor_map(e: Emitter, ins: ir.Instruction) -> None:
    if ins.has("cp_fenceproxy"):
        _publish(e, ins)
    elif ins.has("replace") and ins.has("tile"):
        _replace(e, ins)
    else:
        raise e.unsupported()


def _replace(e: Emitter, ins: ir.Instruction) -> None:
    """tensormap.replace.tile.field{.space}.b1024.type [map], {ordinal,} value."""
    name = ins.one_of("global_address", "rank", *_DIMENSIONS, *_CHOICES)
    value = ins.operands[-1]
    if name is None or len(ins.operands) != (3 if name in _DIMENSIONS else 2):
        raise e.malformed("a field of a tensor map and its value expected")
    offset, nbits = _ADDRESS, 64
    if name in _DIMENSIONS:
        first, nbits, count = _DIMENSIONS[name]
        ordinal = ins.operands[1]
        if not isinstance(ordinal, ir.Imm) or not 0 <= ordinal.value < count:
            raise e.malformed(f"the ordinal of {name} must be 0 to {count - 1}")
        offset = first + ordinal.value * nbits // 8
        if name == "global_stride" and e.state.module.version < _STRIDES_IN_BYTES:
            raise e.unsupported("the unit of strides before PTX ISA 8.5 is not documented")
    elif name in _CHOICES:
        offset, numbers = _CHOICES[name]
        if not isinstance(value, ir.Imm):
            raise e.malformed(f"{name} must be an immediate")
        if value.value not in numbers:
            raise e.unsupported(f"{name} {value.value}")
        value, nbits = ir.Imm(numbers[value.value]), 8
    elif name == "rank":
        offset, nbits = _RANK, 32
    at = e.spread(
        "address", e.vector(address(e, ins, ins.operands[0], space_of(e, ins), MAP_NBYTES, _MAP_ALIGN, "write")), 64
    )
    what = e.spread("operand", e.vector(e.read(value, nbits)), nbits)

    def body(lane: str) -> None:
        place, text = at(lane), what(lane)
        if name == "global_dim":
            text = e.v(f"sub i32 {text}, 1")  # the map has the last index; 0 stands for 2**32
        elif name == "rank":  # one less than the rank
            limited = e.v(e.call("i32", "llvm.umin.i32", ("i32", text), ("i32", str(_RANK_MAX))))
            text = e.v(f"trunc i32 {e.v(f'add i32 {limited}, 1')} to i8")
        e.e(f"store i32 {_MAGIC}, ptr {pointer(e, place)}, align 4")
        kind = "i8" if name == "rank" else f"i{nbits}"
        e.e(f"store {kind} {text}, ptr {pointer(e, e.v(f'add i64 {place}, {offset}'))}, align 1")

    e.each_lane(body)


def _publish(e: Emitter, ins: ir.Instruction) -> None:
    """tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned [to], [from], 128: a
    copy, and a fence for what comes after it."""
    size = ins.operands[2] if len(ins.operands) == 3 else None
    if not isinstance(size, ir.Imm) or size.value != MAP_NBYTES:
        raise e.malformed(f"a size of {MAP_NBYTES} expected")
    places: list[Callable[[str], str]] = []
    for name, operand, space, kind in zip(
        ("address", "operand"), ins.operands, ("global", "shared"), ("write", "read"), strict=False
    ):
        places.append(e.spread(name, e.vector(address(e, ins, operand, space, MAP_NBYTES, _MAP_ALIGN, kind)), 64))
    to, source = places

    def body(lane: str) -> None:
        pair = (("ptr", pointer(e, to(lane))), ("ptr", pointer(e, source(lane))))
        e.e(e.call("void", "llvm.memcpy.p0.p0.i64", *pair, ("i64", str(MAP_NBYTES)), ("i1", "false")))

    e.each_lane(body)
    e.e("fence seq_cst")
