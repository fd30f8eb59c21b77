"""atom and red: one lane after another. Shared memory belongs to one CTA, which runs on one thread, so a plain
read-modify-write is atomic there."""

from __future__ import annotations

from collections.abc import Callable

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_access import address
from vgpusim.codegen.emit_memory import elements, fence_after, fence_before, pointer, space_of
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES, SCALAR, Value
from vgpusim.ptx import ir

_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
_RMW = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap"}


@emits("atom", "red")
def atomic(e: Emitter, ins: ir.Instruction) -> None:
    operation = ins.one_of(*_OPERATIONS)
    if ins.has("async", "multimem") or (ins.type == "b128" and operation not in ("cas", "exch")):
        raise e.unsupported()
    if operation is None:
        raise e.malformed("atomic operation missing")
    kind = ins.type
    nbits = ir.TYPE_NBITS[kind]
    operands = ins.operands[1:] if ins.opcode == "atom" else ins.operands
    target = ins.operands[0] if ins.opcode == "atom" else ir.Sink()
    space = space_of(e, ins)
    place = address(e, ins, operands[0], space, nbits // 8 * len(elements(operands[1])))
    ordered = ins.has("acquire", "release", "acq_rel")
    if ordered:
        fence_before(e, ins)
    targets, sources = elements(target), elements(operands[1])
    for index, source in enumerate(sources):
        where = _in_shared(e, place) if space == "shared" else _by_lane(e, "address", place)
        what = _by_lane(e, "operand", e.read(source, nbits))
        other = None
        if operation == "cas":
            other = _by_lane(e, "operand2", e.read(operands[2], nbits))
        wanted = len(targets) > index and not isinstance(targets[index], ir.Sink)
        result = e.stack(f"result0.{nbits}", f"[{WARP} x i{nbits}]")

        def body(lane: str, where=where, what=what, other=other, index=index, wanted=wanted, result=result) -> None:  # type: ignore[no-untyped-def]  # fmt: skip
            at = where(lane)
            if index:
                at = e.v(f"add i64 {at}, {index * nbits // 8}")
            flushes = _flushes(e, space, at) if kind == "f32" and operation == "add" else ""
            new = other(lane) if other else ""
            old = _one(e, kind, operation, pointer(e, at), what(lane), new, space == "shared", flushes)
            if wanted:
                e.e(f"store i{nbits} {old}, ptr {e.v(f'getelementptr i{nbits}, ptr {result}, i32 {lane}')}")

        if space == "shared" and e.in_loop and not e.is_large:
            _all_lanes(e, body)
        else:
            e.each_lane(body)
        if wanted:
            e.put(targets[index], LANES, e.v(f"load {LANES.int(nbits)}, ptr {result}, align 64"), nbits)
    if ordered:
        fence_after(e, ins)


def _by_lane(e: Emitter, name: str, value: Value) -> Callable[[str], str]:
    """A function that emits the read of a lane's element."""
    return (lambda _: value.text) if value.uniform else e.spread(name, e.vector(value), value.nbits)


def _in_shared(e: Emitter, place: Value) -> Callable[[str], str]:
    """The same for addresses in shared memory. Those without a pattern are read from an array of offsets, two at a
    time where the lanes are numbers: LLVM would take the vector apart, in two or three instructions each."""
    if place.pattern.known:
        return _by_lane(e, "address", place)
    wide = e.v(f"sub {LANES.int(64)} {e.vector(place)}, {e.splat('%shared', 'i64')}")
    narrow = e.v(f"trunc {LANES.int(64)} {wide} to {LANES.int(32)}")
    offsets = e.stack("offset.32", f"[{WARP} x i32]")
    for start in range(0, WARP, 8):
        chosen = ", ".join(f"i32 {lane}" for lane in range(start, start + 8))
        part = e.v(f"shufflevector {LANES.int(32)} {narrow}, {LANES.int(32)} poison, <8 x i32> <{chosen}>")
        at = e.v(f"getelementptr i32, ptr {offsets}, i32 {start}")
        e.e(f"store volatile <8 x i32> {part}, ptr {at}, align 32")

    pairs: dict[int, str] = {}

    def read(lane: str) -> str:
        number = int(lane) if lane.isdigit() else -1
        at = e.v(f"getelementptr i32, ptr {offsets}, i32 {lane}")
        if number - 1 in pairs:
            offset = e.v(f"lshr i64 {pairs.pop(number - 1)}, 32")
        elif number % 2:
            offset = e.v(f"zext i32 {e.v(f'load volatile i32, ptr {at}')} to i64")
        else:
            pairs[number] = e.v(f"load volatile i64, ptr {at}, align 8")
            offset = e.v(f"and i64 {pairs[number]}, {(1 << 32) - 1}")
        return e.v(f"add i64 %shared, {offset}")

    return read


def _all_lanes(e: Emitter, body: Callable[[str], None]) -> None:
    """A loop over the acting lanes; where all act, as in most rounds of most loops, unrolled."""
    bits = e.mask_bits()
    if bits == "-1":
        for lane in range(WARP):
            body(str(lane))
        return
    name = e.unique("lanes")
    e.e(f"br i1 {e.v(f'icmp eq i32 {bits}, -1')}, label %{name}.all, label %{name}.some")
    e.label(f"{name}.all")
    for lane in range(WARP):
        body(str(lane))
    e.e(f"br label %{name}.end")
    e.label(f"{name}.some")
    e.each_lane(body)
    e.e(f"br label %{name}.end")
    e.label(f"{name}.end")


def _flushes(e: Emitter, space: str, at: str) -> str:
    """Whether a card's addition of f32 to this address makes subnormals zeros, an i1: its global memory does, an SM's
    shared memory does not."""
    if space:
        return "true" if space == "global" else ""
    return e.v(f"icmp uge i64 {e.v(f'sub i64 {at}, %shared')}, {1 << 32}")


def _one(e: Emitter, kind: str, operation: str, at: str, value: str, new: str, private: bool, flushes: str) -> str:
    """One lane's operation; the old value, as an integer."""
    nbits = ir.TYPE_NBITS[kind]
    if operation == "cas":
        if private:
            old = e.v(f"load i{nbits}, ptr {at}, align {nbits // 8}")
            same = e.v(f"icmp eq i{nbits} {old}, {value}")
            e.e(
                f"store i{nbits} {e.v(f'select i1 {same}, i{nbits} {new}, i{nbits} {old}')}, ptr {at}, "
                f"align {nbits // 8}"
            )
            return old
        pair = e.v(f"cmpxchg ptr {at}, i{nbits} {value}, i{nbits} {new} monotonic monotonic")
        return e.v(f"extractvalue {{ i{nbits}, i1 }} {pair}, 0")
    floating = kind[0] == "f" or kind.startswith("bf")
    if private or (floating and operation != "exch"):
        return _read_modify_write(e, kind, operation, at, value, private, flushes)
    name = _RMW.get(operation) or ("" if kind[0] == "s" else "u") + operation
    return e.v(f"atomicrmw {name} ptr {at}, i{nbits} {value} monotonic")


def _read_modify_write(e: Emitter, kind: str, operation: str, at: str, value: str, private: bool, flushes: str) -> str:
    nbits = ir.TYPE_NBITS[kind]
    if private:
        old = e.v(f"load i{nbits}, ptr {at}, align {nbits // 8}")
        e.e(f"store i{nbits} {_combine(e, kind, operation, old, value)}, ptr {at}, align {nbits // 8}")
        return old
    name = e.unique("cas")
    first = e.v(f"load atomic i{nbits}, ptr {at} monotonic, align {nbits // 8}")
    e.e(f"br label %{name}.pre")
    e.label(f"{name}.pre")
    e.e(f"br label %{name}")
    e.label(name)
    e.e(f"%{name}.old = phi i{nbits} [ {first}, %{name}.pre ], [ %{name}.seen, %{name} ]")
    new = _combine(e, kind, operation, f"%{name}.old", value, flushes)
    pair = e.v(f"cmpxchg ptr {at}, i{nbits} %{name}.old, i{nbits} {new} monotonic monotonic")
    e.e(f"%{name}.seen = extractvalue {{ i{nbits}, i1 }} {pair}, 0")
    done = e.v(f"extractvalue {{ i{nbits}, i1 }} {pair}, 1")
    e.e(f"br i1 {done}, label %{name}.end, label %{name}")
    e.label(f"{name}.end")
    return f"%{name}.old"


def _combine(e: Emitter, kind: str, operation: str, old: str, value: str, flushes: str = "") -> str:
    from vgpusim.codegen import emit_float

    nbits = ir.TYPE_NBITS[kind]
    if kind[0] == "f" or kind.startswith("bf"):
        if operation == "exch":
            return value
        packed = kind.endswith("x2")
        form = type(SCALAR)(2) if packed else SCALAR
        base = kind[:-2] if packed else kind
        values = [old, value]
        if packed:
            values = [e.v(f"bitcast i32 {v} to <2 x i16>") for v in values]
        if flushes:
            values = [_flushed(e, v, flushes) for v in values]
        element, x = emit_float.operand(e, form, values[0], base)
        _, y = emit_float.operand(e, form, values[1], base)
        if operation == "add":
            total = e.v(f"fadd {form.of(element)} {x}, {y}")
        elif operation in ("min", "max"):
            total = e.fcall(form, operation + "imumnum", element, x, y)  # -0 is below +0
        else:
            raise e.unsupported()
        bits = emit_float.result_bits(e, form, total, base)
        if flushes:
            bits = _flushed(e, bits, flushes)
        return e.v(f"bitcast <2 x i16> {bits} to i32") if packed else bits
    match operation:
        case "add" | "and" | "or" | "xor":
            return e.v(f"{operation} i{nbits} {old}, {value}")
        case "exch":
            return value
        case "min" | "max":
            return e.icall(SCALAR, f"{'s' if kind[0] == 's' else 'u'}{operation}", nbits, old, value)
        case "inc":
            over = e.v(f"icmp uge i{nbits} {old}, {value}")
            return e.v(f"select i1 {over}, i{nbits} 0, i{nbits} {e.v(f'add i{nbits} {old}, 1')}")
        case "dec":
            zero = e.v(f"icmp eq i{nbits} {old}, 0")
            above = e.v(f"icmp ugt i{nbits} {old}, {value}")
            wrap = e.v(f"or i1 {zero}, {above}")
            return e.v(f"select i1 {wrap}, i{nbits} {value}, i{nbits} {e.v(f'sub i{nbits} {old}, 1')}")
    raise e.unsupported()


def _flushed(e: Emitter, bits: str, flushes: str) -> str:
    from vgpusim.codegen.emit_float import flush

    return e.v(f"select i1 {flushes}, i32 {flush(e, SCALAR, bits)}, i32 {bits}")


__all__ = ["Value", "atomic"]
