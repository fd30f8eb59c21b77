"""Warp-wide matrix instructions: mma, ldmatrix, stmatrix, movmatrix. Each form is one out-of-line function, shared by
its uses; arguments travel through memory. Shapes and fragment layouts: PTX ISA reference, "Matrix
multiply-accumulate"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgpusim.codegen import emit_aligned_sum as aligned
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_convert import double_to_half
from vgpusim.codegen.emit_float import operand
from vgpusim.codegen.emit_memory import address, elements, space_of
from vgpusim.codegen.emit_rounding import narrow
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES
from vgpusim.ptx import ir

_V = LANES.int(32)
_SCRATCH = 24  # registers of the largest form's A, B and C together
Place = Callable[[int, int, int], tuple[int, int]]  # (group, thread in group, element) -> (row, column)


@dataclass(frozen=True, slots=True)
class Shape:
    """Where lane 4*group + thread holds which elements. `per_register`: elements in 32 bits (64 for f64)."""

    m: int
    n: int
    k: int
    per_register: int
    a: int  # elements a lane holds
    b: int
    a_place: Place
    b_place: Place
    c_place: Place = lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2)


_HALF_16 = Shape(
    16, 8, 16, 2, 8, 4,
    lambda g, t, i: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)),
    lambda g, t, i: (2 * t + i % 2 + 8 * (i // 2), g),
)  # fmt: skip
_HALF_8 = Shape(16, 8, 8, 2, 4, 2, lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2), lambda g, t, i: (2 * t + i, g))
_TF32_8 = Shape(16, 8, 8, 1, 4, 2, lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)), lambda g, t, i: (t + 4 * i, g))
_TF32_4 = Shape(16, 8, 4, 1, 2, 1, lambda g, t, i: (g + 8 * i, t), lambda g, t, i: (t, g))
_BYTE_8_16 = Shape(8, 8, 16, 4, 4, 4, lambda g, t, i: (g, 4 * t + i), lambda g, t, i: (4 * t + i, g))
_BYTE_16_16 = Shape(
    16, 8, 16, 4, 8, 4, lambda g, t, i: (g + 8 * (i // 4), 4 * t + i % 4), lambda g, t, i: (4 * t + i, g)
)
_BYTE_16_32 = Shape(
    16, 8, 32, 4, 16, 8,
    lambda g, t, i: (g + 8 * (i // 4 % 2), 4 * t + i % 4 + 16 * (i // 8)),
    lambda g, t, i: (4 * t + i % 4 + 16 * (i // 4), g),
)  # fmt: skip
_DOUBLE = Shape(8, 8, 4, 1, 1, 1, lambda g, t, i: (g, t), lambda g, t, i: (t, g))

_SHAPES: dict[tuple[str, str], Shape] = {
    ("m16n8k16", "f16"): _HALF_16, ("m16n8k16", "bf16"): _HALF_16, ("m16n8k8", "f16"): _HALF_8,
    ("m16n8k8", "bf16"): _HALF_8, ("m16n8k8", "tf32"): _TF32_8, ("m16n8k4", "tf32"): _TF32_4,
    ("m8n8k16", "s8"): _BYTE_8_16, ("m8n8k16", "u8"): _BYTE_8_16, ("m16n8k16", "s8"): _BYTE_16_16,
    ("m16n8k16", "u8"): _BYTE_16_16, ("m16n8k32", "s8"): _BYTE_16_32, ("m16n8k32", "u8"): _BYTE_16_32,
    ("m8n8k4", "f64"): _DOUBLE,
}  # fmt: skip


@emits("mma")
def multiply_accumulate(e: Emitter, ins: ir.Instruction) -> None:
    """mma.sync.aligned.shape.row.col.d.a.b.c D, A, B, C."""
    words = ins.modifiers
    if words[:2] != ("sync", "aligned") or words[3:5] != ("row", "col") or len(words) != 9:
        raise e.unsupported()
    d_type, a_type, b_type, c_type = words[5:]
    shape = _SHAPES.get((words[2], a_type))
    same_kind = a_type == b_type or {a_type, b_type} == {"s8", "u8"}
    if shape is None or not same_kind or d_type != c_type or (a_type == "bf16" and d_type != "f32"):
        raise e.unsupported()
    if d_type not in {"s8": ("s32",), "u8": ("s32",), "f64": ("f64",), "f16": ("f16", "f32")}.get(a_type, ("f32",)):
        raise e.unsupported()
    counts = (shape.a // shape.per_register, shape.b // shape.per_register)
    outputs = shape.m * shape.n // WARP // (2 if d_type == "f16" else 1)
    a, b, c = (elements(operand) for operand in ins.operands[1:4])
    if (len(a), len(b), len(c), len(elements(ins.operands[0]))) != (*counts, outputs, outputs):
        raise e.malformed("fragment of the wrong size")
    multiply(e, ins, shape, (d_type, a_type, b_type, c_type), [*a, *b, *c])


def multiply(
    e: Emitter, ins: ir.Instruction, shape: Shape, types: tuple[str, str, str, str], sources: Sequence[ir.Operand]
) -> None:
    """D = A * B + C; `types` of d, a, b, c; `sources` are the registers of A, B and C, as many as they must be."""
    nbits = 64 if types[1] == "f64" else 32
    name = f"{ins.opcode}.{shape.m}.{shape.n}.{shape.k}.{'.'.join(types)}"
    inner = Emitter(e.state, e.flush_by_mxcsr)
    if name not in e.helpers:
        e.helper(name, _mma_function(inner, name, shape, types))
        e.declarations |= inner.declarations
    kind = LANES.int(nbits)
    scratch = e.stack("matrix.in", f"[{_SCRATCH} x {LANES.int(64)}]")
    for index, value in enumerate(e.lanes(sources, nbits)):
        e.e(f"store {kind} {value}, ptr {e.v(f'getelementptr {kind}, ptr {scratch}, i32 {index}')}, align 64")
    out = e.stack("matrix.out", f"[8 x {LANES.int(64)}]")
    e.e(f'call void @"{name}"(ptr {out}, ptr {scratch})')
    for index, target in enumerate(elements(ins.operands[0])):
        at = e.v(f"getelementptr {kind}, ptr {out}, i32 {index}")
        e.put(target, LANES, e.v(f"load {kind}, ptr {at}, align 64"), nbits)


def _shuffle(e: Emitter, kind: str, value: str, lanes: Sequence[int]) -> str:
    index = ", ".join(f"i32 {lane}" for lane in lanes)
    return e.v(f"shufflevector <{WARP} x {kind}> {value}, <{WARP} x {kind}> poison, <{WARP} x i32> <{index}>")


def _mma_function(e: Emitter, name: str, shape: Shape, types: tuple[str, str, str, str]) -> str:
    """For each accumulator element of a lane: the sum over k of A[row, k] * B[k, column], fetched from the lanes that
    hold them."""
    _, a_type, b_type, c_type = types
    nbits = 64 if a_type == "f64" else 32
    kind = LANES.int(nbits)
    registers = []
    a_count, b_count = shape.a // shape.per_register, shape.b // shape.per_register
    outputs = shape.m * shape.n // WARP
    c_count = outputs // (2 if c_type == "f16" else 1)
    for index in range(a_count + b_count + c_count):
        at = e.v(f"getelementptr {kind}, ptr %in, i32 {index}")
        registers.append(e.v(f"load {kind}, ptr {at}, align 64"))
    a_values = [v for r in registers[:a_count] for v in _split(e, r, a_type)]
    b_values = [v for r in registers[a_count : a_count + b_count] for v in _split(e, r, b_type)]
    c_values = [v for r in registers[a_count + b_count :] for v in _split(e, r, c_type)]
    if a_type in aligned.KINDS:
        usual = aligned.all_usual(e, [*a_values, *b_values], c_values, a_type)
        e.e(f"br i1 {usual}, label %usual, label %special")
        for label, precision in (("usual", aligned.SINGLE), ("special", aligned.DOUBLE)):
            e.label(label)
            _store_results(e, _tensor_core(e, shape, precision, types, a_values, b_values, c_values), types)
            e.e("ret void")
    else:
        _store_results(e, _sums(e, shape, a_type, a_values, b_values, c_values), types)
        e.e("ret void")
    return f'define internal void @"{name}"(ptr %out, ptr %in) noinline #0 {{\n' + "\n".join(e.lines) + "\n}\n"


def _factors(
    e: Emitter, shape: Shape, element: str, i: int, a_values: Sequence[str], b_values: Sequence[str]
) -> list[tuple[str, str]]:
    """For accumulator element i, the factors of each k."""
    a_where, b_where = _holders(shape.a, shape.a_place), _holders(shape.b, shape.b_place)
    targets = [shape.c_place(lane // 4, lane % 4, i) for lane in range(WARP)]
    pairs = []
    for k in range(shape.k):
        a_at = [a_where[row, k] for row, _ in targets]
        b_at = [b_where[k, column] for _, column in targets]
        assert len({x for _, x in a_at}) == 1
        assert len({x for _, x in b_at}) == 1
        x = _shuffle(e, element, a_values[a_at[0][1]], [lane for lane, _ in a_at])
        y = _shuffle(e, element, b_values[b_at[0][1]], [lane for lane, _ in b_at])
        pairs.append((x, y))
    return pairs


def _sums(
    e: Emitter, shape: Shape, a_type: str, a_values: Sequence[str], b_values: Sequence[str], c_values: Sequence[str]
) -> list[str]:
    """In the order of k: of integers, whose order does not matter, and of doubles."""
    element = "double" if a_type == "f64" else "i32"
    wide, sums = LANES.of(element), []
    for i, start in enumerate(c_values):
        value = start
        for x, y in _factors(e, shape, element, i, a_values, b_values):
            if element == "i32":
                value = e.v(f"add {wide} {value}, {e.v(f'mul {wide} {x}, {y}')}")
            else:
                value = e.fcall(LANES, "fma", element, x, y, value)
        sums.append(value)
    return sums


def _tensor_core(
    e: Emitter, shape: Shape, precision: aligned.Precision, types: tuple[str, str, str, str],
    a_values: Sequence[str], b_values: Sequence[str], c_values: Sequence[str],
) -> list[str]:  # fmt: skip
    """Bits of the sums in the result's type, of 16 or 32 bits."""
    d_type, a_type, _, _ = types
    a, b = ([aligned.widen(e, precision, v) for v in values] for values in (a_values, b_values))
    a_powers, b_powers = ([aligned.factor_power(e, precision, v, a_type) for v in values] for values in (a, b))
    element, results = precision.element, []
    for i, start in enumerate(c_values):
        c = aligned.widen(e, precision, start)
        factors = _factors(e, shape, element, i, a, b)
        total = aligned.total(e, precision, factors, _factors(e, shape, element, i, a_powers, b_powers), c)
        if d_type == "f16":
            bits = double_to_half(e, LANES, total)
        elif precision is aligned.SINGLE:
            bits = e.from_fp(LANES, aligned.cut_to_single(e, total), "f32")
        else:
            bits = narrow(e, LANES, total, None, "f64", "f32", "rz")
        if precision is aligned.DOUBLE:
            bits = aligned.or_special(e, factors, c, bits, d_type)
        results.append(bits)
    return results


