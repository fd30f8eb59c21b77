"""Directed rounding (.rz .rm .rp): of arithmetic by the processor's rounding mode; of conversions by the nearest
result, then one step towards the exact one when that is on the wrong side."""

from __future__ import annotations

from vgpusim.codegen import native
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import FP_NAMES, Form
from vgpusim.ptx import ir

_X86_MODES = {"rm": 0x2000, "rp": 0x4000, "rz": 0x6000}  # of the control word
_X86_WORD, _X86_FLUSH_WORD = 0x1F80, 0x9FC0  # exceptions masked; subnormals are zeros
_MODES = {"rz": 0, "rp": 2, "rm": 3}  # of llvm.set.rounding; 1 is to nearest
_LLVM_NAMES = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "fma": "fma", "mad": "fma", "sqrt": "sqrt"}


def directed(e: Emitter, form: Form, name: str, kind: str, values: list[str], mode: str) -> str:
    """op(values) rounded towards zero, minus or plus infinity: a function that sets the processor's rounding mode."""
    if kind not in ("f32", "f64") or name not in _LLVM_NAMES:
        raise e.unsupported("directed rounding")
    element = FP_NAMES[kind]
    operation, wide, suffix = _LLVM_NAMES[name], form.of(element), form.suffix(element)
    helper = f"{operation}.{mode}.{suffix}"
    listed = ", ".join(f"{wide} %x{i}" for i in range(len(values)))
    enter, leave, declared = _mode_change(mode, e.flush_by_mxcsr)
    intrinsic = f"llvm.experimental.constrained.{operation}.{suffix}"
    types = ", ".join([wide] * len(values))
    e.helper(helper, f"""define internal {wide} @{helper}({listed}) noinline strictfp #0 {{
{enter}  %r = call {wide} @{intrinsic}({listed}, metadata !"round.dynamic", metadata !"fpexcept.strict") strictfp
{leave}  ret {wide} %r
}}
{declared}declare {wide} @{intrinsic}({types}, metadata, metadata)
""")  # fmt: skip
    return e.v(f"call {wide} @{helper}({', '.join(f'{wide} {v}' for v in values)})")


def _mode_change(mode: str, flush: bool) -> tuple[str, str, str]:
    """LLVM text that sets a rounding mode, text that restores the usual one, and the declarations that both need."""
    if not native.IS_X86:
        change = "  call void @llvm.set.rounding(i32 {})\n"
        return change.format(_MODES[mode]), change.format(1), "declare void @llvm.set.rounding(i32)\n"
    word = _X86_FLUSH_WORD if flush else _X86_WORD
    change = "  store i32 {}, ptr %mode\n  call void @llvm.x86.sse.ldmxcsr(ptr %mode)\n"
    enter = "  %mode = alloca i32\n" + change.format(word | _X86_MODES[mode])
    return enter, change.format(word), "declare void @llvm.x86.sse.ldmxcsr(ptr)\n"


def to_odd(e: Emitter, form: Form, x: str) -> str:
    """Bits of double x as f32, truncated with the last bit set if anything was lost: a second rounding is then
    exact."""
    bits = narrow(e, form, x, None, "f64", "f32", "rz")
    back = e.v(f"fpext {form.of('float')} {e.to_fp(form, bits, 'f32')} to {form.of('double')}")
    inexact = e.v(f"fcmp one {form.of('double')} {back}, {x}")
    sticky = e.v(f"zext {form.int(1)} {inexact} to {form.int(32)}")
    return e.v(f"or {form.int(32)} {bits}, {sticky}")


