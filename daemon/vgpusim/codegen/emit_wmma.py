"""wmma: loads, stores and products of whole matrices by a warp.

Which lane holds which element is not documented, so it is ours to say: 8x8 tiles, row tiles first, each laid out as
mma's fragments are. Where the f16 fragments have more registers than elements, the elements are there several times.
"""

from __future__ import annotations

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_matrix import Shape, multiply
from vgpusim.codegen.emit_memory import address, elements, load_lanes, space_of, store_lanes
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_pattern import VARYING
from vgpusim.codegen.lane_value import LANES, Value
from vgpusim.ptx import ir

_SIZES = {
    "m16n16k16": (16, 16, 16), "m32n8k16": (32, 8, 16), "m8n32k16": (8, 32, 16), "m16n16k8": (16, 16, 8),
    "m8n8k4": (8, 8, 4),
}  # fmt: skip
_KINDS = {16: ("f16", "bf16", "s8", "u8"), 8: ("tf32",), 4: ("f64",)}  # by k
_ACCUMULATORS = {"f16": ("f16", "f32"), "s8": ("s32",), "u8": ("s32",), "f64": ("f64",)}  # others: f32
_F16_REGISTERS = 8  # of every fragment of A and B


def _shape(e: Emitter, name: str | None, kind: str) -> Shape:
    """Of the operands' type `kind`."""
    if name is None:
        raise e.unsupported()
    m, n, k = _SIZES[name]
    if kind not in _KINDS[k]:
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
    """wmma.mma.sync.aligned.row.col.shape{.rnd}.d{.a.b}.c D, A, B, C."""
    types = [word for word in ins.modifiers if word in ir.TYPE_NBITS]
    if len(types) == 2:
        types[1:1] = ["f16", "f16"]
    if len(types) != 4 or ins.has("satfinite", "popc") or types[1] != types[2] or ins.has("rz", "rm", "rp"):
        raise e.unsupported()
    d, kind, _, c = types
    if not {c, d} <= set(_ACCUMULATORS.get(kind, ("f32",))):
        raise e.unsupported()
    shape = _shape(e, ins.one_of(*_SIZES), kind)
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
    multiply(e, ins, shape, (d, kind, kind, c), [*sources, *elements(ins.operands[3])])


def _move(e: Emitter, ins: ir.Instruction) -> None:
    """wmma.load.a.sync.aligned.row.shape{.space}.type R, [address]{, stride}, and wmma.store.d the other way."""
    part = ins.one_of("a", "b", "c", "d")
    kind, name = ins.type, ins.one_of(*_SIZES)
    if part is None or not ins.has("row", "col"):
        raise e.malformed("fragment or layout missing")
    if name is None or kind not in ir.TYPE_NBITS:
        raise e.unsupported()
    stores = ins.has("store")
    fragment, where = ins.operands[1 if stores else 0], ins.operands[0 if stores else 1]
    if part in ("a", "b"):
        shape = _shape(e, name, kind)
        count, place = (shape.a, shape.a_place) if part == "a" else (shape.b, shape.b_place)
    else:
        k = _SIZES[name][2]
        shape = _shape(e, name, _KINDS[k][0])
        if kind not in {16: ("f16", "f32", "s32"), 8: ("f32",), 4: ("f64",)}[k]:
            raise e.unsupported()
        count, place = shape.m * shape.n // WARP, shape.c_place
    nbits = ir.TYPE_NBITS["b32" if kind == "tf32" else kind]
    word = max(32, nbits)
    per_register = word // nbits
    registers = elements(fragment)
    expected = _F16_REGISTERS if part in ("a", "b") and kind == "f16" else count // per_register
    if len(registers) != expected:
        raise e.malformed("fragment of the wrong size")
    rows = {"a": shape.m, "b": shape.k}.get(part, shape.m)
    columns = {"a": shape.k, "b": shape.n}.get(part, shape.n)
    by_row = ins.has("row")
    base = e.vector(address(e, where, space_of(e, ins)))
    if len(ins.operands) > 2:
        stride = e.vector(e.read(ins.operands[2], 32))
        stride = e.resize(LANES, stride, 32, 64)
    else:
        stride = LANES.const(columns if by_row else rows, 64)

    def at(element: int) -> Value:
        """Addresses of an element of each lane."""
        places = [place(lane // 4, lane % 4, element) for lane in range(WARP)]
        major, minor = (
            "<" + ", ".join(f"i64 {p[axis]}" for p in places) + ">" for axis in ((0, 1) if by_row else (1, 0))
        )
        kind = LANES.int(64)
        index = e.v(f"add {kind} {e.v(f'mul {kind} {stride}, {major}')}, {minor}")
        return Value(e.v(f"add {kind} {base}, {e.v(f'mul {kind} {index}, splat (i64 {nbits // 8})')}"), 64, VARYING)

    together = per_register == 1 or by_row == (part != "b")  # a register's elements are neighbours in memory
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
