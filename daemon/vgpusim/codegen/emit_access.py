"""Addresses of memory operands, and what is checked before an access: that it lies where a kernel may reach, else the
launch ends with 700, and that it is aligned, else with 716. The processor itself would report neither.

Everything that kernels may reach lies in one range of addresses (device/vgx_sim_reach.h), so one test of an address's
upper bits confines an access; within the range, what is not allocated is not mapped. At least _MARGIN_NBYTES on both
sides of the range are not mapped, so an access that is closer than that to a tested address needs no test of its own.
"""

from __future__ import annotations

from vgpusim.codegen import abi, emit_count, emit_watch
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter, slot_alignment
from vgpusim.codegen.lane_pattern import UNIFORM, VARYING, Pattern
from vgpusim.codegen.lane_value import LANES, Form, Value
from vgpusim.ptx import ir

_MISALIGNED_ADDRESS = 716  # CUDA_ERROR_MISALIGNED_ADDRESS
_WRITING = ("st", "red", "stmatrix")
_MARGIN_NBYTES = 1 << 20
_MAX_SUMS = 8
_MAX_UNKNOWN = 2  # bits of the lane number
_OUTSIDE = -(1 << abi.REACH_NBITS) % (1 << 64)  # the bits of an address that identify its range


def description(ins: ir.Instruction, nbytes: int, kind: str = "") -> str:
    """The text of a report about an access, before its address."""
    if not kind:
        kind = (
            "atomic"
            if ins.opcode in ("atom", "red")
            else "write"
            if ins.opcode in _WRITING or ins.has("store")
            else "read"
        )
    return f"{kind} of {f'{nbytes} bytes' if nbytes else 'memory'} by `{ins.text}`{source(ins)}"


def source(ins: ir.Instruction) -> str:
    return f" ({ins.source}; PTX line {ins.line})" if ins.source else f" (PTX line {ins.line})"


def address(
    e: Emitter, ins: ir.Instruction, operand: ir.Operand, space: str, nbytes: int, align: int = 0, kind: str = "",
    mask: str | None = None, value: Value | None = None, sizes: str = "null",
) -> Value:  # fmt: skip
    """The real address of a memory operand, 64 bits, checked: every access to memory that a kernel names takes its
    address from here, or checks one with `check`.

    Args:
        nbytes: Of a lane's access, for reports; 0: known at run time, below 4 GiB.
        align: A power of two; 0: nbytes.
        kind: What a report calls the access, where the opcode does not tell.
        mask: Lanes whose addresses are used, an i32, where those are not the acting ones.
        value, sizes: For the sanitizer: the stored value; each lane's nbytes in memory, if known only at run time.
    """
    if not isinstance(operand, ir.Address):
        raise e.malformed("address expected")
    align = align or nbytes or 1
    base, offset = operand.base, operand.offset
    if isinstance(base, ir.Symbol) and base.name in e.program.shared:
        space = "shared"  # shared variables are addressed by offset whatever the instruction says
    if space == "shared":
        at, inside = _shared(e, e.read(base, 32), offset), True
        fixed = isinstance(base, ir.Symbol)
    else:
        whole = e.read(base, 64)
        if space == "local" and isinstance(base, ir.Reg) and base.nbits < 64:
            whole = Value(whole_local(e, whole.form, whole.text), 64, whole.pattern)
        at, inside = plus(e, whole, offset), _is_inside(e, base, offset, nbytes)
        fixed = inside and isinstance(base, ir.Symbol) and space != "global"
    fixed = fixed and not _is_misplaced(e, base, offset, space, align)
    if e.state.counted:
        emit_count.access(e, ins, space or "other", nbytes, kind, mask, sizes)
    if e.state.watched and not (fixed and isinstance(base, ir.Symbol) and base.name not in e.program.shared):
        emit_watch.access(e, ins, at, nbytes, align, kind, mask, space, value, sizes)
        return at
    if fixed:
        return at  # where the compiler has put it
    # What is found of an address of local memory in 32 bits is not true of the register as another address.
    known = base if isinstance(base, ir.Reg) and mask is None and (space == "shared" or base.nbits == 64) else None
    check(e, ins, at, nbytes, align, kind, mask, inside=inside, base=known, offset=offset)
    return at


def _is_inside(e: Emitter, base: ir.Operand, offset: int, nbytes: int) -> bool:
    """Whether the address of a variable is known to be in reach, because the driver has placed it there."""
    if not isinstance(base, ir.Symbol):
        return False
    at = base.offset + offset
    if base.name in e.program.locals:
        at += e.program.locals[base.name]
        return at >= 0 and at + nbytes <= e.local_stride
    return abs(at) <= _MARGIN_NBYTES


def _is_misplaced(e: Emitter, base: ir.Operand, offset: int, space: str, align: int) -> bool:
    """Whether an access to a named shared or local variable is misaligned by its offset in the variable. One that is
    misaligned only where this compiler has put a variable of less alignment is left alone: ptxas may put it elsewhere.
    """
    if not isinstance(base, ir.Symbol) or space == "param":
        return False
    start = e.program.shared.get(base.name, e.program.locals.get(base.name))
    within = base.offset + offset
    return start is not None and within % align != 0 and (start + within) % align != 0


