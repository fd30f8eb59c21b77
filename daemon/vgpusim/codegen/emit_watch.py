"""Watched kernels: the sanitizer (device/vgx_sim_watch.h) learns of each access and barrier before it is made."""

from __future__ import annotations

from vgpusim.codegen import abi
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES, Value
from vgpusim.ptx import ir

_READ, _WRITE, _ATOMIC, _ACQUIRE, _RELEASE, _OBJECT = range(6)  # enum vgx_sim_access_kind
WAIT, ARRIVE, RESUME, IN_WARP, FENCE = range(5)  # enum vgx_sim_sync
_ORDERED = ("volatile", "relaxed", "acquire", "release", "mmio")
_KINDS = {"read": _READ, "write": _WRITE, "atomic": _ATOMIC}


def _kind(ins: ir.Instruction, kind: str) -> int:
    if ins.opcode in ("mbarrier", "cp") and kind == "atomic":
        return _OBJECT
    if kind:
        return _KINDS[kind]
    if ins.opcode in ("atom", "red"):
        return _ATOMIC
    ordered = ins.opcode in ("ld", "st") and ins.has(*_ORDERED)
    if ins.opcode in ("st", "stmatrix") or ins.has("store"):
        return _RELEASE if ordered else _WRITE
    return _ACQUIRE if ordered else _READ


def _site(e: Emitter, ins: ir.Instruction, nbytes: int, align: int, kind: int) -> str:
    """A constant struct vgx_sim_site; returns its name."""
    text, place = e.string(ins.text), e.string(ins.source or f"PTX line {ins.line}")
    key = f"site.{text[1:]}.{place[1:]}.{nbytes}.{align}.{kind}"
    fields = f"ptr {text}, ptr {place}, i32 {nbytes}, i32 {align}, i32 {kind}, i32 0"
    e.helper(key, f"@{key} = private constant {{ ptr, ptr, i32, i32, i32, i32 }} {{ {fields} }}")
    return f"@{key}"


def access(
    e: Emitter, ins: ir.Instruction, at: Value, nbytes: int, align: int, kind: str, mask: str | None,
    value: Value | None = None, sizes: str = "null",
) -> None:  # fmt: skip
    """Say which addresses the acting lanes are about to access. `value`: what a store stores; `sizes`: each lane's
    bytes, in memory."""
    place = e.stack("watch.address", f"[{WARP} x i64]")
    e.e(f"store {LANES.int(64)} {e.vector(at)}, ptr {place}, align 64")
    values = "null"
    if value is not None and value.nbits >= 8:
        values = e.stack(f"watch.value.{value.nbits}", f"[{WARP} x i{value.nbits}]")
        e.e(f"store {LANES.int(value.nbits)} {e.vector(value)}, ptr {values}, align 64")
    site = _site(e, ins, nbytes, align, _kind(ins, kind))
    e.e(e.service(abi.SERVICE_ACCESS, "void", ("ptr", "%thread"), ("ptr", site), ("ptr", place),
                  ("i32", mask or e.mask_bits()), ("ptr", values), ("ptr", sizes)))  # fmt: skip


def elsewhere(e: Emitter) -> str:
    """The warp's lanes that wait at other blocks. Those that only have to end count as ended."""
    lanes = "0"
    for number, block in enumerate(e.graph.blocks):
        ends = block.terminator is not None and block.terminator.opcode in ("ret", "exit") and not block.instructions
        if number != e.position and not ends:
            waiting = e.v(f"load i32, ptr %m{number}")
            lanes = e.v(f"or i32 {lanes}, {waiting}")
    return lanes


def sync(
    e: Emitter, ins: ir.Instruction, what: int, number: str = "0", expected: str = "0", mask: str = "-1",
    others: str = "0",
) -> None:  # fmt: skip
    """Say that the warp has come to a barrier, or leaves it, or that a fence orders its accesses."""
    place = e.stack("watch.sync", "{ ptr, i32, i32, i32, i32, i32 }")
    e.e(f"store ptr {_site(e, ins, 0, 1, _READ)}, ptr {place}")
    for index, text in enumerate((str(what), number, expected, mask, others)):
        at = e.v(f"getelementptr {{ ptr, i32, i32, i32, i32, i32 }}, ptr {place}, i32 0, i32 {index + 1}")
        e.e(f"store i32 {text}, ptr {at}")
    e.e(e.service(abi.SERVICE_SYNC, "void", ("ptr", "%thread"), ("ptr", place)))
