"""Loads and stores of lanes whose addresses have no row form: gathers and scatters.

LLVM has intrinsics for any addresses, which AVX-512 executes eight lanes at a time. Where the lanes' distances from
lane 0 are known, offsets of 32 bits from a scalar base serve sixteen lanes. LLVM finds that form only if the addresses
are computed in the same basic block, which moving them out of a loop prevents, so here it is requested by name."""

from __future__ import annotations

from collections.abc import Callable

from vgpusim.codegen import native
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES, Value

_X86 = {32: ("dpi", 16), 64: ("dpq", 8)}  # element's bits: name in LLVM's intrinsics, lanes of a 512-bit register
_INLINE_INSTRUCTIONS = 300  # largest kernel that does not share masked accesses: in larger ones calls do not matter


def gather(e: Emitter, where: str, nbits: int, mask: str) -> str:
    """Elements of 32 or 64 bits at any addresses."""
    kind = LANES.int(nbits)
    if _is_shared(e, mask):
        e.helper(f"gather{nbits}", _expanded_gather(nbits))
        return e.v(f"call {kind} @gather{nbits}(<{WARP} x i64> {where}, <{WARP} x i1> {mask})")
    pointers = e.v(f"inttoptr <{WARP} x i64> {where} to <{WARP} x ptr>")
    return e.v(e.call(kind, f"llvm.masked.gather.v{WARP}i{nbits}.v{WARP}p0", (f"<{WARP} x ptr>", pointers),
                      ("i32", str(nbits // 8)), (f"<{WARP} x i1>", mask), (kind, "zeroinitializer")))  # fmt: skip


def gather_small(e: Emitter, where: str, nbits: int, mask: str) -> str:
    """Elements of 8 or 16 bits at any addresses."""
    name = f"gather{nbits}"
    e.helper(name, _gather_helper(nbits))
    bits = e.v(f"bitcast <{WARP} x i1> {mask} to i32")
    return e.v(f"call {LANES.int(nbits)} @{name}(<{WARP} x i64> {where}, i32 {bits})")


def scatter(e: Emitter, where: str, text: str, nbits: int, mask: str) -> None:
    """Elements of 32 or 64 bits to any addresses; of lanes with one address the highest wins."""
    kind = LANES.int(nbits)
    if _is_shared(e, mask):
        e.helper(f"scatter{nbits}", _expanded_scatter(nbits))
        e.e(f"call void @scatter{nbits}({kind} {text}, <{WARP} x i64> {where}, <{WARP} x i1> {mask})")
        return
    pointers = e.v(f"inttoptr <{WARP} x i64> {where} to <{WARP} x ptr>")
    e.e(e.call("void", f"llvm.masked.scatter.v{WARP}i{nbits}.v{WARP}p0", (kind, text), (f"<{WARP} x ptr>", pointers),
               ("i32", str(nbits // 8)), (f"<{WARP} x i1>", mask)))  # fmt: skip


def _is_shared(e: Emitter, mask: str) -> bool:
    """Whether masked accesses share one function. Where there are no such instructions, LLVM expands each access into
    32 branches: a thousand of them in a kernel of cuBLAS take it 40 seconds."""
    is_known = not mask.startswith("%")
    return not is_known and len(e.program.body) > _INLINE_INSTRUCTIONS and not native.has_masked_gathers()


def can_offset(at: Value, nbits: int) -> bool:
    """Whether gather_offsets and scatter_offsets serve."""
    return at.pattern.known and nbits in _X86 and native.has_wide_gathers()


def gather_offsets(e: Emitter, at: Value, nbits: int, mask: str | None) -> str:
    """Elements at known distances from lane 0's address."""
    name, n = _X86[nbits]
    kind = f"<{n} x i{nbits}>"
    base = e.v(f"inttoptr i64 {at.text} to ptr")
    parts: list[str] = []

    def part(first: int, flags: str) -> None:
        parts.append(e.v(e.call(kind, f"llvm.x86.avx512.mask.gather.{name}.512", (kind, "zeroinitializer"),
                                ("ptr", base), (f"<{n} x i32>", _offsets(e, at, first, n)), (f"<{n} x i1>", flags),
                                ("i32", "1"))))  # fmt: skip

    for first in range(0, WARP, n):
        label = _enter(e, mask, first, n, lambda flags, first=first: part(first, flags))  # type: ignore[misc]
        if label:
            parts[-1] = e.v(f"phi {kind} [ {parts[-1]}, %{label} ], [ zeroinitializer, %{label}.before ]")
    return e.joined(parts, nbits, n)


def scatter_offsets(e: Emitter, at: Value, text: str, nbits: int, mask: str | None) -> None:
    """Elements to known distances from lane 0's address; of lanes with one address the highest wins."""
    name, n = _X86[nbits]
    base = e.v(f"inttoptr i64 {at.text} to ptr")
    for first in range(0, WARP, n):
        part = _slice(e, f"i{nbits}", text, first, n)
        _enter(e, mask, first, n, lambda flags, first=first, part=part: e.e(  # type: ignore[misc]
            e.call("void", f"llvm.x86.avx512.mask.scatter.{name}.512", ("ptr", base), (f"<{n} x i1>", flags),
                   (f"<{n} x i32>", _offsets(e, at, first, n)), (f"<{n} x i{nbits}>", part), ("i32", "1"))
        ))  # fmt: skip


def _offsets(e: Emitter, at: Value, first: int, n: int) -> str:
    return e.constants(32, at.pattern.offsets()[first : first + n])


def _slice(e: Emitter, kind: str, text: str, first: int, n: int) -> str:
    lanes = ", ".join(f"i32 {lane}" for lane in range(first, first + n))
    return e.v(f"shufflevector <{WARP} x {kind}> {text}, <{WARP} x {kind}> poison, <{n} x i32> <{lanes}>")


def _enter(e: Emitter, mask: str | None, first: int, n: int, body: Callable[[str], None]) -> str:
    """Emit `body`, which gets the flags of n lanes, skipped where none of them acts: the lanes of one side of a branch
    are often one half of a warp. Returns the label of the skipped block; "" where there is none."""
    if mask is None:
        body("splat (i1 true)")
        return ""
    flags = _slice(e, "i1", mask, first, n)
    if e.is_large:
        body(flags)
        return ""
    some = e.v(f"icmp ne i{n} {e.v(f'bitcast <{n} x i1> {flags} to i{n}')}, 0")
    name = e.unique("lanes")
    e.e(f"br label %{name}.before")
    e.label(f"{name}.before")
    e.e(f"br i1 {some}, label %{name}, label %{name}.end")
    e.label(name)
    body(flags)
    e.e(f"br label %{name}.end")
    e.label(f"{name}.end")
    return name


def _expanded_gather(nbits: int) -> str:
    kind, name = f"<{WARP} x i{nbits}>", f"@llvm.masked.gather.v{WARP}i{nbits}.v{WARP}p0"
    return f"""define internal {kind} @gather{nbits}(<{WARP} x i64> %a, <{WARP} x i1> %m) noinline #0 {{
  %p = inttoptr <{WARP} x i64> %a to <{WARP} x ptr>
  %r = call {kind} {name}(<{WARP} x ptr> %p, i32 {nbits // 8}, <{WARP} x i1> %m, {kind} zeroinitializer)
  ret {kind} %r
}}
declare {kind} {name}(<{WARP} x ptr>, i32, <{WARP} x i1>, {kind})
"""


def _expanded_scatter(nbits: int) -> str:
    kind, name = f"<{WARP} x i{nbits}>", f"@llvm.masked.scatter.v{WARP}i{nbits}.v{WARP}p0"
    return f"""define internal void @scatter{nbits}({kind} %x, <{WARP} x i64> %a, <{WARP} x i1> %m) noinline #0 {{
  %p = inttoptr <{WARP} x i64> %a to <{WARP} x ptr>
  call void {name}({kind} %x, <{WARP} x ptr> %p, i32 {nbits // 8}, <{WARP} x i1> %m)
  ret void
}}
declare void {name}({kind}, <{WARP} x ptr>, i32, <{WARP} x i1>)
"""


def _gather_helper(nbits: int) -> str:
    """Out of line, because LLVM expands gathers of bytes and halves into 32 branches each."""
    return f"""define internal <32 x i{nbits}> @gather{nbits}(<32 x i64> %a, i32 %m0) noinline #0 {{
  %where = alloca [32 x i64], align 64
  %out = alloca [32 x i{nbits}], align 64
  store <32 x i64> %a, ptr %where, align 64
  store <32 x i{nbits}> zeroinitializer, ptr %out, align 64
  br label %loop
loop:
  %m = phi i32 [ %m0, %0 ], [ %m2, %body ]
  %done = icmp eq i32 %m, 0
  br i1 %done, label %end, label %body
body:
  %lane = call i32 @llvm.cttz.i32(i32 %m, i1 true)
  %wp = getelementptr i64, ptr %where, i32 %lane
  %w = load i64, ptr %wp
  %p = inttoptr i64 %w to ptr
  %x = load i{nbits}, ptr %p, align 1
  %op = getelementptr i{nbits}, ptr %out, i32 %lane
  store i{nbits} %x, ptr %op
  %m1 = sub i32 %m, 1
  %m2 = and i32 %m, %m1
  br label %loop
end:
  %r = load <32 x i{nbits}>, ptr %out, align 64
  ret <32 x i{nbits}> %r
}}
declare i32 @llvm.cttz.i32(i32, i1)
"""
