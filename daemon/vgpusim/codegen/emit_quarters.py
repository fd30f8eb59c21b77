"""mma.m8n8k4 of f16: four products at once, each of the eight lanes 4q to 4q+3 and 16+4q to 16+4q+3.

Processors after Volta have no such instruction: a driver makes f32 additions of it. The four products are added first,
to zero, then C; with sums in f16 the first two products, C, and the sum of the other two (as an H200's answers say)."""

from __future__ import annotations

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_memory import elements
from vgpusim.codegen.emit_mma import define, gathered, put_results, split, store_in_registers, stored
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES
from vgpusim.ptx import ir

_K = 4
_COUNT = 8  # elements of C in a lane


def multiply_quarters(e: Emitter, ins: ir.Instruction) -> None:
    """mma.sync.aligned.m8n8k4.alayout.blayout.d.f16.f16.c D, A, B, C."""
    words = ins.modifiers
    layouts, (d, *factors, c) = words[3:5], words[5:] if len(words) == 9 else ("",) * 4
    if words[:3] != ("sync", "aligned", "m8n8k4") or not set(layouts) <= {"row", "col"}:
        raise e.unsupported()
    if factors != ["f16", "f16"] or d != c or d not in ("f16", "f32"):
        raise e.unsupported()
    a, b, accumulators = (elements(operand) for operand in ins.operands[1:4])
    outputs = _COUNT // 2 if d == "f16" else _COUNT
    if (len(a), len(b), len(accumulators), len(elements(ins.operands[0]))) != (2, 2, outputs, outputs):
        raise e.malformed("fragment of the wrong size")
    name = f"mma.8.8.4.{layouts[0]}.{layouts[1]}.{d}"
    define(e, name, lambda inner, name: _function(inner, name, layouts[0] == "row", layouts[1] == "row", d))
    out = e.stack("matrix.out", f"[8 x {LANES.int(64)}]")
    e.e(f'call void @"{name}"(ptr {out}, ptr {stored(e, [*a, *b, *accumulators], 32)})')
    put_results(e, ins, out, 32)


def _function(e: Emitter, name: str, a_by_row: bool, b_by_row: bool, d: str) -> str:
    word, kind = LANES.int(32), LANES.of("float")
    count = 4 + (_COUNT // 2 if d == "f16" else _COUNT)
    registers = [
        e.v(f"load {word}, ptr {e.v(f'getelementptr {word}, ptr %in, i32 {at}')}, align 64") for at in range(count)
    ]
    a, b = ([v for r in registers[at : at + 2] for v in split(e, r, "f16")] for at in (0, 2))
    c = [v for r in registers[4:] for v in split(e, r, d)]
    results = []
    for i, start in enumerate(c):
        places = [_accumulator(lane, i, d) for lane in range(WARP)]
        products = []
        for k in range(_K):
            x = _factor(e, a, [(row, lane) for lane, (row, _) in enumerate(places)], k, along=a_by_row)
            y = _factor(e, b, [(column, lane) for lane, (_, column) in enumerate(places)], k, along=not b_by_row)
            products.append(e.v(f"fmul {kind} {x}, {y}"))  # exact
        if d == "f16":
            first, rest = (e.v(f"fadd {kind} {x}, {y}") for x, y in (products[:2], products[2:]))
            total = e.v(f"fadd {kind} {e.v(f'fadd {kind} {first}, {start}')}, {rest}")
            total = e.v(f"fptrunc {kind} {total} to {LANES.of('half')}")
        else:
            total = LANES.fconst(0.0, "float")
            for term in (*products, start):
                total = e.v(f"fadd {kind} {total}, {term}")
        results.append(e.canonical_nan(LANES, e.from_fp(LANES, total, d), d))
    store_in_registers(e, results, d)
    e.e("ret void")
    return f'define internal void @"{name}"(ptr %out, ptr %in) noinline #0 {{\n' + "\n".join(e.lines) + "\n}\n"


def _accumulator(lane: int, i: int, d: str) -> tuple[int, int]:
    """Row and column of element i of C."""
    lower = 4 * (lane // 16)
    if d == "f16":
        return lane % 4 + lower, i
    return lane % 2 + i // 2 % 2 * 2 + lower, i // 4 * 4 + lane // 2 % 2 * 2 + i % 2


def _factor(e: Emitter, values: list[str], wanted: list[tuple[int, int]], k: int, along: bool) -> str:
    """The factor k of a row of A, or column of B, for each lane. `along`: a lane holds the k of one; else it holds four
    rows, or columns, of one k."""
    sources = []
    for row, lane in wanted:
        quarter = lane % 16 // 4 * 4 + row // 4 * 16
        sources.append((k, quarter + row % 4) if along else (row % 4, quarter + k))
    return gathered(e, "float", values, sources)
