"""Accesses of the acting lanes alone on processors that have no instructions for them: functions, as text.

LLVM would make a branch for each lane. Where it is random which lanes act, the processor mispredicts these branches: on
an AMD EPYC (AVX2) half a warp's lanes took 107 ns so. A gather takes 21 ns with a load of every lane, a scatter 17 with
a loop over the lanes that act."""

from __future__ import annotations

from vgpusim.codegen import native
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES, Value

_LEAST_NBITS = 32  # of elements whose accesses are worth code for each lane
_HALF = WARP // 2
_LOWER = (1 << _HALF) - 1
_INSIDE_HALVES = 0x7FFF7FFF  # bit l: lanes l and l + 1 are in the same half
_INLINE_INSTRUCTIONS = 300  # of the largest kernel whose accesses have code of their own: a thousand take LLVM long


def gather(e: Emitter, where: str, nbits: int, mask: str) -> str:
    """Elements at any addresses."""
    kind = LANES.int(nbits)
    e.helper(f"gather{nbits}", _gather(nbits, _is_shared(e)))
    return e.v(f"call {kind} @gather{nbits}(<{WARP} x i64> {where}, <{WARP} x i1> {mask})")


def scatter(e: Emitter, where: str, text: str, nbits: int, mask: str) -> None:
    """Elements to any addresses; of lanes with one address the highest wins."""
    e.helper(f"scatter{nbits}", _scatter(nbits, _is_shared(e)))
    e.e(f"call void @scatter{nbits}({LANES.int(nbits)} {text}, <{WARP} x i64> {where}, <{WARP} x i1> {mask})")


def can_place(e: Emitter, at: Value, nbits: int) -> bool:
    """Whether gather_placed and scatter_placed serve."""
    return at.pattern.known and nbits >= _LEAST_NBITS and not native.has_masked_gathers() and not e.is_large


def gather_placed(e: Emitter, at: Value, nbits: int, mask: str) -> str:
    """Elements of the acting lanes, which are `mask`, at known distances from lane 0's address: loads from there, if
    all lanes act."""
    name, kind, lanes, bits, every = e.unique("placed"), LANES.int(nbits), WARP, e.mask_bits(), -1
    if at.pattern.steps[-1] == 0:  # both halves of the warp load the same elements
        bits = e.v(f"or i32 {e.v(f'lshr i32 {bits}, {_HALF}')}, {e.v(f'and i32 {bits}, {_LOWER}')}")
        lanes, every = _HALF, _LOWER
    e.e(f"br i1 {e.v(f'icmp eq i32 {bits}, {every}')}, label %{name}.all, label %{name}.some")
    e.label(f"{name}.all")
    text = f"<{lanes} x i{nbits}> poison"
    for lane in range(lanes):
        element = e.v(f"load i{nbits}, ptr {_place(e, at, lane)}, align {nbits // 8}")
        text = f"<{lanes} x i{nbits}> {e.v(f'insertelement {text}, i{nbits} {element}, i32 {lane}')}"
    placed = text.split()[-1]
    if lanes < WARP:
        placed = e.joined([placed, placed], nbits, lanes)
    e.e(f"br label %{name}.end")
    e.label(f"{name}.some")
    some = gather(e, e.vector(at), nbits, mask)
    e.e(f"br label %{name}.end")
    e.label(f"{name}.end")
    return e.v(f"phi {kind} [ {placed}, %{name}.all ], [ {some}, %{name}.some ]")


def scatter_placed(e: Emitter, at: Value, text: str, nbits: int, mask: str) -> None:
    """Elements of the acting lanes, which are `mask`, to known distances from lane 0's address: stores there, if each
    half of the warp acts as a whole, as on the sides of many a branch. Of lanes with one address the highest wins."""
    name, kind, bits = e.unique("placed"), LANES.int(nbits), e.mask_bits()
    changes = e.v(f"xor i32 {bits}, {e.v(f'ashr i32 {bits}, 1')}")  # where a lane acts and its neighbour does not
    split = e.v(f"icmp ne i32 {e.v(f'and i32 {changes}, {_INSIDE_HALVES}')}, 0")
    e.e(f"br i1 {split}, label %{name}.some, label %{name}.0")
    for side, after in ((0, f"{name}.1"), (1, f"{name}.end")):
        e.label(f"{name}.{side}")
        acts = e.v(f"icmp ne i32 {e.v(f'and i32 {bits}, {1 << side * _HALF}')}, 0")
        e.e(f"br i1 {acts}, label %{name}.{side}.all, label %{after}")
        e.label(f"{name}.{side}.all")
        for lane in range(side * _HALF, (side + 1) * _HALF):
            element = e.v(f"extractelement {kind} {text}, i32 {lane}")
            e.e(f"store i{nbits} {element}, ptr {_place(e, at, lane)}, align {nbits // 8}")
        e.e(f"br label %{after}")
    e.label(f"{name}.some")
    scatter(e, e.vector(at), text, nbits, mask)
    e.e(f"br label %{name}.end")
    e.label(f"{name}.end")


def _place(e: Emitter, at: Value, lane: int) -> str:
    return e.v(f"inttoptr i64 {e.v(f'add i64 {at.text}, {at.pattern.offsets()[lane]}')} to ptr")


