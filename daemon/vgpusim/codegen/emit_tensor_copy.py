"""cp.async.bulk.tensor: boxes of a tensor, between memory and shared memory, done at once by the C half, which knows
what a tensor map says (device/vgx_sim_tensor.c). Rows of words travel as for textures (emit_texture): the map's
address, five coordinates, the shared address; the bytes that were copied come back."""

from __future__ import annotations

from collections.abc import Callable

from vgpusim.codegen import abi
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_access import address
from vgpusim.codegen.emit_memory import pointer
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_pattern import VARYING
from vgpusim.codegen.lane_value import LANES, Value
from vgpusim.ptx import ir

_MAP_NBYTES = 128
_OPERATION = 6 << 4  # of vgx_sim_sample's forms
_ROWS, _ROW_COORDINATES, _ROW_SHARED = 7, 1, 6
_REDUCTIONS = {"add": 1, "min": 2, "max": 3, "inc": 4, "dec": 5, "and": 6, "or": 7, "xor": 8}
_WRITES = 1 << 12  # flag of a form: the copy goes from shared to global memory
_LANES_64 = LANES.int(64)


def tensor_copy(e: Emitter, ins: ir.Instruction, complete: Callable[[Emitter, str, str], str]) -> None:
    """cp.async.bulk.tensor.nd.shared.global{.tile}.mbarrier...{.multicast} [to], [map, {c}], [mbarrier]{, mask};
    cp{.reduce}.async.bulk.tensor.nd.global.shared{.op}{.tile}.bulk_group [map, {c}], [from]. `complete` gives the text
    of a call that reports bytes to an mbarrier."""
    if any("im2col" in word or "gather" in word or "scatter" in word or "cta_group" in word for word in ins.modifiers):
        raise e.unsupported()
    rank = int((ins.one_of("1d", "2d", "3d", "4d", "5d") or "0")[0])
    spaces = [word for word in ins.modifiers if word == "global" or word.startswith("shared")]
    operands = list(ins.operands)
    if ins.has("L2::cache_hint"):
        operands.pop()
    if not rank or len(spaces) != 2 or len(operands) < 2:
        raise e.malformed("a dimension and two state spaces expected")
    writes = spaces[0] == "global"
    tensor, shared = (operands[0], operands[1]) if writes else (operands[1], operands[0])
    if not isinstance(tensor, ir.Vector) or len(tensor.items) != 2:
        raise e.malformed("a tensor map with coordinates expected")
    coordinates = tensor.items[1].items if isinstance(tensor.items[1], ir.Vector) else ()
    if len(coordinates) != rank:
        raise e.malformed(f"{rank} coordinates expected")
    form = _OPERATION | rank
    if writes:
        form |= _WRITES
        if ins.has("reduce"):
            form |= _REDUCTIONS[ins.one_of(*_REDUCTIONS) or ""] << 13
    at = e.vector(address(e, ins, tensor.items[0], "", _MAP_NBYTES, 64, "read"))
    place = e.vector(address(e, ins, shared, "shared", 0, 16, "read" if writes else "write"))
    if writes:
        _copy(e, form, at, coordinates, place)
        return
    barrier = e.vector(address(e, ins, operands[2], "shared", 8, 8, "atomic"))
    if not ins.has("multicast::cluster"):
        _copy(e, form, at, coordinates, place)
        _report(e, barrier, complete)
        return
    each_destination(e, operands[3], lambda moved: _to_one(e, form, at, coordinates, (place, barrier), moved, complete))


def each_destination(e: Emitter, mask: ir.Operand, body: Callable[[str], None]) -> None:
    """For each CTA of the cluster that some lane's mask names: `body`, under a guard of the lanes that name it. `body`
    gets the distance to that CTA's shared memory, an i64."""
    wanted = e.vector(e.read(mask, 16))
    guard, count = e.guard, 1 if e.cluster is None else e.cluster[0] * e.cluster[1] * e.cluster[2]
    for rank in range(count):
        bit = e.v(f"and {LANES.int(16)} {wanted}, {LANES.const(1 << rank, 16)}")
        named = e.v(f"icmp ne {LANES.int(16)} {bit}, zeroinitializer")
        if guard is not None:
            named = e.v(f"and {LANES.int(1)} {named}, {e.vector(guard)}")
        e.guard = Value(named, 1, VARYING)
        moved = "0"
        if e.cluster is not None:
            steps = e.v(f"mul i32 {e.v(f'sub i32 {rank}, %rank')}, %stride")
            moved = e.v(f"sext i32 {steps} to i64")
        e.if_any(lambda moved=moved: body(moved))  # type: ignore[misc]
    e.guard = guard


def _to_one(
    e: Emitter, form: int, at: str, coordinates: tuple[ir.Operand, ...], places: tuple[str, str], moved: str,
    complete: Callable[[Emitter, str, str], str],
) -> None:  # fmt: skip
    place, barrier = (e.v(f"add {_LANES_64} {text}, {e.splat(moved, 'i64')}") for text in places)
    _copy(e, form, at, coordinates, place)
    _report(e, barrier, complete)


def _copy(e: Emitter, form: int, at: str, coordinates: tuple[ir.Operand, ...], place: str) -> None:
    rows = e.stack("tensor.in", f"[{_ROWS * WARP} x i64]")
    out = e.stack("tensor.out", f"[{WARP} x i64]")

    def put(row: int, text: str) -> None:
        where = e.v(f"getelementptr i64, ptr {rows}, i32 {row * WARP}")
        e.e(f"store {_LANES_64} {text}, ptr {where}, align 64")

    put(0, at)
    for i, coordinate in enumerate(coordinates):
        put(_ROW_COORDINATES + i, e.resize(LANES, e.vector(e.read(coordinate, 32)), 32, 64))
    put(_ROW_SHARED, place)
    arguments = (("i64", str(form)), ("i32", e.mask_bits()), ("ptr", rows), ("ptr", out))
    e.e(e.service(abi.SERVICE_TEXTURE, "void", *arguments))


def _report(e: Emitter, barrier: str, complete: Callable[[Emitter, str, str], str]) -> None:
    out = e.stack("tensor.out", f"[{WARP} x i64]")
    where = e.spread("mbarrier", barrier, 64)

    def body(lane: str) -> None:
        nbytes = e.v(f"load i64, ptr {e.v(f'getelementptr i64, ptr {out}, i32 {lane}')}")
        e.v(complete(e, pointer(e, where(lane)), e.v(f"sub i64 0, {nbytes}")))

    e.each_lane(body)
