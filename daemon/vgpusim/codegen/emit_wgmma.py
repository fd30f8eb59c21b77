"""wgmma: products of a warpgroup's matrices, done at once: fences, commits and waits need nothing.

Each of the four warps makes 16 of the 64 rows by itself, 8 columns at a time, as mma does: what differs is where the
fragments come from. A matrix descriptor says where 8 x 16 byte pieces of a matrix lie in shared memory, and how they
are swizzled. PTX ISA reference, "Asynchronous warpgroup level matrix instructions"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from vgpusim.codegen import abi
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_matrix import TRANSPOSE
from vgpusim.codegen.emit_memory import elements
from vgpusim.codegen.emit_mma import INTEGERS, Kind, Shape, core, kind_of, packed, tensor_core
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES
from vgpusim.ptx import ir

_NOT_SUPPORTED = 801
_V = LANES.int(32)
_VECTOR_NBYTES = 4 * WARP
_K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
_SIGNS = {"f16": 0x80008000, "bf16": 0x80008000, "tf32": 0x80000000, "e4m3": 0x80808080, "e5m2": 0x80808080}
_HALVES: Final = ("f16", "bf16")  # of which MN-major matrices exist
_ROWS = 64
_COLUMNS_MAX = 256


@dataclass(frozen=True, slots=True)
class _Operands:
    a: ir.Operand
    b: ir.Operand
    scale: ir.Operand  # false: D is not added
    negative: bool
    a_turned: bool
    b_turned: bool


@emits("wgmma")
def warpgroup(e: Emitter, ins: ir.Instruction) -> None:
    """wgmma.mma_async.sync.aligned.m64nNkK{.satfinite}.d.a.b{.and.popc} D, A | a-desc, b-desc, scale-d{, scale-a,
    scale-b{, trans-a, trans-b}}"""
    words = ins.modifiers
    if words[0] in ("fence", "commit_group", "wait_group"):
        return
    if words[:3] != ("mma_async", "sync", "aligned") or len(words) < 7:
        raise e.unsupported()
    rest = [word for word in words[4:] if word != "satfinite"]
    finite = ["satfinite"] if ins.has("satfinite") else []
    d, a, b = rest[:3]
    kind = kind_of([*finite, d, a, b, d, *rest[3:]])
    columns = _columns(words[3], a)
    if kind is None or columns is None or a in ("s4", "u4", "f64"):
        raise e.unsupported()
    kind = Kind(kind.d, kind.a, kind.b, kind.c, kind.finite, kind.operation, warpgroup=True)
    registers = columns // (4 if d == "f16" else 2)
    target = elements(ins.operands[0])
    if len(target) != registers:
        raise e.malformed("accumulator of the wrong size")
    given = _operands(e, ins, a)
    _multiply(e, kind, columns, target, given)


def _columns(shape: str, kind: str) -> int | None:
    m, _, rest = shape.partition("n")
    n, _, k = rest.partition("k")
    if m != f"m{_ROWS}" or k != str(_K.get(kind, 0)) or not n.isdigit():
        return None
    count = int(n)
    return count if count % 8 == 0 and 0 < count <= _COLUMNS_MAX else None


def _operands(e: Emitter, ins: ir.Instruction, kind: str) -> _Operands:
    a, b, scale, *numbers = ins.operands[1:]
    in_registers = isinstance(a, ir.Vector)
    if in_registers and len(elements(a)) != 4:
        raise e.malformed("fragment of the wrong size")
    expected = 0 if kind not in _SIGNS else 2 if kind not in _HALVES else 3 if in_registers else 4
    values = [number.value for number in numbers if isinstance(number, ir.Imm)]
    if len(values) != len(numbers) or len(values) != expected:
        raise e.malformed(f"takes {expected} immediate numbers")
    scales, turns = values[:2], values[2:]
    if not set(scales) <= {1, -1} or not set(turns) <= {0, 1}:
        raise e.malformed("scales are 1 or -1, transpositions 0 or 1")
    turned = [bool(turn) for turn in turns]
    return _Operands(
        a, b, scale, scales in ([1, -1], [-1, 1]), turned[0] if len(turned) == 2 else False, bool(turned and turned[-1])
    )


def _multiply(e: Emitter, kind: Kind, columns: int, target: tuple[ir.Operand, ...], given: _Operands) -> None:
    shape = packed(16, _K[kind.a] // (32 if kind.a == "b1" else 1), _per_register(kind))
    helper = f"wgmma.{kind}.{columns}{'.t' if given.b_turned else ''}"
    e.helper("wgmma.row", _ROW)
    e.helper("transpose", TRANSPOSE)
    first, each = _calls(e, shape, kind)
    e.helper(helper, _columns_helper(helper, first, each, columns // 8, len(target) // (columns // 8), given.b_turned))
    accumulator = e.stack("wgmma.d", f"[{_COLUMNS_MAX // 2} x {_V}]")
    fragment = e.stack("wgmma.a", f"[4 x {_V}]")
    (scale,) = e.lanes([given.scale], 1)
    for index, value in enumerate(e.lanes(target, 32)):
        chosen = e.v(f"select {LANES.int(1)} {scale}, {_V} {value}, {_V} zeroinitializer")
        e.e(f"store {_V} {chosen}, ptr {_place(e, accumulator, index)}, align 64")
    window = "%shared"
    own = "%own" if e.cluster is not None else "0"
    if isinstance(given.a, ir.Vector):
        for index, value in enumerate(e.lanes(given.a.items, 32)):
            e.e(f"store {_V} {value}, ptr {_place(e, fragment, index)}, align 64")
    else:
        descriptor = _descriptor(e, given.a)
        first = e.v(f"shl i32 {e.v('and i32 %warp, 3')}, 4")
        for index in range(4):
            row = e.v(f"add i32 {first}, {8 * (index % 2)}")
            at = _place(e, fragment, index)
            e.e(f"call void @wgmma.row(ptr {at}, i64 {window}, i32 {own}, i64 {descriptor}, i32 {row}, "
                f"i32 {index // 2}, i1 {'true' if given.a_turned else 'false'})")  # fmt: skip
    if given.negative:
        for index in range(4):
            at = _place(e, fragment, index)
            turned = e.v(f"xor {_V} {e.v(f'load {_V}, ptr {at}, align 64')}, {LANES.const(_SIGNS[kind.a], 32)}")
            e.e(f"store {_V} {turned}, ptr {at}, align 64")
    descriptor = _descriptor(e, given.b)
    e.e(f'call void @"{helper}"(ptr {accumulator}, ptr {fragment}, i64 {window}, i32 {own}, i64 {descriptor})')
    for index, register in enumerate(target):
        e.put(register, LANES, e.v(f"load {_V}, ptr {_place(e, accumulator, index)}, align 64"), 32)


def _calls(e: Emitter, shape: Shape, kind: Kind) -> tuple[str, str]:
    """What the helper does once and for each 8 columns to multiply: from %in to %dj."""
    if kind.a in INTEGERS:
        return "", f'  call void @"{core(e, shape, kind)}"(ptr %dj, ptr %in)\n'
    name, a, b = tensor_core(e, shape, kind)
    allocas = "".join(
        f"  %{letter}.r = alloca [{side.nbytes} x i8], align 64\n"
        for letter, (_, side) in zip("ab", (a, b), strict=True)
    )
    return (
        allocas + f'  call void @"{a[0]}"(ptr %a.r, ptr %a)\n',
        f'  call void @"{b[0]}"(ptr %b.r, ptr %b0)\n  call void @"{name}"(ptr %dj, ptr %c, ptr %a.r, ptr %b.r)\n',
    )


def _per_register(kind: Kind) -> int:
    return {"f16": 2, "bf16": 2, "tf32": 1, "b1": 1}.get(kind.a, 4)


def _place(e: Emitter, base: str, index: int) -> str:
    return e.v(f"getelementptr {_V}, ptr {base}, i32 {index}")


def _descriptor(e: Emitter, operand: ir.Operand) -> str:
    """The descriptor, which all lanes share. One whose swizzle begins elsewhere than its address fails by name."""
    value = e.read(operand, 64)
    text = value.text if value.uniform else e.v(f"extractelement {LANES.int(64)} {e.vector(value)}, i32 0")
    shifted = e.v(f"and i64 {text}, {0b111 << 49}")
    name = e.unique("descriptor")
    e.e(f"br i1 {e.v(f'icmp eq i64 {shifted}, 0')}, label %{name}, label %{name}.not")
    e.label(f"{name}.not")
    ins = e.instruction
    assert ins is not None
    message = e.string(f"{e.program.name}, line {ins.line}: matrix descriptors with a base offset are not supported")
    e.e(e.service(abi.SERVICE_FAIL, "void", ("i32", str(_NOT_SUPPORTED)), ("ptr", message), *abi.NO_THREAD))
    e.e(f"br label %{name}")
    e.label(name)
    return text


# A fragment's register: 8 rows of 16 bytes of a matrix whose piece `part` of k, 16 bytes, begins at row %row of M or N;
# or, %turned, 8 of k, 16 bytes of M or N each, transposed. Units of a descriptor are 16 bytes. Shared addresses have 18
# bits there: they are those of this CTA, which begins at %own.
_ROW = f"""define internal void @wgmma.row(ptr %to, i64 %window, i32 %own, i64 %d, i32 %row, i32 %part,
                                i1 %turned) noinline #0 {{
  %start.f = and i64 %d, 16383
  %start.b = shl i64 %start.f, 4
  %own.l = zext i32 %own to i64
  %lead.s = lshr i64 %d, 16
  %lead.f = and i64 %lead.s, 16383
  %lead = shl i64 %lead.f, 4
  %stride.s = lshr i64 %d, 32
  %stride.f = and i64 %stride.s, 16383
  %stride = shl i64 %stride.f, 4
  %mode = lshr i64 %d, 62
  %swizzled = icmp ne i64 %mode, 0
  %log.s = sub i64 4, %mode
  %log = select i1 %swizzled, i64 %log.s, i64 0
  %pitch = shl i64 16, %log
  %row.l = zext i32 %row to i64
  %part.l = zext i32 %part to i64
  %group = lshr i64 %row.l, 3
  %k.far = mul i64 %group, %stride
  %k.step = select i1 %swizzled, i64 16, i64 %lead
  %k.near = mul i64 %part.l, %k.step
  %k.base = add i64 %k.far, %k.near
  %mn.within.m = sub i64 %pitch, 16
  %mn.shifted = shl i64 %group, 4
  %mn.within = and i64 %mn.shifted, %mn.within.m
  %mn.outer = lshr i64 %group, %log
  %mn.step = select i1 %swizzled, i64 %lead, i64 %stride
  %mn.far = mul i64 %mn.outer, %mn.step
  %mn.kstep = select i1 %swizzled, i64 %stride, i64 %lead
  %mn.k = mul i64 %part.l, %mn.kstep
  %mn.0 = add i64 %mn.within, %mn.far
  %mn.base = add i64 %mn.0, %mn.k
  %base = select i1 %turned, i64 %mn.base, i64 %k.base
  %ones = shl i64 1, %log
  %bits = sub i64 %ones, 1
  %mask = shl i64 %bits, 4
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %i.n, %loop ]
  %in = mul i64 %i, %pitch
  %o.0 = add i64 %start.b, %base
  %o.1 = add i64 %o.0, %in
  %o.2 = sub i64 %o.1, %own.l
  %o.3 = and i64 %o.2, 262143
  %o = add i64 %o.3, %own.l
  %over = lshr i64 %o, 3
  %flip = and i64 %over, %mask
  %at.o = xor i64 %o, %flip
  %at = add i64 %window, %at.o
  %p = inttoptr i64 %at to ptr
  %x = load <4 x i32>, ptr %p, align 16
  %q = getelementptr <4 x i32>, ptr %to, i64 %i
  store <4 x i32> %x, ptr %q, align 16
  %i.n = add i64 %i, 1
  %more = icmp ult i64 %i.n, 8
  br i1 %more, label %loop, label %end
