"""mma: products of a warp's matrices. Each form is one out-of-line function, shared by its uses; arguments travel
through memory. Shapes and fragment layouts: PTX ISA reference, "Matrix multiply-accumulate".

Sums of integers are exact and wrap, or are clamped once at the end (.satfinite). Sums of f64 go in the order of k.
Other floats add as a tensor core does (emit_aligned_sum)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgpusim.codegen import emit_aligned_sum as aligned
from vgpusim.codegen import emit_fragment as fragment
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_double_sum import call_for_nan, double_sum
from vgpusim.codegen.emit_float import operand
from vgpusim.codegen.emit_float8 import to_half
from vgpusim.codegen.emit_fragment import Arrangement, Place, Side, Steps
from vgpusim.codegen.emit_memory import elements
from vgpusim.codegen.emit_tensor_core import product
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES
from vgpusim.ptx import ir

_V = LANES.int(32)
_SCRATCH = 24  # registers of the largest form's A, B and C together
_READY = 8  # fragments of one kind that are kept


@dataclass(frozen=True, slots=True)
class Shape:
    """Which elements lane 4*group + thread holds. `per_register`: elements in 32 bits (64 for f64). For single bits
    an element is a register, and k counts registers."""

    m: int
    n: int
    k: int
    per_register: int
    a: int  # elements a lane holds
    b: int
    a_place: Place
    b_place: Place
    c_place: Place = lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2)


@dataclass(frozen=True, slots=True)
class Kind:
    """Types of the matrices, and how integers are multiplied and added."""

    d: str
    a: str
    b: str
    c: str
    finite: bool = False  # clamped
    operation: str = ""  # of single bits: xor or and
    rounding: str = ""  # of f64: rz, rm or rp
    warpgroup: bool = False  # 8-bit floats are multiplied as such, with less precision

    def __str__(self) -> str:
        words = (self.operation, self.rounding, "satfinite" if self.finite else "", "wgmma" if self.warpgroup else "")
        return ".".join((self.d, self.a, self.b, self.c, *filter(None, words)))


def packed(m: int, k: int, per: int) -> Shape:
    """m x 8 x k; a register's `per` elements are neighbours in k. A thread's registers: rows 8 apart, then along k."""
    rows = m // 8
    return Shape(
        m, 8, k, per, m * k // WARP, 8 * k // WARP,
        lambda g, t, i: (g + 8 * (i // per % rows), per * t + i % per + 4 * per * (i // per // rows)),
        lambda g, t, i: (per * t + i % per + 4 * per * (i // per), g),
    )  # fmt: skip


_SHAPES: dict[tuple[str, str], Shape] = {
    ("m16n8k16", "f16"): packed(16, 16, 2), ("m16n8k16", "bf16"): packed(16, 16, 2),
    ("m16n8k8", "f16"): packed(16, 8, 2), ("m16n8k8", "bf16"): packed(16, 8, 2),
    ("m16n8k8", "tf32"): packed(16, 8, 1), ("m16n8k4", "tf32"): packed(16, 4, 1),
    ("m8n8k4", "f64"): packed(8, 4, 1), ("m16n8k4", "f64"): packed(16, 4, 1),
    ("m16n8k8", "f64"): packed(16, 8, 1), ("m16n8k16", "f64"): packed(16, 16, 1),
    ("m8n8k128", "b1"): packed(8, 4, 1), ("m16n8k128", "b1"): packed(16, 4, 1), ("m16n8k256", "b1"): packed(16, 8, 1),
}  # fmt: skip
for _kind in ("s8", "u8"):
    _SHAPES |= {("m8n8k16", _kind): packed(8, 16, 4), ("m16n8k16", _kind): packed(16, 16, 4),
                ("m16n8k32", _kind): packed(16, 32, 4)}  # fmt: skip
for _kind in ("s4", "u4"):
    _SHAPES |= {("m8n8k32", _kind): packed(8, 32, 8), ("m16n8k32", _kind): packed(16, 32, 8),
                ("m16n8k64", _kind): packed(16, 64, 8)}  # fmt: skip
for _kind in ("e4m3", "e5m2"):
    _SHAPES |= {("m16n8k16", _kind): packed(16, 16, 4), ("m16n8k32", _kind): packed(16, 32, 4)}

_TOGETHER = {"s8": ("s8", "u8"), "u8": ("s8", "u8"), "s4": ("s4", "u4"), "u4": ("s4", "u4"),
             "e4m3": ("e4m3", "e5m2"), "e5m2": ("e4m3", "e5m2")}  # fmt: skip
_RESULTS = {"f64": ("f64",), "f16": ("f16", "f32"), "e4m3": ("f16", "f32"), "e5m2": ("f16", "f32"), "b1": ("s32",),
            "bf16": ("f32",), "tf32": ("f32",)}  # fmt: skip
INTEGERS = ("s8", "u8", "s4", "u4", "b1")
_EIGHT_BITS = ("e4m3", "e5m2")
_ROUNDINGS = ("rn", "rz", "rm", "rp")


def shape_of(name: str, kind: str) -> Shape:
    """The shape of a form of mma; KeyError if there is no such form."""
    return _SHAPES[name, kind]


def dense(e: Emitter, ins: ir.Instruction) -> None:
    """mma.sync.aligned.shape.row.col{.satfinite|.rnd}.d.a.b.c{.xor|.and.popc} D, A, B, C."""
    words = ins.modifiers
    if words[:2] != ("sync", "aligned") or words[3:5] != ("row", "col"):
        raise e.unsupported()
    kind = kind_of(words[5:])
    shape = _SHAPES.get((words[2], kind.a)) if kind is not None else None
    if kind is None or shape is None:
        raise e.unsupported()
    counts = (shape.a // shape.per_register, shape.b // shape.per_register)
    outputs = shape.m * shape.n // WARP // (2 if kind.d == "f16" else 1)
    a, b, c = (elements(operand) for operand in ins.operands[1:4])
    if (len(a), len(b), len(c), len(elements(ins.operands[0]))) != (*counts, outputs, outputs):
        raise e.malformed("fragment of the wrong size")
    multiply(e, ins, shape, kind, [*a, *b, *c])


def kind_of(words: Sequence[str]) -> Kind | None:
    """{.satfinite|.rnd}.d.a.b.c{.satfinite}{.xor|.and.popc}; None if not supported."""
    rest = list(words)
    rounding = rest.pop(0) if rest[0] in _ROUNDINGS else "rn"
    finite, operation = "satfinite" in rest, ""
    if finite:
        rest.remove("satfinite")
    if rest[-1:] == ["popc"]:
        operation, rest = rest[-2], rest[:-2]
    if len(rest) != 4:
        return None
    d, a, b, c = rest
    results = _RESULTS.get(a, ("s32",) if a in INTEGERS else ())
    if d != c or d not in results or b not in _TOGETHER.get(a, (a,)) or (operation in ("xor", "and")) != (a == "b1"):
        return None
    if (finite and (a == "b1" or a not in INTEGERS)) or (rounding != "rn" and a != "f64"):
        return None
    return Kind(d, a, b, c, finite, operation, rounding.replace("rn", ""))


def multiply(e: Emitter, ins: ir.Instruction, shape: Shape, kind: Kind, sources: Sequence[ir.Operand]) -> None:
    """D = A * B + C; `sources` are the registers of A, B and C; the caller has checked their number."""
    nbits = 64 if kind.a == "f64" else 32
    out = e.stack("matrix.out", f"[8 x {LANES.int(64)}]")
    if kind.a in INTEGERS or kind.a == "f64":
        scratch = stored(e, sources, nbits)
        e.e(f'call void @"{core(e, shape, kind, ins.opcode)}"(ptr {out}, ptr {scratch})')
    else:
        name, *sides = tensor_core(e, shape, kind, ins.opcode)
        a, b = shape.a // shape.per_register, shape.b // shape.per_register
        ready = [
            ready_fragment(e, helper, side, registers)
            for (helper, side), registers in zip(sides, (sources[:a], sources[a : a + b]), strict=True)
        ]
        scratch = stored(e, sources[a + b :], nbits)
        e.e(f'call void @"{name}"(ptr {out}, ptr {scratch}, ptr {ready[0]}, ptr {ready[1]})')
    put_results(e, ins, out, nbits)


def put_results(e: Emitter, ins: ir.Instruction, out: str, nbits: int) -> None:
    word = LANES.int(nbits)
    for index, target in enumerate(elements(ins.operands[0])):
        at = e.v(f"getelementptr {word}, ptr {out}, i32 {index}")
        e.put(target, LANES, e.v(f"load {word}, ptr {at}, align 64"), nbits)


def stored(e: Emitter, sources: Sequence[ir.Operand], nbits: int) -> str:
    scratch = e.stack("matrix.in", f"[{_SCRATCH} x {LANES.int(64)}]")
    word = LANES.int(nbits)
    for index, value in enumerate(e.lanes(sources, nbits)):
        e.e(f"store {word} {value}, ptr {e.v(f'getelementptr {word}, ptr {scratch}, i32 {index}')}, align 64")
    return scratch


def ready_fragment(e: Emitter, helper: str, side: Side, registers: Sequence[ir.Operand]) -> str:
    """The ready fragment of these registers, of an earlier product of this block if they have not changed since."""
    key = (helper, *registers)
    if key not in e.ready:
        used = {slot for (name, *_), slot in e.ready.items() if name == helper}
        if len(used) == _READY:
            del e.ready[next(k for k in e.ready if k[0] == helper)]
            used = {slot for (name, *_), slot in e.ready.items() if name == helper}
        number = next(n for n in range(_READY) if f'%"{helper}.{n}"' not in used)
        slot = e.stack(f'"{helper}.{number}"', f"[{side.nbytes} x i8]")
        e.e(f'call void @"{helper}"(ptr {slot}, ptr {stored(e, registers, 32)})')
        e.ready[key] = slot
    return e.ready[key]


def tensor_core(
    e: Emitter,
    shape: Shape,
    kind: Kind,
    opcode: str = "mma",
    steps: Steps | None = None,
    arranged: tuple[Arrangement | None, Arrangement | None] = (None, None),
) -> tuple[str, tuple[str, Side], tuple[str, Side]]:
    """The names of functions for a product of floats, of fragments that two further functions make ready.

    Hopper's tensor cores take 8-bit floats from wgmma alone. For mma a driver makes f16 of them, multiplies those of
    the lower halves of registers first, then those of the upper halves, and adds C as add does. Of tf32, wmma takes
    4 k at a time. (As an H200's answers say; tests/vgpusim/codegen/test_card_tensor.py compares.)"""
    eight_bits = kind.a in _EIGHT_BITS
    narrow, converted = eight_bits and kind.warpgroup, eight_bits and not kind.warpgroup
    if steps is None:
        steps = Steps(shape.k // 2, by_halves=True) if converted else Steps(32 if narrow else 16)
        if kind.a == "tf32" and opcode == "wmma":
            steps = Steps(4)
    unit = aligned.NARROW if narrow else aligned.WIDE

    def by_column(g: int, t: int, i: int) -> tuple[int, int]:
        k, column = shape.b_place(g, t, i)
        return column, k

    def side(letter: str, element: str, count: int, place: Place, arrangement: Arrangement | None) -> tuple[str, Side]:
        factor = "f16" if converted else element
        masked = arrangement is not None and arrangement.masked
        made = fragment.side(letter == "a", element, factor, shape.per_register, count, place, steps, masked)
        variant = arrangement.name if arrangement else ""
        helper = f"{opcode}{variant}.{letter}.{shape.m}.{shape.n}.{shape.k}.{element}.{factor}"
        define(e, helper, lambda inner, name: fragment.prepare(inner, name, made, split, arrangement))
        return helper, made

    a, b = side("a", kind.a, shape.a, shape.a_place, arranged[0]), side("b", kind.b, shape.b, by_column, arranged[1])
    name = f"{opcode}.{shape.m}.{shape.n}.{shape.k}.{kind}"
    define(e, name, lambda inner, name: product(inner, name, shape, kind, (a[1], b[1]), unit, converted))
    return name, a, b


def define(e: Emitter, name: str, function: Callable[[Emitter, str], str]) -> None:
    if name not in e.helpers:
        inner = Emitter(e.state, e.flush_by_mxcsr)
        e.helper(name, function(inner, name))
        e.declarations |= inner.declarations
        for other, text in inner.helpers.items():
            e.helper(other, text)


def core(e: Emitter, shape: Shape, kind: Kind, opcode: str = "mma") -> str:
    """The name of the function that reads the registers of A, B and C and writes those of D, in memory."""
    name = f"{opcode}.{shape.m}.{shape.n}.{shape.k}.{kind}"
    define(e, name, lambda inner, name: _function(inner, name, shape, kind))
    return name


def _function(e: Emitter, name: str, shape: Shape, kind: Kind, nan: bool = False) -> str:
    """For each accumulator element of a lane: the sum over k of A[row, k] * B[k, column], fetched from the lanes that
    hold them. `nan`: of f64, a NaN result is that of the operand that the hardware chooses."""
    word = LANES.int(64 if kind.a == "f64" else 32)
    registers = []
    a_count, b_count = shape.a // shape.per_register, shape.b // shape.per_register
    outputs = shape.m * shape.n // WARP
    for index in range(a_count + b_count + outputs // (2 if kind.c == "f16" else 1)):
        at = e.v(f"getelementptr {word}, ptr %in, i32 {index}")
        registers.append(e.v(f"load {word}, ptr {at}, align 64"))
    a = [v for r in registers[:a_count] for v in split(e, r, kind.a)]
    b = [v for r in registers[a_count : a_count + b_count] for v in split(e, r, kind.b)]
    c = [v for r in registers[a_count + b_count :] for v in split(e, r, kind.c)]
    if kind.a in INTEGERS:
        _store(e, [_integer_sum(e, kind, start, pairs) for start, pairs in _pairs(e, shape, "i32", a, b, c)], kind)
    else:
        sums = _pairs(e, shape, "double", a, b, c)
        results = [double_sum(e, kind.rounding, start, pairs, nan) for start, pairs in sums]
        if not nan:
            define(e, f"{name}.nan", lambda inner, other: _function(inner, other, shape, kind, nan=True))
            call_for_nan(e, f"{name}.nan", results)
        _store(e, results, kind)
    return f'define internal void @"{name}"(ptr %out, ptr %in) noinline #0 {{\n' + "\n".join(e.lines) + "\n}\n"


def shuffle(e: Emitter, kind: str, value: str, lanes: Sequence[int]) -> str:
    index = ", ".join(f"i32 {lane}" for lane in lanes)
    return e.v(f"shufflevector <{WARP} x {kind}> {value}, <{WARP} x {kind}> poison, <{WARP} x i32> <{index}>")


def gathered(e: Emitter, kind: str, values: Sequence[str], sources: Sequence[tuple[int, int]]) -> str:
    """Values of other lanes. `sources`: for each lane an element, and the lane that has it."""
    result = ""
    for number in sorted({element for element, _ in sources}):
        moved = shuffle(e, kind, values[number], [lane for _, lane in sources])
        if result:
            chosen = "<" + ", ".join(f"i1 {int(element == number)}" for element, _ in sources) + ">"
            moved = e.v(f"select {LANES.int(1)} {chosen}, <{WARP} x {kind}> {moved}, <{WARP} x {kind}> {result}")
        result = moved
    return result


def _factors(
    e: Emitter, shape: Shape, element: str, i: int, a_values: Sequence[str], b_values: Sequence[str]
) -> list[tuple[str, str]]:
    """The factors of accumulator element i, a pair for each k."""
    a_where, b_where = _holders(shape.a, shape.a_place), _holders(shape.b, shape.b_place)
    targets = [shape.c_place(lane // 4, lane % 4, i) for lane in range(WARP)]
    pairs = []
    for k in range(shape.k):
        a_at = [a_where[row, k] for row, _ in targets]
        b_at = [b_where[k, column] for _, column in targets]
        assert len({x for _, x in a_at}) == 1
        assert len({x for _, x in b_at}) == 1
        x = shuffle(e, element, a_values[a_at[0][1]], [lane for lane, _ in a_at])
        y = shuffle(e, element, b_values[b_at[0][1]], [lane for lane, _ in b_at])
        pairs.append((x, y))
    return pairs


def _pairs(
    e: Emitter, shape: Shape, element: str, a: Sequence[str], b: Sequence[str], c: Sequence[str]
) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(start, _factors(e, shape, element, i, a, b)) for i, start in enumerate(c)]


def _integer_sum(e: Emitter, kind: Kind, start: str, pairs: Sequence[tuple[str, str]]) -> str:
    total = ""
    for x, y in pairs:
        if kind.operation:
            part = e.icall(LANES, "ctpop", 32, e.v(f"{kind.operation} {_V} {x}, {y}"))
        else:
            part = e.v(f"mul {_V} {x}, {y}")
        total = e.v(f"add {_V} {total}, {part}") if total else part
    return e.icall(LANES, "sadd.sat", 32, start, total) if kind.finite else e.v(f"add {_V} {start}, {total}")


def _widened_half(e: Emitter, bits: str) -> str:
    return e.v(f"fpext {LANES.of('half')} {e.to_fp(LANES, bits, 'f16')} to {LANES.of('float')}")


# ---- registers


def _store(e: Emitter, results: Sequence[str], kind: Kind) -> None:
    if kind.d == "f64":
        results = [e.from_fp(LANES, value, "f64") for value in results]
    store_in_registers(e, results, kind.d)
    e.e("ret void")


def store_in_registers(e: Emitter, results: Sequence[str], d: str) -> None:
    word = LANES.int(64 if d == "f64" else 32)
    if d == "f16":
        words = [e.resize(LANES, half, 16, 32) for half in results]
        results = [
            e.v(f"or {_V} {low}, {e.v(f'shl {_V} {high}, splat (i32 16)')}")
            for low, high in zip(words[::2], words[1::2], strict=True)
        ]
    for index, result in enumerate(results):
        e.e(f"store {word} {result}, ptr {e.v(f'getelementptr {word}, ptr %out, i32 {index}')}, align 64")


def _holders(count: int, place: Place) -> dict[tuple[int, int], tuple[int, int]]:
    """(row, column) -> (lane, element of the lane)."""
    return {place(lane // 4, lane % 4, i): (lane, i) for lane in range(WARP) for i in range(count)}


def split(e: Emitter, register: str, kind: str) -> list[str]:
    """The elements of one register as f32 (i32, f64) vectors."""
    if kind in ("s32", "b1"):
        return [register]
    if kind in ("f32", "f64"):
        return [e.to_fp(LANES, register, kind)]
    if kind == "tf32":  # the hardware reads the upper 19 bits
        return [e.to_fp(LANES, e.v(f"and {_V} {register}, splat (i32 -8192)"), "f32")]
    nbits = ir.TYPE_NBITS.get(kind) or {"s4": 4, "u4": 4, "e4m3": 8, "e5m2": 8}[kind]
    if kind in INTEGERS:
        shift = "ashr" if kind[0] == "s" else "lshr"
        tops = [e.v(f"shl {_V} {register}, splat (i32 {32 - nbits - at})") for at in range(0, 32, nbits)]
        return [e.v(f"{shift} {_V} {top}, splat (i32 {32 - nbits})") for top in tops]
    values = []
    for at in range(0, 32, nbits):
        bits = e.resize(LANES, e.v(f"lshr {_V} {register}, splat (i32 {at})"), 32, 16)
        if kind in _EIGHT_BITS:
            values.append(_widened_half(e, to_half(e, LANES, bits, f"{kind}x2")))
            continue
        element, value = operand(e, LANES, bits, kind)
        values.append(value if element == "float" else _widened_half(e, bits))
    return values
