"""mma.sp: products of a warp's matrices of which A is sparse. Of each four elements along k of a row of A two are
there, of tf32 one of each two, of 4-bit integers two pairs of each four; metadata say which. PTX ISA reference,
"Matrix multiply-accumulate operation using mma.sp instruction with sparse matrix A".

A becomes a dense matrix with zeros, which take no part in a tensor core's sums. What it is multiplied with there is
left out, too: it may be an infinity or NaN. Elements that are added at once are those of a dense product of as many; of
8-bit floats a driver makes f16 of the even groups of four k first, then of the odd ones (as an H200's answers say)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_fragment import Arrangement, Steps
from vgpusim.codegen.emit_memory import elements
from vgpusim.codegen.emit_mma import (
    INTEGERS,
    Kind,
    Shape,
    core,
    define,
    gathered,
    kind_of,
    packed,
    put_results,
    ready_fragment,
    shuffle,
    stored,
    tensor_core,
)
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES
from vgpusim.ptx import ir

_V = LANES.int(32)
# Elements in a register; k of each shape, and how many values a selector has.
_FORMS = {
    "f16": (2, {16: 4, 32: 2}), "bf16": (2, {16: 4, 32: 2}), "tf32": (1, {8: 4, 16: 2}), "s8": (4, {32: 2, 64: 1}),
    "u8": (4, {32: 2, 64: 1}), "s4": (8, {64: 2, 128: 1}), "u4": (8, {64: 2, 128: 1}), "e4m3": (4, {64: 1}),
    "e5m2": (4, {64: 1}),
}  # fmt: skip
_EIGHT_BITS = ("e4m3", "e5m2")
_OPCODES = ("sp", "sp::ordered_metadata")


@dataclass(frozen=True, slots=True)
class _Sparse:
    """A form. Units are elements, or pairs of those of 4 bits; metadata are of groups of 4 units, of tf32 2 units."""

    kind: Kind
    k: int
    per_register: int
    selector: int

    @property
    def shape(self) -> Shape:
        return packed(16, self.k, self.per_register)

    @property
    def units(self) -> int:
        """How many units a register holds."""
        return min(self.per_register, 4)

    @property
    def group(self) -> int:
        """How many units the metadata describe together: half of them are zero."""
        return 2 if self.kind.a == "tf32" else 4

    @property
    def groups(self) -> int:
        """How many groups there are along k."""
        return self.k * self.units // self.per_register // self.group

    def at(self, number: int) -> int:
        """The group of k at this place along k of the dense product."""
        if self.kind.a not in _EIGHT_BITS:
            return number
        half = self.groups // 2
        return 2 * (number % half) + number // half

    def metadata(self, row: int, group: int) -> tuple[int, int]:
        """The lane that has it, and its first bit."""
        g, upper = row % 8, row // 8
        if self.groups == 4:
            return 4 * g + self.selector, 16 * upper + 4 * group
        if self.groups == 8 and self.kind.a not in INTEGERS:
            return 4 * g + 2 * self.selector + group // 4, 16 * upper + 4 * (group % 4)
        if self.groups == 8:
            return 4 * g + 2 * self.selector + upper, 4 * group
        return 4 * g + 2 * (group // 8) + upper, 4 * (group % 8)


def multiply_sparse(e: Emitter, ins: ir.Instruction) -> None:
    """mma.sp{::ordered_metadata}.sync.aligned.shape.row.col{.satfinite}.d.a.b.c D, A, B, C, metadata, selector."""
    words = ins.modifiers
    if words[0] not in _OPCODES or words[1:3] != ("sync", "aligned") or words[4:6] != ("row", "col"):
        raise e.unsupported()
    kind = kind_of(words[6:])
    m, _, k = words[3].partition("n8k")
    if (
        kind is None
        or (kind.a in _EIGHT_BITS and kind.d == "f16")
        or m != "m16"
        or not k.isdigit()
        or int(k) not in _FORMS.get(kind.a, (0, {}))[1]
    ):
        raise e.unsupported()
    per_register, selectors = _FORMS[kind.a][0], _FORMS[kind.a][1][int(k)]
    a, b, c = (elements(operand) for operand in ins.operands[1:4])
    outputs, selector = 2 if kind.d == "f16" else 4, ins.operands[5]
    if not isinstance(selector, ir.Imm) or not 0 <= selector.value < selectors:
        raise e.malformed(f"the selector is less than {selectors}")
    form = _Sparse(kind, int(k), per_register, int(selector.value))
    count = form.shape.b // per_register
    if (len(a), len(b), len(c), len(elements(ins.operands[0]))) != (count, count, outputs, outputs):
        raise e.malformed("fragment of the wrong size")
    out = e.stack("matrix.out", f"[8 x {LANES.int(64)}]")
    given = [*a, ins.operands[4]]
    if kind.a in INTEGERS:
        _multiply_integers(e, form, out, stored(e, [*given, *b, *c], 32))
    else:
        arranged = (Arrangement(str(form.selector), len(given), _dense_a(form), masked=True), _arranged_b(form))
        steps = Steps(32 if kind.a in _EIGHT_BITS else form.k)
        name, (a_helper, a_side), (b_helper, b_side) = tensor_core(e, form.shape, kind, "mma.sp", steps, arranged)
        ready = ready_fragment(e, a_helper, a_side, given), ready_fragment(e, b_helper, b_side, b)
        e.e(f'call void @"{name}"(ptr {out}, ptr {stored(e, c, 32)}, ptr {ready[0]}, ptr {ready[1]})')
    put_results(e, ins, out, 32)


def _multiply_integers(e: Emitter, form: _Sparse, out: str, scratch: str) -> None:
    """A function that makes A dense before it calls that of a dense product."""
    shape = form.shape
    multiply = core(e, shape, form.kind)

    def function(inner: Emitter, name: str) -> str:
        count, dense = shape.b // shape.per_register, shape.a // shape.per_register
        sources = _loaded(inner, range(count + 1))
        registers, _ = _dense_a(form)(inner, sources)
        rest = range(count + 1, 2 * count + 5)
        copied = [*registers, *_loaded(inner, rest)]
        assert len(copied) == dense + count + 4
        inner.e(f"%dense = alloca [{len(copied)} x {_V}], align 64")
        for index, value in enumerate(copied):
            inner.e(f"store {_V} {value}, ptr {inner.v(f'getelementptr {_V}, ptr %dense, i32 {index}')}, align 64")
        inner.e(f'call void @"{multiply}"(ptr %out, ptr %dense)')
        inner.e("ret void")
        return f'define internal void @"{name}"(ptr %out, ptr %in) noinline #0 {{\n' + "\n".join(inner.lines) + "\n}\n"

    name = f"mma.sp{form.selector}.{form.k}.{form.kind}"
    define(e, name, function)
    e.e(f'call void @"{name}"(ptr {out}, ptr {scratch})')


def _loaded(e: Emitter, places: range) -> list[str]:
    return [e.v(f"load {_V}, ptr {e.v(f'getelementptr {_V}, ptr %in, i32 {at}')}, align 64") for at in places]


def _dense_a(form: _Sparse) -> Callable[[Emitter, Sequence[str]], tuple[list[str], list[str]]]:
    """What makes the registers of a dense A, and of masks, from those of a sparse A and the metadata."""

    def make(e: Emitter, given: Sequence[str]) -> tuple[list[str], list[str]]:
        *registers, metadata = given
        nbits, there = 32 // form.units, form.group // 2
        units = [unit for register in registers for unit in _split(e, register, nbits)]
        dense = packed(16, form.k * form.units // form.per_register, form.units)
        held = packed(16, form.groups * there, form.units)
        holders = {held.a_place(lane // 4, lane % 4, i): (i, lane) for lane in range(WARP) for i in range(held.a)}
        values, masks = [], []
        for number in range(dense.a // form.units):
            value = mask = LANES.const(0, 32)
            for within in range(form.units):
                part, present = _unit(e, form, dense, holders, units, metadata, number * form.units + within)
                at = LANES.const(nbits * within, 32)
                value = e.v(f"or {_V} {value}, {e.v(f'shl {_V} {part}, {at}')}")
                kept = e.v(f"and {_V} {present}, {LANES.const((1 << nbits) - 1, 32)}")
                mask = e.v(f"or {_V} {mask}, {e.v(f'shl {_V} {kept}, {at}')}")
            values.append(value)
            masks.append(mask)
        return values, masks

    return make


def _unit(
    e: Emitter, form: _Sparse, dense: Shape, holders: dict[tuple[int, int], tuple[int, int]], units: Sequence[str],
    metadata: str, index: int,
) -> tuple[str, str]:  # fmt: skip
    """Unit `index` of each lane of the dense A, or zero, and -1 where there is one, or zero."""
    there = form.group // 2
    places = [dense.a_place(lane // 4, lane % 4, index) for lane in range(WARP)]
    groups = [form.at(k // form.group) for _, k in places]
    found = [form.metadata(row, group) for (row, _), group in zip(places, groups, strict=True)]
    bits = shuffle(e, "i32", metadata, [lane for lane, _ in found])
    bits = e.v(f"lshr {_V} {bits}, {_constants([bit for _, bit in found])}")
    value = mask = LANES.const(0, 32)
    # Metadata count halves of elements of tf32.
    wanted = _constants([k % form.group * (4 // form.group) for _, k in places])
    for which in range(there):
        shifted = e.v(f"and {_V} {e.v(f'lshr {_V} {bits}, {LANES.const(2 * which, 32)}')}, {LANES.const(3, 32)}")
        flag = e.v(f"sext {LANES.int(1)} {e.v(f'icmp eq {_V} {shifted}, {wanted}')} to {_V}")
        sources = [holders[row, group * there + which] for (row, _), group in zip(places, groups, strict=True)]
        part = e.v(f"and {_V} {gathered(e, 'i32', units, sources)}, {flag}")
        value = e.v(f"or {_V} {value}, {part}")
        mask = e.v(f"or {_V} {mask}, {flag}")
    return value, mask


def _arranged_b(form: _Sparse) -> Arrangement | None:
    """Registers of 8-bit floats of B, a group of k each, in the order in which the groups are added."""
    if form.kind.a not in _EIGHT_BITS:
        return None
    count = form.groups // 4

    def make(e: Emitter, given: Sequence[str]) -> tuple[list[str], list[str]]:
        made = []
        for number in range(count):
            groups = [form.at(lane % 4 + 4 * number) for lane in range(WARP)]
            sources = [(group // 4, lane // 4 * 4 + group % 4) for lane, group in enumerate(groups)]
            made.append(gathered(e, "i32", given, sources))
        return made, []

    return Arrangement("", count, make)


def _split(e: Emitter, register: str, nbits: int) -> list[str]:
    """Units of a register, in the low bits."""
    parts = [e.v(f"lshr {_V} {register}, {LANES.const(at, 32)}") for at in range(0, 32, nbits)]
    return [e.v(f"and {_V} {part}, {LANES.const((1 << nbits) - 1, 32)}") for part in parts]


def _constants(values: Sequence[int]) -> str:
    return "<" + ", ".join(f"i32 {value}" for value in values) + ">"