def _store_results(e: Emitter, results: Sequence[str], types: tuple[str, str, str, str]) -> None:
    d_type = types[0]
    kind = LANES.int(64 if d_type == "f64" else 32)
    if d_type == "f16":
        words = [e.resize(LANES, half, 16, 32) for half in results]
        results = [
            e.v(f"or {_V} {low}, {e.v(f'shl {_V} {high}, splat (i32 16)')}")
            for low, high in zip(words[::2], words[1::2], strict=True)
        ]
    elif d_type == "f64":
        results = [e.from_fp(LANES, value, "f64") for value in results]
    for index, result in enumerate(results):
        e.e(f"store {kind} {result}, ptr {e.v(f'getelementptr {kind}, ptr %out, i32 {index}')}, align 64")


def _holders(count: int, place: Place) -> dict[tuple[int, int], tuple[int, int]]:
    """(row, column) -> (lane, element of the lane)."""
    return {place(lane // 4, lane % 4, i): (lane, i) for lane in range(WARP) for i in range(count)}


def _split(e: Emitter, register: str, kind: str) -> list[str]:
    """The elements of one register as f32 (i32, f64) vectors."""
    if kind == "s32":
        return [register]
    if kind in ("f32", "f64"):
        return [e.to_fp(LANES, register, kind)]
    if kind == "tf32":  # the hardware reads the upper 19 bits
        return [e.to_fp(LANES, e.v(f"and {_V} {register}, splat (i32 -8192)"), "f32")]
    if kind in ("s8", "u8"):
        shift = "ashr" if kind == "s8" else "lshr"
        tops = [e.v(f"shl {_V} {register}, splat (i32 {24 - 8 * byte})") for byte in range(4)]
        return [e.v(f"{shift} {_V} {top}, splat (i32 24)") for top in tops]
    values = []
    for half in (0, 16):
        bits = e.resize(LANES, e.v(f"lshr {_V} {register}, splat (i32 {half})"), 32, 16)
        element, value = operand(e, LANES, bits, kind)
        values.append(value if element == "float" else e.v(f"fpext {LANES.of('half')} {value} to {LANES.of('float')}"))
    return values


# ---- moving 8x8 matrices of 16-bit elements


def _matrix_count(e: Emitter, ins: ir.Instruction) -> int:
    count = {"x1": 1, "x2": 2, "x4": 4}.get(ins.one_of("x1", "x2", "x4") or "", 0)
    if not count or not ins.has("m8n8") or ins.type != "b16":
        raise e.unsupported()
    return count


def _transposed(e: Emitter, value: str) -> str:
    """Transpose an 8x8 matrix held as <32 x i32>, row by row."""
    halves = e.v(f"bitcast {_V} {value} to <64 x i16>")
    index = ", ".join(f"i32 {8 * (i % 8) + i // 8}" for i in range(64))
    turned = e.v(f"shufflevector <64 x i16> {halves}, <64 x i16> poison, <64 x i32> <{index}>")
    return e.v(f"bitcast <64 x i16> {turned} to {_V}")


@emits("ldmatrix")
def load_matrix(e: Emitter, ins: ir.Instruction) -> None:
    """Lanes 8j..8j+7 give the addresses of the rows of matrix j, 16 bytes each."""
    count = _matrix_count(e, ins)
    targets = elements(ins.operands[0])
    if len(targets) != count:
        raise e.malformed("wrong number of destinations")
    where = e.spread("address", e.vector(address(e, ins.operands[1], space_of(e, ins))), 64)
    values = []
    rows = e.stack("matrix.rows", "[8 x <4 x i32>]")
    for matrix in range(count):
        for row in range(8):
            at = e.v(f"inttoptr i64 {where(str(8 * matrix + row))} to ptr")
            text = e.v(f"load <4 x i32>, ptr {at}, align 4")
            e.e(f"store <4 x i32> {text}, ptr {e.v(f'getelementptr <4 x i32>, ptr {rows}, i32 {row}')}, align 16")
        value = e.v(f"load {_V}, ptr {rows}, align 64")
        values.append(_transposed(e, value) if ins.has("trans") else value)
    for target, value in zip(targets, values, strict=True):
        e.put(target, LANES, value, 32)


@emits("stmatrix")
def store_matrix(e: Emitter, ins: ir.Instruction) -> None:
    count = _matrix_count(e, ins)
    sources = e.lanes(elements(ins.operands[1]), 32)
    if len(sources) != count:
        raise e.malformed("wrong number of sources")
    where = e.spread("address", e.vector(address(e, ins.operands[0], space_of(e, ins))), 64)
    rows = e.stack("matrix.rows", "[8 x <4 x i32>]")
    for matrix, source in enumerate(sources):
        value = _transposed(e, source) if ins.has("trans") else source
        e.e(f"store {_V} {value}, ptr {rows}, align 64")
        for row in range(8):
            part = e.v(f"getelementptr <4 x i32>, ptr {rows}, i32 {row}")
            text = e.v(f"load <4 x i32>, ptr {part}, align 16")
            at = e.v(f"inttoptr i64 {where(str(8 * matrix + row))} to ptr")
            e.e(f"store <4 x i32> {text}, ptr {at}, align 4")


@emits("movmatrix")
def move_matrix(e: Emitter, ins: ir.Instruction) -> None:
    if not ins.has("m8n8") or not ins.has("trans"):
        raise e.unsupported()
    (value,) = e.lanes(ins.operands[1:], 32)
    e.put(ins.operands[0], LANES, _transposed(e, value), 32)