end:
  br i1 %turned, label %turn, label %done
turn:
  %v = load {_V}, ptr %to, align 64
  %t = call {_V} @transpose({_V} %v)
  store {_V} %t, ptr %to, align 64
  ret void
done:
  ret void
}}
"""


def _columns_helper(name: str, first: str, each: str, blocks: int, registers: int, turned: bool) -> str:
    """For each 8 columns, `registers` of D: fetch B, multiply."""
    nbytes = registers * _VECTOR_NBYTES
    return f"""define internal void @"{name}"(ptr %d, ptr %a, i64 %window, i32 %own, i64 %b) noinline #0 {{
  %in = alloca [12 x {_V}], align 64
  call void @llvm.memcpy.p0.p0.i64(ptr align 64 %in, ptr align 64 %a, i64 {4 * _VECTOR_NBYTES}, i1 false)
  %b0 = getelementptr {_V}, ptr %in, i32 4
  %b1 = getelementptr {_V}, ptr %in, i32 5
  %c = getelementptr {_V}, ptr %in, i32 6
{first}  br label %loop
loop:
  %j = phi i32 [ 0, %0 ], [ %j.n, %loop ]
  %row = shl i32 %j, 3
  call void @wgmma.row(ptr %b0, i64 %window, i32 %own, i64 %b, i32 %row, i32 0, i1 {"true" if turned else "false"})
  call void @wgmma.row(ptr %b1, i64 %window, i32 %own, i64 %b, i32 %row, i32 1, i1 {"true" if turned else "false"})
  %at = mul i32 %j, {registers}
  %dj = getelementptr {_V}, ptr %d, i32 %at
  call void @llvm.memcpy.p0.p0.i64(ptr align 64 %c, ptr align 64 %dj, i64 {nbytes}, i1 false)
{each}  %j.n = add i32 %j, 1
  %more = icmp ult i32 %j.n, {blocks}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
