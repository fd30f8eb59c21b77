"""Sums of products of f64, as a tensor core makes them: one fused multiply-add for each k, in order."""

from __future__ import annotations

from collections.abc import Sequence

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_rounding import directed
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES

_KIND, _FLAG = LANES.of("double"), LANES.int(1)


def double_sum(e: Emitter, rounding: str, start: str, pairs: Sequence[tuple[str, str]], nan: bool) -> str:
    """`nan`: a NaN is that of the operand that the hardware chooses, which takes more instructions."""
    for x, y in pairs:
        if rounding:
            value = directed(e, LANES, "fma", "f64", [x, y, start], rounding)
        else:
            value = e.fcall(LANES, "fma", "double", x, y, start)
        start = _first_nan(e, (y, start, x), value) if nan else value
    return start


def _first_nan(e: Emitter, operands: Sequence[str], value: str) -> str:
    """The first operand that is a NaN, made quiet, or the value. An H200 looks at the factor of B, then at the sum so
    far, then at the factor of A."""
    word = LANES.int(64)
    for x in reversed(operands):
        unordered = e.v(f"fcmp uno {_KIND} {x}, {x}")
        quiet = e.to_fp(LANES, e.v(f"or {word} {e.from_fp(LANES, x, 'f64')}, {LANES.const(1 << 51, 64)}"), "f64")
        value = e.v(f"select {_FLAG} {unordered}, {_KIND} {quiet}, {_KIND} {value}")
    return value


def call_for_nan(e: Emitter, name: str, results: Sequence[str]) -> None:
    """Leave all to function `name` if there is a NaN in the results."""
    some = LANES.const(0, 1)
    for value in results:
        some = e.v(f"or {_FLAG} {some}, {e.v(f'fcmp uno {_KIND} {value}, {value}')}")
    none = e.v(f"icmp eq i{WARP} {e.v(f'bitcast {_FLAG} {some} to i{WARP}')}, 0")
    e.e(f"br i1 {none}, label %plain, label %nan")
    e.label("nan")
    e.e(f'call void @"{name}"(ptr %out, ptr %in)')
    e.e("ret void")
    e.label("plain")
