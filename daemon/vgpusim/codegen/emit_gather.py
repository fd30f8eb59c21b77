"""Loads and stores of lanes whose addresses have no row form: gathers and scatters.

LLVM has intrinsics for any addresses, which AVX-512 executes eight lanes at a time. Where the lanes' distances from
lane 0 are known, offsets of 32 bits from a scalar base serve sixteen lanes. LLVM finds that form only if the addresses
are computed in the same basic block, which moving them out of a loop prevents, so here it is requested by name."""

from __future__ import annotations

from collections.abc import Callable

from vgpusim.codegen import emit_masked, native
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES, Value

_X86 = {32: ("dpi", 16), 64: ("dpq", 8)}  # element's bits: name in LLVM's intrinsics, lanes of a 512-bit register


def gather(e: Emitter, where: str, nbits: int, mask: str) -> str:
    """Elements of 8 to 64 bits at any addresses."""
    kind = LANES.int(nbits)
    if not _is_whole(mask) and not (nbits in _X86 and native.has_masked_gathers()):
        return emit_masked.gather(e, where, nbits, mask)
    pointers = e.v(f"inttoptr <{WARP} x i64> {where} to <{WARP} x ptr>")
    return e.v(e.call(kind, f"llvm.masked.gather.v{WARP}i{nbits}.v{WARP}p0", (f"<{WARP} x ptr>", pointers),
                      ("i32", str(nbits // 8)), (f"<{WARP} x i1>", mask), (kind, "zeroinitializer")))  # fmt: skip


def scatter(e: Emitter, where: str, text: str, nbits: int, mask: str) -> None:
    """Elements of 32 or 64 bits to any addresses; of lanes with one address the highest wins."""
    kind = LANES.int(nbits)
    if not _is_whole(mask) and not native.has_masked_gathers():
        emit_masked.scatter(e, where, text, nbits, mask)
        return
    pointers = e.v(f"inttoptr <{WARP} x i64> {where} to <{WARP} x ptr>")
    e.e(e.call("void", f"llvm.masked.scatter.v{WARP}i{nbits}.v{WARP}p0", (kind, text), (f"<{WARP} x ptr>", pointers),
               ("i32", str(nbits // 8)), (f"<{WARP} x i1>", mask)))  # fmt: skip


def _is_whole(mask: str) -> bool:
    """Whether all lanes act: LLVM then makes an access of each."""
    return not mask.startswith("%")


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