def narrow(e: Emitter, form: Form, value: str, error: str | None, source: str, to: str, mode: str) -> str:
    """Bits of value + error (error smaller than half an ulp of value) converted to a narrower type, directed."""
    wide, small = form.of(FP_NAMES[source]), form.of(FP_NAMES[to])
    near = e.v(f"fptrunc {wide} {value} to {small}")
    back = e.v(f"fpext {small} {near} to {wide}")
    # exact - back has the sign of (value - back), or of the error where that is zero
    difference = e.v(f"fsub {wide} {value}, {back}")
    if error is not None:
        zero = e.v(f"fcmp oeq {wide} {difference}, {form.fconst(0.0, FP_NAMES[source])}")
        difference = e.v(f"select {form.int(1)} {zero}, {wide} {error}, {wide} {difference}")
    overflowed = e.v(f"fcmp oeq {wide} {e.fcall(form, 'fabs', FP_NAMES[source], back)}, "
                     f"{form.fconst(float('inf'), FP_NAMES[source])}")  # fmt: skip
    finite = e.v(f"fcmp olt {wide} {e.fcall(form, 'fabs', FP_NAMES[source], value)}, "
                 f"{form.fconst(float('inf'), FP_NAMES[source])}")  # fmt: skip
    past = e.v(f"and {form.int(1)} {overflowed}, {finite}")
    away = e.v(f"fneg {wide} {back}")
    difference = e.v(f"select {form.int(1)} {past}, {wide} {away}, {wide} {difference}")
    bits = e.from_fp(form, near, to)
    return step(e, form, bits, difference, FP_NAMES[source], ir.TYPE_NBITS[to], mode)


def step(e: Emitter, form: Form, bits: str, difference: str, element: str, nbits: int, mode: str) -> str:
    """Move `bits` one ulp in the direction of `difference` (exact minus nearest) where `mode` asks for it."""
    wide, kind, flag = form.of(element), form.int(nbits), form.int(1)
    zero = form.fconst(0.0, element)
    above = e.v(f"fcmp ogt {wide} {difference}, {zero}")
    below = e.v(f"fcmp olt {wide} {difference}, {zero}")
    negative = e.v(f"icmp slt {kind} {bits}, {form.const(0, nbits)}")
    # with sign and magnitude, +1 moves away from zero and -1 towards it
    positive = e.v(f"xor {flag} {negative}, {form.const(1, 1)}")
    plus, minus = form.const(1, nbits), form.const(-1, nbits)
    # a nearest result of zero may have to become the smallest number of the sign of the exact result
    magnitude = e.v(f"and {kind} {bits}, {form.const((1 << (nbits - 1)) - 1, nbits)}")
    is_zero = e.v(f"icmp eq {kind} {magnitude}, {form.const(0, nbits)}")
    if mode == "rz":
        low = e.v(f"and {flag} {positive}, {below}")
        high = e.v(f"and {flag} {negative}, {above}")
        move = e.v(f"or {flag} {low}, {high}")
        move = e.v(f"and {flag} {move}, {e.v(f'xor {flag} {is_zero}, {form.const(1, 1)}')}")
        amount = e.v(f"select {flag} {move}, {kind} {minus}, {kind} {form.const(0, nbits)}")
        return e.v(f"add {kind} {bits}, {amount}")
    move = above if mode == "rp" else below
    grows = positive if mode == "rp" else negative
    amount = e.v(f"select {flag} {grows}, {kind} {plus}, {kind} {minus}")
    moved = e.v(f"add {kind} {bits}, {amount}")
    smallest = form.const(1 if mode == "rp" else (1 << (nbits - 1)) | 1, nbits)
    moved = e.v(f"select {flag} {is_zero}, {kind} {smallest}, {kind} {moved}")
    return e.v(f"select {flag} {move}, {kind} {moved}, {kind} {bits}")


def two_sum(e: Emitter, form: Form, element: str, a: str, b: str) -> tuple[str, str]:
    """Knuth's two-sum: the rounded sum and its exact error."""
    kind = form.of(element)
    total = e.v(f"fadd {kind} {a}, {b}")
    bb = e.v(f"fsub {kind} {total}, {a}")
    rest = e.v(f"fsub {kind} {a}, {e.v(f'fsub {kind} {total}, {bb}')}")
    return total, e.v(f"fadd {kind} {rest}, {e.v(f'fsub {kind} {b}, {bb}')}")
