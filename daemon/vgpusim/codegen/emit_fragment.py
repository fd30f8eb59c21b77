"""Fragments of A and B made ready for a tensor core's sums (emit_tensor_core), once for all products that use them.

Ready factors are f32. Of A they are as the lanes hold them: a vector has four k of eight rows. Of B they are turned:
four columns, the odd or the even ones of a tile, are neighbours. Behind the factors come their exponents, four bytes to
a lane, those of each step's k (Steps) by themselves, whether all factors are usual (emit_aligned_sum), and of a sparse
A which elements there are.

The difference of the bytes of a factor of A and one of B is the biased exponent of their product. If one is zero the
difference is not positive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_aligned_sum import SMALLEST, SPAN
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES, Form

GROUP = 4  # lanes that hold a row of A, or a column of B: a vector of a fragment's elements has four k
TILE = 8  # rows or columns
VECTOR_NBYTES = 4 * WARP
TOGETHER = 4  # exponents in a lane's register
# B's lane by place: [lane of the group][odd columns or even][which of these]
_BY_COLUMNS = [GROUP * (2 * which + odd) + k for k in range(GROUP) for odd in range(2) for which in range(GROUP)]
_HALVES: Final = {"f16": 10, "bf16": 7}  # bits of fraction
_PAIRS = Form(2 * WARP)
_BIAS, _MAGNITUDE = 127, (1 << 31) - 1
_NONE = 255  # the exponent of a factor of B that is zero

Place = Callable[[int, int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Steps:
    """Which k are added at once."""

    count: int
    by_halves: bool = False  # the k of the lower halves of registers come before those of the upper halves


@dataclass(frozen=True, slots=True)
class Side:
    """A or B: the type of its elements in registers and that by which they are multiplied; for each tile the elements
    of a lane in the order in which they are added."""

    is_a: bool
    kind: str
    factor: str
    per_register: int
    tiles: list[list[int]]
    ks: list[list[int]]  # what each of a tile's elements is, by lane of the group
    together: int  # elements of a lane that are added at once
    masked: bool = False

    @property
    def slots(self) -> int:
        return len(self.tiles[0])

    @property
    def exponents_at(self) -> int:
        return len(self.tiles) * self.slots * VECTOR_NBYTES

    @property
    def steps(self) -> list[range]:
        """The slots that are added at once."""
        return [range(at, at + self.together) for at in range(0, self.slots, self.together)]

    @property
    def groups_of_step(self) -> int:
        return -(-self.together // TOGETHER)

    @property
    def groups(self) -> int:
        return len(self.steps) * self.groups_of_step

    def grouped(self, tile: Sequence[int]) -> list[Sequence[int]]:
        """A tile's elements by the register that has their exponents."""
        return [tile[at : min(at + TOGETHER, slots.stop)] for slots in self.steps for at in slots[::TOGETHER]]

    @property
    def usual_at(self) -> int:
        return self.exponents_at + len(self.tiles) * self.groups * VECTOR_NBYTES

    @property
    def masks_at(self) -> int:
        """Of a word for each factor, -1 or, where there is no element, 0."""
        return self.usual_at + VECTOR_NBYTES

    @property
    def nbytes(self) -> int:
        return self.masks_at + (self.exponents_at if self.masked else 0)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the registers of a fragment are made from others: what distinguishes it from others of the same opcode; how
    many of these registers there are; their new values and, if some elements may be absent, registers with all bits of
    those that are there."""

    name: str
    count: int
    make: Callable[[Emitter, Sequence[str]], tuple[list[str], list[str]]]
    masked: bool = False


def side(
    is_a: bool, kind: str, factor: str, per_register: int, count: int, place: Place, steps: Steps, masked: bool = False
) -> Side:
    """Of a fragment of `count` elements a lane. `place`: row or column, and k, by group, lane of it and element."""

    def order(element: tuple[list[int], int]) -> tuple[bool, list[int]]:
        return steps.by_halves and element[1] % per_register >= per_register // 2, element[0]

    tiles: dict[int, list[tuple[list[int], int]]] = {}
    for i in range(count):
        row = place(0, 0, i)[0]
        ks = [place(0, t, i)[1] for t in range(GROUP)]
        assert all(place(g, t, i) == (row + g, ks[t]) for g in range(TILE) for t in range(GROUP))
        tiles.setdefault(row, []).append((ks, i))
    found = [sorted(tiles[row], key=order) for row in sorted(tiles)]
    orders = [[ks for ks, _ in tile] for tile in found]
    assert all(order == orders[0] for order in orders)
    together = min(steps.count // GROUP, len(orders[0]))
    assert len(orders[0]) % together == 0
    return Side(is_a, kind, factor, per_register, [[i for _, i in tile] for tile in found], orders[0], together, masked)


def prepare(
    e: Emitter, name: str, given: Side, split: Callable[[Emitter, str, str], list[str]], arrangement: Arrangement | None
) -> str:
    """A function of %to, the ready fragment, and %from, the registers. `split` gives a register's elements as f32."""
    count = sum(len(tile) for tile in given.tiles) // given.per_register
    word = LANES.int(32)
    registers = [
        e.v(f"load {word}, ptr {e.v(f'getelementptr {word}, ptr %from, i32 {index}')}, align 64")
        for index in range(arrangement.count if arrangement else count)
    ]
    if arrangement:
        registers, masks = arrangement.make(e, registers)
        _put_masks(e, given, masks)
    assert len(registers) == count
    usual = (_of_halves if given.kind in _HALVES else _of_floats)(e, given, registers, split)
    at = e.v(f"getelementptr i8, ptr %to, i64 {given.usual_at}")
    e.e(f"store i32 {e.v(f'zext i1 {usual} to i32')}, ptr {at}, align 64")
    e.e("ret void")
    return f'define internal void @"{name}"(ptr %to, ptr %from) noinline #0 {{\n' + "\n".join(e.lines) + "\n}\n"


