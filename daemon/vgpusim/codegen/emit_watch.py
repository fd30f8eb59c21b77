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


def _site(e: Emitter, ins: ir.Instruction, nbytes: int, align: int, kind: int, known: int = 0) -> str:
    """A constant struct vgx_sim_site; returns its name."""
    text, place = e.string(ins.text), e.string(ins.source or f"PTX line {ins.line}")
    key = f"site.{text[1:]}.{place[1:]}.{nbytes}.{align}.{kind}.{known}"
    fields = f"ptr {text}, ptr {place}, i32 {nbytes}, i32 {align}, i32 {kind}, i32 {known}"
    e.helper(key, f"@{key} = private constant {{ ptr, ptr, i32, i32, i32, i32 }} {{ {fields} }}")
    return f"@{key}"


def access(
    e: Emitter, ins: ir.Instruction, at: Value, nbytes: int, align: int, kind: str, mask: str | None,
    space: str = "", value: Value | None = None, sizes: str = "null",
) -> None:  # fmt: skip
    """Report the addresses that the acting lanes are about to access, unless known to be valid. `value`: what a store
    stores; `sizes`: each lane's bytes, in memory."""
    known = ins.line % abi.KNOWN_COUNT  # neighbouring lines differ
    if nbytes:
        name = e.unique("watch")
        is_known = _is_known(e, at, nbytes, align, space, mask or e.mask_bits(), known)
        e.e(f"br i1 {is_known}, label %{name}, label %{name}.ask")
        e.label(f"{name}.ask")
    place = e.stack("watch.address", f"[{WARP} x i64]")
    e.e(f"store {LANES.int(64)} {e.vector(at)}, ptr {place}, align 64")
    values = "null"
    if value is not None and value.nbits >= 8:
        values = e.stack(f"watch.value.{value.nbits}", f"[{WARP} x i{value.nbits}]")
        e.e(f"store {LANES.int(value.nbits)} {e.vector(value)}, ptr {values}, align 64")
    site = _site(e, ins, nbytes, align, _kind(ins, kind), known)
    e.e(e.service(abi.SERVICE_ACCESS, "void", ("ptr", "%thread"), ("ptr", site), ("ptr", place),
                  ("i32", mask or e.mask_bits()), ("ptr", values), ("ptr", sizes)))  # fmt: skip
    if nbytes:
        e.e(f"br label %{name}")
        e.label(name)


def _is_known(e: Emitter, at: Value, nbytes: int, align: int, space: str, mask: str, known: int) -> str:
    """Whether all acting lanes are aligned and lie in the range of struct vgx_sim_known, i1. Each access reads the
    struct: a call between two accesses may change it."""
    if space == "shared":
        begin = "%shared.w"
        end = e.v(f"add i64 {begin}, {_of_thread(e, abi.THREAD_KNOWN_SHARED)}")
        fresh = "true"
    else:
        entry = abi.THREAD_KNOWN + abi.KNOWN_NBYTES * known
        begin, end = _of_thread(e, entry + abi.KNOWN_BEGIN), _of_thread(e, entry + abi.KNOWN_END)
        generation = e.v(f"inttoptr i64 {_of_thread(e, entry + abi.KNOWN_GENERATION)} to ptr")
        now = e.v(f"load atomic i64, ptr {generation} acquire, align 8")
        fresh = e.v(f"icmp eq i64 {now}, {_of_thread(e, entry + abi.KNOWN_SEEN)}")
    least, last = begin, e.v(f"call i64 @llvm.usub.sat.i64(i64 {end}, i64 {nbytes})")
    e.declarations.add("declare i64 @llvm.usub.sat.i64(i64, i64)")
    if at.pattern.known:  # inactive lanes can at most cause an unnecessary check
        offsets = at.pattern.offsets()
        low, high = e.v(f"add i64 {at.text}, {min(offsets)}"), e.v(f"add i64 {at.text}, {max(offsets)}")
        inside = e.v(f"and i1 {e.v(f'icmp uge i64 {low}, {least}')}, {e.v(f'icmp ule i64 {high}, {last}')}")
        if not all(distance % align == 0 for distance in offsets):
            return "false"
        rest = e.v(f"icmp eq i64 {e.v(f'and i64 {at.text}, {align - 1}')}, 0")
        ordered = e.v(f"icmp ule i64 {low}, {high}")
        for condition in (rest, ordered, fresh):
            inside = e.v(f"and i1 {inside}, {condition}")
        return inside
    kind, text = LANES.int(64), e.vector(at)
    highest = e.splat(last, "i64")
    lanes = e.v(f"icmp uge {kind} {text}, {e.splat(least, 'i64')}")
    lanes = e.v(f"and {LANES.int(1)} {lanes}, {e.v(f'icmp ule {kind} {text}, {highest}')}")
    if align > 1:
        rest = e.v(f"and {kind} {text}, {LANES.const(align - 1, 64)}")
        lanes = e.v(f"and {LANES.int(1)} {lanes}, {e.v(f'icmp eq {kind} {rest}, {LANES.const(0, 64)}')}")
    wrong = e.v(f"xor i32 {e.v(f'bitcast {LANES.int(1)} {lanes} to i32')}, -1")
    none = e.v(f"icmp eq i32 {e.v(f'and i32 {wrong}, {mask}')}, 0")
    return e.v(f"and i1 {none}, {fresh}")


def _of_thread(e: Emitter, offset: int) -> str:
    """An i64 of struct vgx_sim_thread."""
    return e.v(f"load i64, ptr {e.v(f'getelementptr i8, ptr %thread, i64 {offset}')}, align 8")


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
    """Report that the warp has arrived at a barrier, leaves it, or has passed a fence."""
    place = e.stack("watch.sync", "{ ptr, i32, i32, i32, i32, i32 }")
    e.e(f"store ptr {_site(e, ins, 0, 1, _READ)}, ptr {place}")
    for index, text in enumerate((str(what), number, expected, mask, others)):
        at = e.v(f"getelementptr {{ ptr, i32, i32, i32, i32, i32 }}, ptr {place}, i32 0, i32 {index + 1}")
        e.e(f"store i32 {text}, ptr {at}")
    e.e(e.service(abi.SERVICE_SYNC, "void", ("ptr", "%thread"), ("ptr", place)))