def _shared(e: Emitter, value: Value, offset: int) -> Value:
    """A 32-bit offset into the thread's shared window. Any offset is inside the window's reservation."""
    form, text = value.form, value.text
    window = e.splat("%shared", "i64") if form.vector else "%shared"
    near = abs(offset) <= _MARGIN_NBYTES
    if value.pattern.known and not value.uniform and near:
        # Lane 0's offset is sign-extended, so that `s[tid - 1]` addresses right for the lanes that may use it.
        wide = e.resize(form, text, 32, 64, signed=True)
        return plus(e, Value(e.v(f"add i64 {wide}, {window}"), 64, value.pattern), offset)
    if value.pattern.known and not value.uniform:
        text, form, window = e.vector(value), LANES, e.splat("%shared", "i64")
    if offset:
        text = e.v(f"add {form.int(32)} {text}, {form.const(offset, 32)}")
    wide = e.resize(form, text, 32, 64)
    # A vector is widened lane by lane: lanes below zero do not follow the pattern.
    return Value(e.v(f"add {form.int(64)} {wide}, {window}"), 64, UNIFORM if value.uniform else VARYING)


def whole_local(e: Emitter, form: Form, text: str) -> str:
    """The real address of local memory whose lower 32 bits are those of `text`, 64 bits: on a device, the local window
    is so small that programs may keep an address of it in 32 bits."""
    kind, base = form.int(64), e.splat("%local", "i64") if form.vector else "%local"
    distance = e.resize(form, e.v(f"sub {kind} {text}, {base}"), 64, 32)
    return e.v(f"add {kind} {e.resize(form, distance, 32, 64, signed=True)}, {base}")


def plus(e: Emitter, value: Value, offset: int) -> Value:
    if offset == 0:
        return value
    text = e.v(f"add {value.form.int(64)} {value.text}, {value.form.const(offset, 64)}")
    return Value(text, 64, value.pattern)


def check(
    e: Emitter, ins: ir.Instruction, at: Value, nbytes: int, align: int, kind: str = "", mask: str | None = None,
    *, inside: bool = False, base: ir.Reg | None = None, offset: int = 0,
) -> None:  # fmt: skip
    """End the launch if an acting lane's address is out of reach, or no multiple of `align`.

    Args:
        inside: It is known to be in reach.
        base, offset: The register that the address was made from, so that it is not checked again in this block.
    """
    if e.state.watched:
        emit_watch.access(e, ins, at, nbytes, align, kind, mask)
        return
    inside = inside or not e.state.confined
    if base is not None and abs(offset) <= _MARGIN_NBYTES:
        aligned, rest, reached = e.checked.get(base, (1, 0, False))
        reaches = reached or not inside  # an offset in the shared window says nothing about it as an address
        inside = inside or reached
        if align <= aligned and (offset - rest) % align == 0:
            align = 1
        if e.guard is None:
            e.checked[base] = (align, offset % align, reaches) if align > 1 else (aligned, rest, reaches)
    bits = (0 if inside else _OUTSIDE) | (align - 1)
    if bits == 0:
        return
    # What holds for one lane holds for all where their distances are multiples; no pattern is wider than the margin
    # below and above the range.
    if at.pattern.known and all(distance % align == 0 for distance in at.pattern.offsets()):
        text = at.text if inside else e.v(f"xor i64 {at.text}, {1 << abi.REACH_NBITS}")
        wrong = e.v(f"icmp ne i64 {e.v(f'and i64 {text}, {_signed(bits)}')}, 0")
    elif lanes := _leaders(at.pattern, align):
        at, text = _of_leaders(e, at, lanes, "0" if inside else str(1 << abi.REACH_NBITS))
        wrong = e.v(f"icmp ne i64 {e.v(f'and i64 {text}, {_signed(bits)}')}, 0")
    else:
        text = e.vector(at)
        if not inside:
            text = e.v(f"xor {LANES.int(64)} {text}, {LANES.const(1 << abi.REACH_NBITS, 64)}")
        low = e.v(f"and {LANES.int(64)} {text}, {LANES.const(bits, 64)}")
        flags = e.v(f"icmp ne {LANES.int(64)} {low}, {LANES.const(0, 64)}")
        wrong = e.v(f"icmp ne i{WARP} {e.v(f'bitcast {LANES.int(1)} {flags} to i{WARP}')}, 0")
    _report_if(e, wrong, ins, at, (inside, align, description(ins, nbytes, kind)), mask)


def _leaders(pattern: Pattern, align: int) -> list[int]:
    """Lanes whose addresses are checked for all lanes, since the others' distances from one of them are known; empty:
    too many."""
    unknown = [1 << k for k, step in enumerate(pattern.steps) if step is None]
    if len(unknown) > _MAX_UNKNOWN or any(step % align for step in pattern.steps if step is not None):
        return []
    lanes = [0]
    for bit in unknown:
        lanes += [lane + bit for lane in lanes]
    return lanes


