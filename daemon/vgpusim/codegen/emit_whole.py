"""Ordered accesses of vectors and of 128 bits: each lane's is one access of the processor.

The PTX ISA calls a vector's elements accesses of their own, but cards do a lane's 16 bytes at once, and programs rely
on it: NCCL sends data and the flag that says that they are there in one vector (protocol LL, src/device/prims_ll.h), so
a receiver that sees the flag of one store and the data of an earlier one computes wrong results. x86 processors with
AVX do aligned accesses of 16 bytes at once (Intel SDM, volume 3A, "Guaranteed Atomic Operations").

LLVM is told an element's alignment alone: a kernel's own variable may be aligned to its elements, which emit_access
accepts, and an instruction for aligned vectors would end the process there.
"""

from __future__ import annotations

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_segment import load_tuples, store_tuples
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES, SCALAR, Form, Value

_UNIT_NBITS = 128  # what a processor loads or stores at once
_PART_NBITS = 64


def _units(nbits: int, count: int) -> tuple[str, int, int]:
    """The type of an access, its bytes, and how many there are."""
    unit = min(_UNIT_NBITS, nbits * count)
    return "<2 x i64>" if unit == _UNIT_NBITS else f"i{unit}", unit // 8, nbits * count // unit


def _pointer(e: Emitter, text: str, offset: int) -> str:
    return e.v(f"inttoptr i64 {e.v(f'add i64 {text}, {offset}') if offset else text} to ptr")


def load_whole(e: Emitter, place: Value, nbits: int, count: int) -> list[tuple[Form, str]]:
    """Each of `count` elements, for all lanes; 0 where none acts."""
    kind, nbytes, units = _units(nbits, count)
    align = min(nbits, _PART_NBITS) // 8
    lanes = 1 if place.uniform else WARP
    slot = e.stack(f"whole.{lanes}.{units}.{nbytes}", f"[{lanes * units} x {kind}]")
    e.e(f"store [{lanes * units} x {kind}] zeroinitializer, ptr {slot}, align 64")

    def body(address: str, lane: str) -> None:
        for index in range(units):
            text = e.v(f"load volatile {kind}, ptr {_pointer(e, address, index * nbytes)}, align {align}")
            at = e.v(f"add i32 {e.v(f'mul i32 {lane}, {units}')}, {index}")
            e.e(f"store {kind} {text}, ptr {e.v(f'getelementptr {kind}, ptr {slot}, i32 {at}')}, align {nbytes}")

    if place.uniform:
        e.if_any(lambda: body(place.text, "0"))
        return [
            (SCALAR, e.v(f"load i{nbits}, ptr {e.v(f'getelementptr i{nbits}, ptr {slot}, i32 {index}')}"))
            for index in range(count)
        ]
    where = e.spread("address", e.vector(place), 64)
    e.each_lane(lambda lane: body(where(lane), lane))
    return [(LANES, text) for text in load_tuples(e, e.v(f"ptrtoint ptr {slot} to i64"), nbits, count)]


def store_whole(e: Emitter, place: Value, values: list[Value]) -> None:
    """Store the acting lanes' elements, lane after lane."""
    nbits = values[0].nbits
    kind, nbytes, units = _units(nbits, len(values))
    align = min(nbits, _PART_NBITS) // 8
    slot = e.stack(f"whole.{WARP}.{units}.{nbytes}", f"[{WARP * units} x {kind}]")
    store_tuples(e, e.v(f"ptrtoint ptr {slot} to i64"), [e.vector(value) for value in values], nbits)
    where = e.spread("address", e.vector(place), 64)

    def body(lane: str) -> None:
        address = where(lane)
        for index in range(units):
            at = e.v(f"add i32 {e.v(f'mul i32 {lane}, {units}')}, {index}")
            text = e.v(f"load {kind}, ptr {e.v(f'getelementptr {kind}, ptr {slot}, i32 {at}')}, align {nbytes}")
            e.e(f"store volatile {kind} {text}, ptr {_pointer(e, address, index * nbytes)}, align {align}")

    if place.uniform and all(value.uniform for value in values):
        e.if_any(lambda: body("0"))
    else:
        e.each_lane(body)