def _put_masks(e: Emitter, given: Side, masks: Sequence[str]) -> None:
    word, nbits = LANES.int(32), 32 // given.per_register
    for number, tile in enumerate(given.tiles if given.masked else ()):
        for slot, element in enumerate(tile):
            above = 32 - nbits * (1 + element % given.per_register)
            top = e.v(f"shl {word} {masks[element // given.per_register]}, splat (i32 {above})")
            mask = e.v(f"ashr {word} {top}, splat (i32 31)")
            _put(e, "i32", mask, given.masks_at + (number * given.slots + slot) * VECTOR_NBYTES)


def _put(e: Emitter, kind: str, value: str, offset: int) -> None:
    e.e(f"store {LANES.of(kind)} {value}, ptr {e.v(f'getelementptr i8, ptr %to, i64 {offset}')}, align 64")


def _put_exponents(e: Emitter, given: Side, tile: int, group: int, value: str) -> None:
    kind = LANES.int(32)
    if not given.is_a:
        order = ", ".join(f"i32 {lane}" for lane in _BY_COLUMNS)
        value = e.v(f"shufflevector {kind} {value}, {kind} poison, <{WARP} x i32> <{order}>")
    _put(e, "i32", value, given.exponents_at + (tile * given.groups + group) * VECTOR_NBYTES)