def _of_leaders(e: Emitter, at: Value, lanes: list[int], range_of: str) -> tuple[Value, str]:
    """The addresses of all lanes, made of those of some, for reports; and the bits in which these differ from
    `range_of`, or-ed."""
    known = Pattern(tuple(step or 0 for step in at.pattern.steps))
    texts = [e.v(f"extractelement {LANES.int(64)} {at.text}, i32 {lane}") for lane in lanes]
    near, differing = f"{LANES.int(64)} poison", []
    for text, lane in zip(texts, lanes, strict=True):
        near = f"{LANES.int(64)} {e.v(f'insertelement {near}, i64 {text}, i32 {lane}')}"
        differing.append(e.v(f"xor i64 {text}, {range_of}"))
    every = differing[0]
    for bits in differing[1:]:
        every = e.v(f"or i64 {every}, {bits}")
    order = ", ".join(f"i32 {lane & max(lanes)}" for lane in range(WARP))
    spread = e.v(f"shufflevector {near}, {LANES.int(64)} poison, <{WARP} x i32> <{order}>")
    return Value(e.v(f"add {LANES.int(64)} {spread}, {e.constants(64, known.offsets())}"), 64, at.pattern), every


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _keep_sums(e: Emitter) -> None:
    """Use sums that are made before this check, so that LLVM makes them before it: it would move a sum whose first use
    comes later behind the check, and keep all that the sum is made of in registers, or on the stack, until then."""
    for reg in list(e.unread)[:_MAX_SUMS]:
        kind = e.slot_type(reg)
        text = e.v(f"load {kind}, ptr {e.slot(reg)}, align {slot_alignment(kind.startswith('<'))}")
        e.e(f"store volatile {kind} {text}, ptr {e.stack(f'kept.{reg.nbits}', f'<{2 * WARP} x i{reg.nbits}>')}")


def _report_if(
    e: Emitter, wrong: str, ins: ir.Instruction, at: Value, access: tuple[bool, int, str], mask: str | None
) -> None:
    """Check each lane, in a block off the usual path; continues there if all active lanes are valid."""
    inside, align, what = access
    name = e.unique("access")
    e.e(f"br i1 {wrong}, label %{name}.bad, label %{name}, !prof !1")
    e.label(f"{name}.bad")
    _keep_sums(e)
    e.helper("refuse", _REFUSE)
    cta = e.cta_place()
    outside = "null" if inside else e.string(f"{e.program.name}: {what}")
    misaligned = e.string(f"{e.program.name}: misaligned {what}") if align > 1 else "null"
    place = e.stack("address.bad", f"[{WARP} x i64]")
    e.e(f"store {LANES.int(64)} {e.vector(at)}, ptr {place}, align 64")
    e.e(f"call void @refuse(ptr %services, ptr {place}, i32 {mask or e.mask_bits()}, i64 {align - 1}, "
        f"ptr {outside}, ptr {misaligned}, ptr {cta}, i32 %warp)")  # fmt: skip
    e.e(f"br label %{name}")
    e.label(name)


# Reports each lane that is out of reach or misaligned; neither report returns in a worker. `outside` is null where
# addresses are known to be in reach.
_REFUSE = f"""define internal void @refuse(ptr %services, ptr %where, i32 %mask, i64 %rest, ptr %outside,
                             ptr %misaligned, ptr %cta, i32 %warp) noinline cold {{
  %confined = icmp ne ptr %outside, null
  %base = mul i32 %warp, {WARP}
  br label %loop
loop:
  %m = phi i32 [ %mask, %0 ], [ %m2, %next ]
  %done = icmp eq i32 %m, 0
  br i1 %done, label %end, label %body
body:
  %lane = call i32 @llvm.cttz.i32(i32 %m, i1 true)
  %thread = add i32 %base, %lane
  %ap = getelementptr i64, ptr %where, i32 %lane
  %a = load i64, ptr %ap
  %range = lshr i64 %a, {abi.REACH_NBITS}
  %away = icmp ne i64 %range, 1
  %out = and i1 %away, %confined
  br i1 %out, label %beyond, label %within
beyond:
  %op = getelementptr i8, ptr %services, i64 {abi.SERVICE_OUTSIDE}
  %o = load ptr, ptr %op
  call void %o(ptr %services, ptr %outside, i64 %a, ptr %cta, i32 %thread)
  br label %within
within:
  %low = and i64 %a, %rest
  %bad = icmp ne i64 %low, 0
  br i1 %bad, label %report, label %next
report:
  %fp = getelementptr i8, ptr %services, i64 {abi.SERVICE_BAD_ACCESS}
  %f = load ptr, ptr %fp
  call void %f(ptr %services, i32 {_MISALIGNED_ADDRESS}, ptr %misaligned, i64 %a, ptr %cta, i32 %thread)
  br label %next
next:
  %m1 = sub i32 %m, 1
  %m2 = and i32 %m, %m1
  br label %loop
end:
  ret void
}}
declare i32 @llvm.cttz.i32(i32, i1)
"""
