"""How a value varies over the lanes of a warp, where it is linear in the bits of the lane number.

Lane l holds lane 0's value plus steps[k] for each bit k set in l. That covers what thread numbers become in blocks of
any power-of-two width: %tid.x of a 16x16 block has steps (1, 2, 4, 8, 0), %tid.y has (0, 0, 0, 0, 1). A step that is
not known when the kernel is compiled is None; above it and below it steps still say how lanes of one half relate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from vgpusim.codegen.abi import WARP

LANE_BITS = WARP.bit_length() - 1
_MAX_STEP = 1 << 28
_SAME = (0,) * LANE_BITS


@dataclass(frozen=True, slots=True)
class Pattern:
    steps: tuple[int | None, ...]

    @property
    def uniform(self) -> bool:
        """All lanes agree."""
        return self.steps == _SAME

    @property
    def known(self) -> bool:
        """Lane 0's value gives every other lane's."""
        return None not in self.steps

    @property
    def stride(self) -> int | None:
        """The n for which lane l holds n*l more than lane 0."""
        first = self.steps[0]
        return first if first is not None and self == linear(first) else None

    def offsets(self) -> list[int]:
        """The difference of each lane's value from lane 0's, for a known pattern."""
        return list(_offsets(self.steps))

    def sum(self, other: Pattern) -> Pattern:
        """The pattern of the sum of two values."""
        return _combine(self, other, lambda a, b: a + b)

    def difference(self, other: Pattern) -> Pattern:
        return _combine(self, other, lambda a, b: a - b)

    def scaled(self, factor: int | None) -> Pattern:
        """The pattern of a product with a uniform factor; None: not known."""
        return Pattern(tuple(_bounded(s if not s else None if factor is None else s * factor) for s in self.steps))

    def join(self, other: Pattern) -> Pattern:
        """The pattern of a value that is either of the two values, the same one on all lanes."""
        if self.steps == other.steps:
            return self
        return Pattern(tuple(a if a == b else None for a, b in zip(self.steps, other.steps, strict=True)))

    def separate(self, alignment: int) -> bool:
        """Whether each lane bit changes bits of the value that no other lane bit changes and that lane 0's value, a
        multiple of `alignment`, has not set. Adding then equals or-ing, and the bits can be separated.
        """
        total = 0
        for step in self.steps:
            if step is None or step < 0 or step & total:
                return False
            total |= step
        return total < alignment

    def bits(self, change: Callable[[int], int]) -> Pattern:
        """The pattern of a bitwise operation on operands without common bits."""
        return Pattern(tuple(change(step) for step in self.steps if step is not None))


@functools.lru_cache(1024)
def _offsets(steps: tuple[int | None, ...]) -> tuple[int, ...]:
    known = [step for step in steps if step is not None]
    assert len(known) == LANE_BITS
    return tuple(sum(step for k, step in enumerate(known) if lane >> k & 1) for lane in range(WARP))


def _bounded(step: int | None) -> int | None:
    return step if step is not None and abs(step) <= _MAX_STEP else None


def _combine(a: Pattern, b: Pattern, operation: Callable[[int, int], int]) -> Pattern:
    return Pattern(
        tuple(
            None if x is None or y is None else _bounded(operation(x, y)) for x, y in zip(a.steps, b.steps, strict=True)
        )
    )


def linear(stride: int) -> Pattern:
    """Lane l holds stride*l more than lane 0."""
    return Pattern(tuple(stride << k for k in range(LANE_BITS)))


def digit(low: int, high: int = LANE_BITS) -> Pattern:
    """Bits low..high-1 of the lane number."""
    return Pattern(tuple(1 << (k - low) if low <= k < high else 0 for k in range(LANE_BITS)))


UNIFORM = linear(0)
VARYING = Pattern((None,) * LANE_BITS)