def _of_halves(e: Emitter, given: Side, registers: Sequence[str], _: Callable[[Emitter, str, str], list[str]]) -> str:
    """Registers of two 16-bit floats each, which are handled together where possible."""
    kind, fraction = _PAIRS.int(16), _HALVES[given.kind]
    halves = [e.v(f"bitcast {LANES.int(32)} {register} to {kind}") for register in registers]
    sizes = [e.v(f"and {kind} {half}, {_PAIRS.const(0x7FFF, 16)}") for half in halves]
    lanes = range(WARP) if given.is_a else _BY_COLUMNS
    for number, tile in enumerate(given.tiles):
        for slot, element in enumerate(tile):
            order = ", ".join(f"i32 {2 * lane + element % 2}" for lane in lanes)
            half = halves[element // 2]
            bits = e.v(f"shufflevector {kind} {half}, {kind} poison, <{WARP} x i32> <{order}>")
            _put(e, "float", _widened(e, bits, given.kind), (number * given.slots + slot) * VECTOR_NBYTES)
        for group, elements in enumerate(given.grouped(tile)):
            total = ""
            pairs = elements[::2]
            assert all(element % 2 == 0 for element in pairs)
            for position, element in enumerate(pairs):
                exponent = _exponents(e, _PAIRS, 16, sizes[element // 2], fraction, given)
                byte = e.v(f"bitcast {kind} {exponent} to {LANES.int(32)}")
                if position:
                    byte = e.v(f"or {LANES.int(32)} {total}, {e.v(f'shl {LANES.int(32)} {byte}, splat (i32 8)')}")
                total = byte
            _put_exponents(e, given, number, group, total)
    return _all_within(e, _PAIRS, 16, sizes, fraction, given)


def _widened(e: Emitter, bits: str, kind: str) -> str:
    if kind == "f16":
        return e.v(f"fpext {LANES.of('half')} {e.to_fp(LANES, bits, 'f16')} to {LANES.of('float')}")
    return e.to_fp(LANES, e.v(f"shl {LANES.int(32)} {e.resize(LANES, bits, 16, 32)}, splat (i32 16)"), "f32")


def _of_floats(
    e: Emitter, given: Side, registers: Sequence[str], split: Callable[[Emitter, str, str], list[str]]
) -> str:
    """Registers of other types, element by element."""
    word = LANES.int(32)
    values = [value for register in registers for value in split(e, register, given.kind)]
    sizes = [e.v(f"and {word} {e.from_fp(LANES, value, 'f32')}, splat (i32 {_MAGNITUDE})") for value in values]
    order = ", ".join(f"i32 {lane}" for lane in _BY_COLUMNS)
    kind = LANES.of("float")
    for number, tile in enumerate(given.tiles):
        for slot, element in enumerate(tile):
            value = values[element]
            if not given.is_a:
                value = e.v(f"shufflevector {kind} {value}, {kind} poison, <{WARP} x i32> <{order}>")
            _put(e, "float", value, (number * given.slots + slot) * VECTOR_NBYTES)
        for group, elements in enumerate(given.grouped(tile)):
            total = ""
            for position, element in enumerate(elements):
                byte = _exponents(e, LANES, 32, sizes[element], 23, given)
                if position:
                    byte = e.v(f"or {word} {total}, {e.v(f'shl {word} {byte}, splat (i32 {8 * position})')}")
                total = byte
            _put_exponents(e, given, number, group, total)
    return _all_within(e, LANES, 32, sizes, 23, given)


def _exponents(e: Emitter, form: Form, nbits: int, size: str, fraction: int, given: Side) -> str:
    """Bytes of exponents, from the magnitudes of floats of `nbits` with that many bits of fraction."""
    kind, bias = form.int(nbits), 15 if nbits == 16 and fraction == 10 else _BIAS
    field = e.v(f"lshr {kind} {size}, {form.const(fraction, nbits)}")
    smallest = bias + SMALLEST[given.factor]
    if given.factor not in ("bf16", "tf32"):  # their usual factors are normal
        field = e.icall(form, "umax", nbits, field, form.const(smallest, nbits))
    span = SPAN if given.factor in ("bf16", "tf32") else 15  # no less than any exponent
    if given.is_a:
        byte = e.v(f"add {kind} {field}, {form.const(span + _BIAS - bias, nbits)}")
    else:
        byte = e.v(f"sub {kind} {form.const(span + bias, nbits)}, {field}")
    zero = e.v(f"icmp eq {kind} {size}, {form.const(0, nbits)}")
    none = form.const(0 if given.is_a else _NONE, nbits)
    return e.v(f"select {form.int(1)} {zero}, {kind} {none}, {kind} {byte}")


def _all_within(e: Emitter, form: Form, nbits: int, sizes: Sequence[str], fraction: int, given: Side) -> str:
    """Whether single precision serves for all factors of these magnitudes, a scalar: no infinity, no NaN, and nothing
    that overflows or underflows in between. Magnitudes are ordered like their bits."""
    kind, bias = form.int(nbits), 15 if nbits == 16 and fraction == 10 else _BIAS
    wide = given.factor in ("bf16", "tf32")
    high = SPAN if wide else 16
    most = sizes[0]
    for size in sizes[1:]:
        most = e.icall(form, "umax", nbits, most, size)
    fits = e.v(f"icmp ult {kind} {most}, {form.const((bias + high) << fraction, nbits)}")
    if wide:
        less = [e.v(f"sub {kind} {size}, {form.const(1, nbits)}") for size in sizes]  # zero wraps to the greatest
        least = less[0]
        for size in less[1:]:
            least = e.icall(form, "umin", nbits, least, size)
        large = e.v(f"icmp uge {kind} {least}, {form.const(((bias - SPAN) << fraction) - 1, nbits)}")
        fits = e.v(f"and {form.int(1)} {fits}, {large}")
    return e.v(f"icmp eq i{form.n} {e.v(f'bitcast {form.int(1)} {fits} to i{form.n}')}, -1")