def scatter_row(e: Emitter, place: str, text: str, nbits: int, mask: str, n: int) -> None:
    """Elements of the first 2**n lanes to consecutive places."""
    name = f"scatter{nbits}.row{1 << n}"
    e.helper(name, _scatter_row(name, nbits, 1 << n, _is_shared(e)))
    e.e(f"call void @{name}(<{1 << n} x i{nbits}> {text}, ptr {place}, <{1 << n} x i1> {mask})")


def _is_shared(e: Emitter) -> bool:
    """Whether accesses share a function. One of its own is made for all lanes and for some (emit_control.py); this
    one is for both."""
    return len(e.program.body) > _INLINE_INSTRUCTIONS


def _attributes(shared: bool) -> str:
    return f"{'noinline' if shared else 'alwaysinline'} #0"


def _whole(shared: bool, body: str) -> str:
    """The beginning of a function: what it does if all lanes act."""
    if not shared:
        return "  br label %some\nsome:"
    return f"""  %bits = bitcast <{WARP} x i1> %m to i32
  %whole = icmp eq i32 %bits, -1
  br i1 %whole, label %all, label %some
all:
  %ps = inttoptr <{WARP} x i64> %a to <{WARP} x ptr>
{body}
some:"""


def _gather(nbits: int, shared: bool) -> str:
    """Where a lane does not act, its load is of a place on the stack."""
    kind, wide, name = LANES.int(nbits), f"<{WARP} x i64>", f"@llvm.masked.gather.v{WARP}i{nbits}.v{WARP}p0"
    each = f"i32 {nbits // 8}, <{WARP} x i1> splat (i1 true), {kind} poison"
    whole = f"  %e = call {kind} {name}(<{WARP} x ptr> %ps, {each})\n  ret {kind} %e"
    return f"""define internal {kind} @gather{nbits}({wide} %a, <{WARP} x i1> %m) {_attributes(shared)} {{
  %nowhere = alloca i64
{_whole(shared, whole)}
  store i64 0, ptr %nowhere
  %n = ptrtoint ptr %nowhere to i64
  %n1 = insertelement {wide} poison, i64 %n, i32 0
  %ns = shufflevector {wide} %n1, {wide} poison, <{WARP} x i32> zeroinitializer
  %s = select <{WARP} x i1> %m, {wide} %a, {wide} %ns
  %p = inttoptr {wide} %s to <{WARP} x ptr>
  %r = call {kind} {name}(<{WARP} x ptr> %p, {each})
  ret {kind} %r
}}
declare {kind} {name}(<{WARP} x ptr>, i32, <{WARP} x i1>, {kind})
"""


def _scatter(nbits: int, shared: bool) -> str:
    kind, name = LANES.int(nbits), f"@llvm.masked.scatter.v{WARP}i{nbits}.v{WARP}p0"
    each = f"i32 {nbits // 8}, <{WARP} x i1> splat (i1 true)"
    whole = f"  call void {name}({kind} %x, <{WARP} x ptr> %ps, {each})\n  ret void"
    place = """  %wp = getelementptr i64, ptr %where, i32 %lane
  %w = load i64, ptr %wp
  %p = inttoptr i64 %w to ptr"""
    types = f"{kind} %x, <{WARP} x i64> %a, <{WARP} x i1> %m"
    return f"""define internal void @scatter{nbits}({types}) {_attributes(shared)} {{
  %where = alloca [{WARP} x i64], align 64
{_whole(shared, whole)}
  store <{WARP} x i64> %a, ptr %where, align 64
{_loop(WARP, nbits, place)}}}
declare void {name}({kind}, <{WARP} x ptr>, i32, <{WARP} x i1>)
"""


def _scatter_row(name: str, nbits: int, lanes: int, shared: bool) -> str:
    kind, place = f"<{lanes} x i{nbits}>", f"  %p = getelementptr i{nbits}, ptr %row, i32 %lane"
    return f"""define internal void @{name}({kind} %x, ptr %row, <{lanes} x i1> %m) {_attributes(shared)} {{
  br label %some
some:
{_loop(lanes, nbits, place)}}}
"""


def _loop(lanes: int, nbits: int, place: str) -> str:
    """From block %some to the end: store %x at %p, which `place` computes, for each %lane of %m."""
    widened = "add i32 %l0, 0" if lanes == WARP else f"zext i{lanes} %l0 to i32"
    return f"""  %what = alloca [{lanes} x i{nbits}], align 64
  store <{lanes} x i{nbits}> %x, ptr %what, align 64
  %l0 = bitcast <{lanes} x i1> %m to i{lanes}
  %l1 = {widened}
  br label %loop
loop:
  %l = phi i32 [ %l1, %some ], [ %l3, %body ]
  %done = icmp eq i32 %l, 0
  br i1 %done, label %end, label %body
body:
  %lane = call i32 @llvm.cttz.i32(i32 %l, i1 true)
{place}
  %vp = getelementptr i{nbits}, ptr %what, i32 %lane
  %v = load i{nbits}, ptr %vp
  store i{nbits} %v, ptr %p, align {nbits // 8}
  %l2 = sub i32 %l, 1
  %l3 = and i32 %l, %l2
  br label %loop
end:
  ret void
declare i32 @llvm.cttz.i32(i32, i1)
"""
