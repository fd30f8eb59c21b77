"""wmma: loads, stores and products of whole matrices by a warp.

Which lane holds which element is not documented, so this file defines it: 8x8 tiles, row tiles first, each laid out as
mma's fragments are. Where the f16 fragments have more registers than elements, each element is held several times.
"""

from __future__ import annotations

from dataclasses import replace

from vgpusim.codegen import emit_count, emit_wmma_rows
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_access import address, check
from vgpusim.codegen.emit_memory import elements, load_lanes, space_of, store_lanes
from vgpusim.codegen.emit_mma import Shape, kind_of, multiply, packed
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_pattern import UNIFORM, VARYING
from vgpusim.codegen.lane_value import LANES, SCALAR, Value
from vgpusim.ptx import ir

_SIZES = {
    "m16n16k16": (16, 16, 16), "m32n8k16": (32, 8, 16), "m8n32k16": (8, 32, 16), "m16n16k8": (16, 16, 8),
    "m8n8k4": (8, 8, 4), "m8n8k32": (8, 8, 32), "m8n8k128": (8, 8, 4),
}  # fmt: skip
_KINDS = {
    "m16n16k8": ("tf32",), "m8n8k4": ("f64",), "m8n8k32": ("s4", "u4"), "m8n8k128": ("b1",),
}  # fmt: skip
_USUAL_KINDS = ("f16", "bf16", "s8", "u8")
_NBITS = ir.TYPE_NBITS | {"s4": 4, "u4": 4, "b1": 1, "tf32": 32}
_MOVED = {"m16n16k8": ("f32",), "m8n8k4": ("f64",), "m8n8k32": ("s32",), "m8n8k128": ("s32",)}  # accumulators
_BIT_WORD = 32  # single bits are loaded by words; k is four words
_F16_REGISTERS = 8  # in each fragment of A and B


