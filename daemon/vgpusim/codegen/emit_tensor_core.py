"""Products of a warp's matrices of floats, summed as a tensor core does (emit_aligned_sum), from ready fragments.

Sixteen elements of D are computed at once: four rows by the four odd, or even, columns of a tile, as a register of the
fragment holds them. Loops go over these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpusim.codegen import emit_aligned_sum as aligned
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_aligned_sum import FORM, Flags, Unit
from vgpusim.codegen.emit_fragment import GROUP, TILE, VECTOR_NBYTES, Side
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES

if TYPE_CHECKING:
    from vgpusim.codegen.emit_mma import Kind, Shape

_FLAGS = ("greatest", "least", "furthest")
_STEP_NBYTES = 2 * 4 * GROUP  # from a k of B's to the next


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a loop is: an offset into C and D; addresses of parts of A and B."""

    c: str
    a: str
    a_exponents: str
    b: str
    b_exponents: str


def product(
    e: Emitter, name: str, shape: Shape, kind: Kind, sides: tuple[Side, Side], unit: Unit, separate: bool
) -> str:
    """A function of %out, which gets D's registers, %c, which has C's, and %a and %b, which are ready fragments.

    Args:
        separate: C is not the first accumulator but is added to the sum of the products, rounded to nearest.
    """
    core = _Core(e, shape, kind, sides, unit, separate)
    usual = e.v(f"and i32 {core.usual('%a', sides[0])}, {core.usual('%b', sides[1])}")
    e.e(f"br i1 {e.v(f'icmp ne i32 {usual}, 0')}, label %fast, label %special")
    e.label("fast")
    flags = core.loop("usual", core.single)
    e.e(f"br i1 {aligned.served(e, flags)}, label %done, label %special")
    e.label("special")
    core.loop("any", core.double)
    e.e("br label %done")
    e.label("done")
    core.leave()
    arguments = ", ".join(f"ptr noalias %{argument}" for argument in ("out", "c", "a", "b"))
    return f'define internal void @"{name}"({arguments}) noinline #0 {{\n' + "\n".join(e.lines) + "\n}\n"


