"""The outcome of a check on one side, and the comparison of the outcomes of two sides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

NOT_SUPPORTED = "801"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`values` are texts, compared exactly, or numbers, compared within `tolerance` (relative; absolute below 1)."""

    values: tuple[str | float, ...] = ()
    tolerance: float = 0.0
    error: str | None = None  # why the check failed
    missing: str | None = None  # why the check cannot run here

    def __str__(self) -> str:
        if self.missing is not None:
            return f"not run: {self.missing}"
        if self.error is not None:
            return f"failed: {self.error}"
        return " ".join(f"{value:.9g}" if isinstance(value, float) else value for value in self.values)


class Verdict(Enum):
    """How one side compares with another."""

    SAME = "same"
    NOT_RUN = "not run"  # the check did not run on one of the sides
    NOT_OFFERED = "not offered"  # NOT_SUPPORTED where the other side has a result: a stated limit, not an error
    EXPECTED = "expected"  # a consequence of a call that is not offered
    DIFFERENT = "different"


def compare(base: Outcome, other: Outcome, *, accepted: frozenset[str] = frozenset()) -> Verdict:
    """Compare `other` with `base`.

    Args:
        base: The expected outcome.
        other: The outcome to judge; the wider of the two tolerances applies.
        accepted: Further values that are right for `other`.
    """
    if base.missing is not None or other.missing is not None:
        return Verdict.NOT_RUN
    if base.error is not None or other.error is not None:
        return Verdict.DIFFERENT  # even if both sides fail, as nothing was compared
    if len(base.values) == len(other.values):
        tolerance = max(base.tolerance, other.tolerance)
        if all(_is_close(a, b, tolerance) for a, b in zip(base.values, other.values, strict=True)):
            return Verdict.SAME
        if other.values == (NOT_SUPPORTED,):
            return Verdict.NOT_OFFERED
    return Verdict.EXPECTED if other.values in {(value,) for value in accepted} else Verdict.DIFFERENT


def _is_close(a: str | float, b: str | float, tolerance: float) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b or (math.isnan(a) and math.isnan(b))
    return abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))