def _shape(e: Emitter, name: str | None, kind: str) -> Shape:
    """The operands' type is `kind`."""
    if name is None:
        raise e.unsupported()
    m, n, k = _SIZES[name]
    if kind not in _KINDS.get(name, _USUAL_KINDS):
        raise e.unsupported()
    tiles = m // 8

    def c_place(g: int, t: int, i: int) -> tuple[int, int]:
        return g + 8 * (i // 2 % tiles), 2 * t + i % 2 + 8 * (i // 2 // tiles)

    match kind:
        case "f16" | "bf16":
            return Shape(m, n, k, 2, m // 2, n // 2, c_place,
                         lambda g, t, i: (2 * t + i % 2 + 8 * (i // 2 % 2), g + 8 * (i // 4)), c_place)  # fmt: skip
        case "s8" | "u8":
            return Shape(m, n, k, 4, m // 2, n // 2, lambda g, t, i: (g + 8 * (i // 4), 4 * t + i % 4),
                         lambda g, t, i: (4 * t + i % 4, g + 8 * (i // 4)), c_place)  # fmt: skip
        case "s4" | "u4":
            return packed(m, k, 8)
        case "tf32":
            return Shape(m, n, k, 1, 4, 4, lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)),
                         lambda g, t, i: (t + 4 * (i % 2), g + 8 * (i // 2)), c_place)  # fmt: skip
    return Shape(m, n, k, 1, 1, 1, lambda g, t, i: (g, t), lambda g, t, i: (t, g), c_place)


@emits("wmma")
def matrix(e: Emitter, ins: ir.Instruction) -> None:
    if ins.has("mma"):
        _multiply(e, ins)
    else:
        _move(e, ins)


def _multiply(e: Emitter, ins: ir.Instruction) -> None:
    """wmma.mma{.xor|.and.popc}.sync.aligned.row.col.shape{.rnd}.d{.a.b}.c{.satfinite} D, A, B, C."""
    name = ins.one_of(*_SIZES)
    if name is None or ins.has("rz", "rm", "rp"):
        raise e.unsupported()
    words = list(ins.modifiers[ins.modifiers.index(name) + 1 :])
    types = [word for word in words if word in _NBITS]
    if len(types) == 2:
        types[1:1] = ["f16", "f16"]
    if len(types) != 4:
        raise e.unsupported()
    d, c = types[0], types[-1]
    operation = [ins.one_of("xor", "and") or "", "popc"] if ins.has("popc") else []
    found = kind_of([*(word for word in words if word == "satfinite"), c, *types[1:], *operation])
    if found is None or (d != c and {c, d} != {"f16", "f32"}) or found.a != found.b:
        raise e.unsupported()
    kind = found.a
    shape = _shape(e, name, kind)
    sources: list[ir.Operand] = []
    for operand, count in zip(ins.operands[1:3], (shape.a, shape.b), strict=True):
        registers = elements(operand)
        if len(registers) != (_F16_REGISTERS if kind == "f16" else count // shape.per_register):
            raise e.malformed("fragment of the wrong size")
        sources += registers[: count // shape.per_register]
    outputs = shape.m * shape.n // WARP
    for operand, held in ((ins.operands[3], c), (ins.operands[0], d)):
        if len(elements(operand)) != outputs // (2 if held == "f16" else 1):
            raise e.malformed("accumulator of the wrong size")
    multiply(e, ins, shape, replace(found, d=d), [*sources, *elements(ins.operands[3])])


def _move(e: Emitter, ins: ir.Instruction) -> None:
    """wmma.load.a.sync.aligned.row.shape{.space}.type R, [address]{, stride}, and wmma.store.d the other way."""
    part = ins.one_of("a", "b", "c", "d")
    kind, name = next((word for word in reversed(ins.modifiers) if word in _NBITS), ""), ins.one_of(*_SIZES)
    if part is None or not ins.has("row", "col"):
        raise e.malformed("fragment or layout missing")
    if name is None or not kind:
        raise e.unsupported()
    stores = ins.has("store")
    fragment, where = ins.operands[1 if stores else 0], ins.operands[0 if stores else 1]
    if part in ("a", "b"):
        shape = _shape(e, name, kind)
        count, place = (shape.a, shape.a_place) if part == "a" else (shape.b, shape.b_place)
    else:
        shape = _shape(e, name, _KINDS.get(name, _USUAL_KINDS)[0])
        if kind not in _MOVED.get(name, ("f16", "f32", "s32")):
            raise e.unsupported()
        count, place = shape.m * shape.n // WARP, shape.c_place
    nbits = _NBITS[kind]
    unit_nbits = _BIT_WORD if kind == "b1" else nbits  # bits of one element as the shape counts elements
    word = max(32, nbits)
    per_register = word // unit_nbits
    registers = elements(fragment)
    expected = _F16_REGISTERS if part in ("a", "b") and kind == "f16" else count // per_register
    if len(registers) != expected:
        raise e.malformed("fragment of the wrong size")
    rows = {"a": shape.m, "b": shape.k}.get(part, shape.m)
    columns = {"a": shape.k, "b": shape.n}.get(part, shape.n)
    by_row = ins.has("row")
    space = space_of(e, ins)
    start = address(e, ins, where, space, max(1, nbits // 8), 1)
    if e.state.counted:  # `address` has already counted one element
        emit_count.access(e, ins, space, count * nbits // 8 - max(1, nbits // 8), "", None)
    if len(ins.operands) > 2:
        given = e.read(ins.operands[2], 32)
    else:
        least = (columns if by_row else rows) * (unit_nbits // nbits if part in ("a", "b") else 1)
        given = Value(str(least), 32, UNIFORM)
    alike = start.uniform and given.uniform
    form = SCALAR if alike else LANES
    base, stride = (v.text if alike else e.vector(v) for v in (start, given))
    stride = e.resize(form, stride, 32, 64)
    # Elements lie between the first row or column and the last: if both are in reach, all are.
    last = -(-(rows if by_row else columns) * nbits // 8)
    end = e.v(f"add {form.int(64)} {base}, {e.v(f'mul {form.int(64)} {stride}, {form.const(last, 64)}')}")
    if not e.state.watched:  # watched code checks each element
        check(e, ins, Value(end, 64, UNIFORM if alike else VARYING), max(1, nbits // 8), 1)
    if part in ("a", "b") and nbits == 16 and alike and not stores and e.guard is None and not e.state.watched:
        held = emit_wmma_rows.load(e, base, stride, count, place, by_row)
        for number, target in enumerate(registers if held else ()):
            e.put(target, LANES, held[number % len(held)], word)  # type: ignore[index,arg-type]
        if held:
            return
    if alike:
        base, stride = e.splat(base, "i64"), e.splat(stride, "i64")

    def at(element: int) -> Value:
        """Addresses of an element of each lane."""
        places = [place(lane // 4, lane % 4, element) for lane in range(WARP)]
        major, minor = (
            "<" + ", ".join(f"i64 {p[axis]}" for p in places) + ">" for axis in ((0, 1) if by_row else (1, 0))
        )
        kind = LANES.int(64)
        row = e.v(f"mul {kind} {e.v(f'mul {kind} {stride}, {major}')}, splat (i64 {nbits})")
        bit = e.v(f"add {kind} {row}, {e.v(f'mul {kind} {minor}, splat (i64 {unit_nbits})')}")
        where = Value(e.v(f"add {kind} {base}, {e.v(f'lshr {kind} {bit}, splat (i64 3)')}"), 64, VARYING)
        if e.state.watched:
            check(e, ins, where, max(1, unit // 8), 1)
        return where

    together = per_register == 1 or by_row == (part != "b")  # a register's elements are neighbours in memory
    if nbits < 8 and by_row != (part != "b"):
        raise e.malformed("matrices of less than a byte an element are row-major A and column-major B")
    unit, steps = (word, 1) if together else (nbits, per_register)
    if stores:
        for number, text in enumerate(e.lanes(registers, word)):
            for step in range(steps):
                shifted = e.v(f"lshr {LANES.int(word)} {text}, splat (i{word} {step * nbits})") if step else text
                store_lanes(e, at(number * per_register + step), e.resize(LANES, shifted, word, unit), unit)
        return
    values = []
    for number in range(count // per_register):
        pieces = [
            e.resize(LANES, load_lanes(e, at(number * per_register + step), unit), unit, word) for step in range(steps)
        ]
        value = pieces[0]
        for step, piece in enumerate(pieces[1:], 1):
            shifted = e.v(f"shl {LANES.int(word)} {piece}, splat (i{word} {step * nbits})")
            value = e.v(f"or {LANES.int(word)} {value}, {shifted}")
        values.append(value)
    for number, target in enumerate(registers):
        e.put(target, LANES, values[number % len(values)], word)