class _Core:
    def __init__(
        self, e: Emitter, shape: Shape, kind: Kind, sides: tuple[Side, Side], unit: Unit, separate: bool
    ) -> None:
        self.e, self.kind, self.sides, self.unit, self.separate = e, kind, sides, unit, separate
        self.count = shape.m * shape.n // WARP  # elements of C in a lane
        self.rows, self.columns = (len(side.tiles) for side in sides)
        assert (sides[0].ks, sides[0].together) == (sides[1].ks, sides[1].together)
        for row in range(self.rows):
            for column in range(self.columns):
                for odd in range(2):
                    at = odd + 2 * (row + self.rows * column)
                    assert shape.c_place(0, 0, at) == (TILE * row, TILE * column + odd)
        self.steps = sides[0].steps
        self.c, self.d = "%c" if kind.c == "f32" else "%wide.c", "%out" if kind.d == "f32" else "%wide.d"
        for place in {self.c, self.d} & {"%wide.c", "%wide.d"}:
            e.e(f"{place} = alloca [{self.count} x {LANES.int(32)}], align 64")
        if kind.c == "f16":
            self._widen()

    def _at(self, base: str, offset: int | str) -> str:
        return self.e.v(f"getelementptr i8, ptr {base}, i64 {offset}")

    def usual(self, fragment: str, side: Side) -> str:
        return self.e.v(f"load i32, ptr {self._at(fragment, side.usual_at)}, align 64")

    def _widen(self) -> None:
        """Accumulators of f16 become f32."""
        e, word = self.e, LANES.int(32)
        for number in range(self.count // 2):
            both = e.v(f"load {word}, ptr {self._at('%c', number * VECTOR_NBYTES)}, align 64")
            for odd in range(2):
                half = e.to_fp(
                    LANES, e.resize(LANES, e.v(f"lshr {word} {both}, splat (i32 {16 * odd})"), 32, 16), "f16"
                )
                value = e.v(f"fpext {LANES.of('half')} {half} to {LANES.of('float')}")
                place = self._at(self.c, (2 * number + odd) * VECTOR_NBYTES)
                e.e(f"store {LANES.of('float')} {value}, ptr {place}, align 64")

    def leave(self) -> None:
        """Join pairs of f16 results, and return."""
        e, word = self.e, LANES.int(32)
        for number in range(self.count // 2 if self.kind.d == "f16" else 0):
            low, high = (
                e.v(f"load {word}, ptr {self._at(self.d, (2 * number + odd) * VECTOR_NBYTES)}, align 64")
                for odd in range(2)
            )
            both = e.v(f"or {word} {low}, {e.v(f'shl {word} {high}, splat (i32 16)')}")
            e.e(f"store {word} {both}, ptr {self._at('%out', number * VECTOR_NBYTES)}, align 64")
        e.e("ret void")

    def loop(self, name: str, body: Callable[[_Place, Flags], Flags]) -> Flags:
        """Loops over halves of row tiles, and over even and odd columns of tiles; the flags after them."""
        e = self.e
        rows, columns = f"{name}.rows", f"{name}.columns"
        e.e(f"br label %{name}")
        e.label(name)
        row, half, flags = self._enter(rows, name, aligned.NO_FLAGS)
        column, odd, flags = self._enter(columns, rows, flags)
        tile = 2 * VECTOR_NBYTES
        c = e.v(f"add i64 {self._offset((row, tile), (half, tile // 4))}, "
                f"{self._offset((column, self.rows * tile), (odd, tile // 2))}")  # fmt: skip
        place = _Place(c, *(
            self._at(fragment, self._offset((number, count * VECTOR_NBYTES), (part, nbytes)))
            for fragment, number, part, nbytes, side in (
                ("%a", row, half, VECTOR_NBYTES // 2, self.sides[0]), ("%b", column, odd, 4 * GROUP, self.sides[1]),
            )
            for count in (side.slots, side.groups)
        ))  # fmt: skip
        flags = body(place, flags)
        e.e(f"br label %{columns}.next")
        flags = self._leave(columns, 2 * self.columns, f"{rows}.next", flags)
        return self._leave(rows, 2 * self.rows, f"{name}.end", flags)

    def _offset(self, *terms: tuple[str, int]) -> str:
        parts = [self.e.v(f"mul i64 {value}, {nbytes}") for value, nbytes in terms]
        return self.e.v(f"add i64 {parts[0]}, {parts[1]}")

    def _enter(self, name: str, before: str, flags: Flags) -> tuple[str, str, Flags]:
        """Begin a loop: the halves of its counter, and flags."""
        e = self.e
        e.e(f"br label %{name}")
        e.label(name)
        e.e(f"%{name}.n = phi i64 [ 0, %{before} ], [ %{name}.n.next, %{name}.next ]")
        for flag in _FLAGS:
            start = f"[ {getattr(flags, flag)}, %{before} ]"
            e.e(f"%{name}.{flag} = phi {FORM.int(32)} {start}, [ %{name}.{flag}.next, %{name}.next ]")
        both = e.v(f"lshr i64 %{name}.n, 1"), e.v(f"and i64 %{name}.n, 1")
        return *both, Flags(*(f"%{name}.{flag}" for flag in _FLAGS))

    def _leave(self, name: str, limit: int, after: str, flags: Flags) -> Flags:
        """End a loop."""
        e = self.e
        e.label(f"{name}.next")
        for flag in _FLAGS:
            e.e(f"%{name}.{flag}.next = or {FORM.int(32)} {getattr(flags, flag)}, zeroinitializer")
        e.e(f"%{name}.n.next = add i64 %{name}.n, 1")
        e.e(f"br i1 {e.v(f'icmp ult i64 %{name}.n.next, {limit}')}, label %{name}, label %{after}")
        if after.endswith(".end"):
            e.label(after)
        return Flags(*(f"%{name}.{flag}.next" for flag in _FLAGS))

    def _a(self, place: str, offset: int, element: str) -> list[str]:
        """What A's lanes of a row have for four k, each for the row's four sums."""
        e, kind = self.e, FORM.of(element)
        value, found = e.v(f"load {kind}, ptr {self._at(place, offset)}, align 64"), []
        for k in range(GROUP):
            order = ", ".join(f"i32 {lane // GROUP * GROUP + k}" for lane in range(FORM.n))
            found.append(e.v(f"shufflevector {kind} {value}, {kind} poison, <{FORM.n} x i32> <{order}>"))
        return found

    def _b(self, place: str, offset: int, element: str) -> list[str]:
        """What B has for four k, the four columns for each row."""
        e, kind, found = self.e, f"<{GROUP} x {element}>", []
        order = ", ".join(f"i32 {lane % GROUP}" for lane in range(FORM.n))
        for k in range(GROUP):
            value = e.v(f"load {kind}, ptr {self._at(place, offset + k * _STEP_NBYTES)}, align 16")
            found.append(e.v(f"shufflevector {kind} {value}, {kind} poison, <{FORM.n} x i32> <{order}>"))
        return found

    def _factors(self, place: _Place, slots: Sequence[int]) -> list[tuple[str, str]]:
        offsets = [slot * VECTOR_NBYTES for slot in slots]
        pairs = (zip(self._a(place.a, at, "float"), self._b(place.b, at, "float"), strict=True) for at in offsets)
        return [pair for four in pairs for pair in four]

    def _present(
        self, place: _Place, slots: Sequence[int], factors: Sequence[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        """Factors, those of B zero where A has no element: there they may be infinities and NaNs."""
        e, word, found = self.e, FORM.int(32), []
        at = self.sides[0].masks_at
        masks = [mask for slot in slots for mask in self._a(place.a, at + slot * VECTOR_NBYTES, "i32")]
        for (x, y), mask in zip(factors, masks, strict=True):
            kept = e.v(f"and {word} {e.from_fp(FORM, y, 'f32')}, {mask}")
            found.append((x, e.to_fp(FORM, kept, "f32")))
        return found

    def _exponents(self, place: _Place, step: int) -> list[tuple[str, str]]:
        a, b = (side.exponents_at for side in self.sides)
        count = self.sides[0].groups_of_step
        offsets = [group * VECTOR_NBYTES for group in range(step * count, (step + 1) * count)]
        pairs = (zip(self._a(place.a_exponents, a + at, "i32"), self._b(place.b_exponents, b + at, "i32"), strict=True)
                 for at in offsets)  # fmt: skip
        return [pair for four in pairs for pair in four]

    def single(self, place: _Place, flags: Flags) -> Flags:
        e, bits = self.e, ""
        value = self._first(place)
        for number, slots in enumerate(self.steps):
            most = aligned.greatest(e, self._exponents(place, number))
            value, kind = (as_float(e, bits, self.kind.d), self.kind.d) if bits else (value, self.kind.c)
            factors = self._factors(place, slots)
            total, worth, flags = aligned.single_sum(e, self.unit, factors, most, value, kind, flags)
            bits = aligned.single_bits(e, self.unit, total, worth, self.kind.d)
        self._store(bits, place)
        return flags

    def double(self, place: _Place, flags: Flags) -> Flags:
        e, bits = self.e, ""
        value = self._first(place)
        least = [aligned.SMALLEST[side.factor] for side in self.sides]
        for slots in self.steps:
            factors = self._factors(place, slots)
            if self.sides[0].masked:
                factors = self._present(place, slots, factors)
            pairs = [(aligned.widened(e, x), aligned.widened(e, y)) for x, y in factors]
            powers = [(aligned.power(e, x, least[0]), aligned.power(e, y, least[1])) for x, y in pairs]
            value = aligned.widened(e, as_float(e, bits, self.kind.d) if bits else value)
            kind = self.kind.d if bits else self.kind.c
            bits = aligned.double_bits(e, self.unit, aligned.Terms(pairs, powers, value, kind), self.kind.d)
        self._store(bits, place)
        return flags

    def _first(self, place: _Place) -> str:
        """The first step's accumulator."""
        return FORM.fconst(0.0, "float") if self.separate else self._accumulator(place)

    def _accumulator(self, place: _Place) -> str:
        return self.e.v(f"load {FORM.of('float')}, ptr {self._at(self.c, place.c)}, align 64")

    def _store(self, bits: str, place: _Place) -> None:
        e = self.e
        if self.separate:
            bits = aligned.rounded_sum(e, as_float(e, bits, self.kind.d), self._accumulator(place), self.kind.d)
        if self.kind.d == "f16":
            bits = e.resize(FORM, bits, 16, 32)
        e.e(f"store {FORM.int(32)} {bits}, ptr {self._at(self.d, place.c)}, align 64")


def as_float(e: Emitter, bits: str, kind: str) -> str:
    """The f32 value of a result's bits."""
    value = e.to_fp(FORM, bits, kind)
    return value if kind == "f32" else e.v(f"fpext {FORM.of('half')} {value} to {FORM.of('float')}")
