"""Loads, stores, moves and address conversion.

Global, const, local and param addresses are real ones. A shared address is a 32-bit offset into the thread's shared
window. Every address is checked where it is made: emit_access."""

from __future__ import annotations

from vgpusim.codegen import abi, emit_masked, emit_pairs, emit_watch
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_access import address, plus, whole_local
from vgpusim.codegen.emit_gather import can_offset, gather, gather_offsets, scatter, scatter_offsets
from vgpusim.codegen.emit_index import index_of, load_indexed
from vgpusim.codegen.emit_prefetch import fetch_ahead, fetch_records, fetch_rows_of_next
from vgpusim.codegen.emit_segment import (
    apart,
    can_store,
    has_rows_of_tuples,
    load_segments,
    load_segments_of_tuples,
    load_tuples,
    reordered,
    segments,
    store_reordered,
    store_segments,
    store_tuples,
)
from vgpusim.codegen.emit_whole import load_whole, store_whole
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_pattern import LANE_BITS, VARYING, Pattern, linear
from vgpusim.codegen.lane_value import LANES, SCALAR, Form, Indexed, Value
from vgpusim.ptx import ir

_SPACES = ("global", "shared", "local", "const", "param", "shared::cta", "shared::cluster")
_WIDEST = 128  # bits: no gather has wider elements
_ORDERED = ("volatile", "relaxed", "acquire", "release", "mmio", "cv", "wt")


def space_of(e: Emitter, ins: ir.Instruction) -> str:
    """The state space of a memory instruction; "" is generic. The CTAs of a cluster share one window, so
    .shared::cta and .shared::cluster are one space."""
    space = ins.one_of(*_SPACES) or ""
    return "shared" if space.startswith("shared") else space


def elements(operand: ir.Operand) -> tuple[ir.Operand, ...]:
    return operand.items if isinstance(operand, ir.Vector) else (operand,)


def pointer(e: Emitter, text: str) -> str:
    return e.v(f"inttoptr i64 {text} to ptr")


@emits("ld", "ldu")
def load(e: Emitter, ins: ir.Instruction) -> None:
    nbits = ir.TYPE_NBITS[ins.type]
    nbytes = nbits // 8
    targets = elements(ins.operands[0])
    ordered = ins.has(*_ORDERED)
    indexed = None if ordered or len(targets) > 1 or not ins.has("global") else _indexed(e, ins.operands[1], nbits)
    if indexed is not None:
        e.put(targets[0], LANES, load_indexed(e, ins, *indexed, nbits), nbits, signed=ins.type[0] == "s")
        return
    place = address(e, ins, ins.operands[1], space_of(e, ins), nbytes * len(targets))
    if ordered:
        fence_before(e, ins)
    probed = ins.has("global") and len(targets) == 1
    values: list[tuple[Form, str]] = []
    row = ""
    if ordered and (len(targets) > 1 or nbits == _WIDEST):
        values = load_whole(e, place, nbits, len(targets))
    elif _is_tuple(place, nbytes, len(targets)) and not ordered:
        values = [(LANES, text) for text in _load_tuples(e, place, nbits, len(targets))]
    elif has_rows_of_tuples(place.pattern, nbytes, len(targets)) and not ordered:
        row = load_segments_of_tuples(e, place, nbits, len(targets))
        values = [(LANES, text) for text in apart(e, row, nbits, len(targets))]
    for index in range(len(targets) - len(values)):
        at = plus(e, place, index * nbytes)
        if at.uniform:
            known = None if ordered else _parameter(e, ins, index * nbytes)
            values.append((SCALAR, known or _load_scalar(e, at.text, nbits, ordered)))
        elif ordered or nbits == _WIDEST:
            values.append((LANES, _load_each(e, at, nbits, index)))
        else:
            values.append((LANES, load_lanes(e, at, nbits, probe=probed)))
    if ordered:
        fence_after(e, ins)
    if ins.has("global") and not (probed and place.pattern == VARYING):
        fetch_ahead(e, place, nbytes * len(targets))
        fetch_records(e, ins.operands[1], place, nbytes * len(targets))
        if not place.pattern.known:
            fetch_rows_of_next(e, place, nbytes * len(targets))
    for target, (form, text) in zip(targets, values, strict=True):
        e.put(target, form, text, nbits, signed=ins.type[0] == "s")
    if row:
        emit_pairs.note(e, ins, row)


def _indexed(e: Emitter, operand: ir.Operand, nbits: int) -> tuple[Indexed, int] | None:
    """How an address without a pattern was made of lanes' indices, if its elements may be neighbours; its offset."""
    if not isinstance(operand, ir.Address) or nbits not in (32, 64) or e.state.counted or e.mask() is not None:
        return None
    base = operand.base
    source = index_of(e, base) if isinstance(base, ir.Reg) and e.shape(base).pattern == VARYING else None
    return (source, operand.offset) if source is not None and source.factor == nbits // 8 else None


def _is_tuple(at: Value, nbytes: int, count: int) -> bool:
    """Whether lanes' vectors of `count` elements follow each other without a gap."""
    return count in (2, 4) and at.pattern.stride == nbytes * count


def _load_tuples(e: Emitter, place: Value, nbits: int, count: int) -> list[str]:
    """A vector of each lane, loaded as one row where all lanes act."""
    if e.mask_bits() == "-1":
        return load_tuples(e, place.text, nbits, count)
    name, kind = e.unique("tuple"), LANES.int(nbits)
    e.e(f"br i1 {e.v(f'icmp eq i32 {e.mask_bits()}, -1')}, label %{name}.row, label %{name}.each")
    e.label(f"{name}.row")
    rows = load_tuples(e, place.text, nbits, count)
    e.e(f"br label %{name}.end")
    e.label(f"{name}.each")
    each = [load_lanes(e, plus(e, place, index * nbits // 8), nbits) for index in range(count)]
    e.e(f"br label %{name}.loaded")  # loads of single lanes may have blocks of their own
    e.label(f"{name}.loaded")
    e.e(f"br label %{name}.end")
    e.label(f"{name}.end")
    return [e.v(f"phi {kind} [ {a}, %{name}.row ], [ {b}, %{name}.loaded ]") for a, b in zip(rows, each, strict=True)]


def _parameter(e: Emitter, ins: ir.Instruction, offset: int) -> str | None:
    """A load from a parameter of the kernel, by name: nothing changes it, and it may be read where no lane acts."""
    source, nbits = ins.operands[1], ir.TYPE_NBITS[ins.type]
    if not (isinstance(source, ir.Address) and isinstance(source.base, ir.Symbol)):
        return None
    start = e.program.params.get(source.base.name)
    if start is None:
        return None
    offset += start + source.base.offset + source.offset
    if offset < 0 or offset + nbits // 8 > e.program.param_nbytes:
        return None
    place = e.v(f"getelementptr i8, ptr %params, i64 {offset}")
    return e.v(f"load i{nbits}, ptr {place}, align {nbits // 8}, !invariant.load !0")


def _load_scalar(e: Emitter, at: str, nbits: int, ordered: bool) -> str:
    """One load for all lanes; skipped when no lane acts."""
    qualifier = "volatile " if ordered else ""
    if e.guard is None:
        return e.v(f"load {qualifier}i{nbits}, ptr {pointer(e, at)}, align {nbits // 8}")
    slot = e.stack(f"loaded.{nbits}", f"i{nbits}")
    e.e(f"store i{nbits} 0, ptr {slot}")

    def body() -> None:
        text = e.v(f"load {qualifier}i{nbits}, ptr {pointer(e, at)}, align {nbits // 8}")
        e.e(f"store i{nbits} {text}, ptr {slot}")

    e.if_any(body)
    return e.v(f"load i{nbits}, ptr {slot}")


def _load_each(e: Emitter, at: Value, nbits: int, index: int) -> str:
    """Volatile loads, lane after lane."""
    where = e.spread("address", e.vector(at), 64)
    result = e.stack(f"result{index}.{nbits}", f"[{WARP} x i{nbits}]")
    e.e(f"store {LANES.int(nbits)} zeroinitializer, ptr {result}, align 64")

    def body(lane: str) -> None:
        text = e.v(f"load volatile i{nbits}, ptr {pointer(e, where(lane))}, align {nbits // 8}")
        e.e(f"store i{nbits} {text}, ptr {e.v(f'getelementptr i{nbits}, ptr {result}, i32 {lane}')}")

    e.each_lane(body)
    return e.v(f"load {LANES.int(nbits)}, ptr {result}, align 64")


def load_lanes(e: Emitter, at: Value, nbits: int, probe: bool = False) -> str:
    """Plain loads of all acting lanes. `probe`: look at run time whether the addresses are consecutive."""
    if segments(at.pattern, nbits // 8) is not None:
        return load_segments(e, at, nbits, e.mask())
    if can_offset(at, nbits):
        return gather_offsets(e, at, nbits, e.mask())
    if (mask := e.mask()) is not None and emit_masked.can_place(e, at, nbits):
        return emit_masked.gather_placed(e, at, nbits, mask)
    where = e.vector(at)
    if probe and nbits >= 32 and not at.pattern.known:
        return _load_probed(e, where, nbits, e.mask())
    return gather(e, where, nbits, e.all_or_mask())


def _load_probed(e: Emitter, where: str, nbits: int, mask: str | None) -> str:
    """Rows of consecutive addresses of the block's row length, if the addresses have that form at run time."""
    nbytes, kind = nbits // 8, LANES.int(nbits)
    width = e.block[0]
    lanes = width if width in (8, 16) else WARP
    if lanes == WARP and mask is not None:  # values of inactive lanes are undefined
        at, wrong = _row_of_acting(e, where, nbytes, mask)
    else:
        starts = ", ".join(f"i32 {lane & -lanes}" for lane in range(WARP))
        start = e.v(f"shufflevector <{WARP} x i64> {where}, <{WARP} x i64> poison, <{WARP} x i32> <{starts}>")
        steps = e.constants(64, [lane % lanes * nbytes for lane in range(WARP)])
        wrong = e.v(f"icmp ne <{WARP} x i64> {e.v(f'sub <{WARP} x i64> {where}, {start}')}, {steps}")
        row = tuple(nbytes << k if 1 << k < lanes else None for k in range(LANE_BITS))
        at = Value(where, 64, Pattern(row)) if None in row else Value(
            e.v(f"extractelement <{WARP} x i64> {where}, i32 0"), 64, Pattern(row)
        )  # fmt: skip
    fits = e.v(f"icmp eq i32 {e.v(f'bitcast <{WARP} x i1> {wrong} to i32')}, 0")
    name = e.unique("probe")
    e.e(f"br i1 {fits}, label %{name}.row, label %{name}.each")
    e.label(f"{name}.row")
    fetch_ahead(e, at, nbytes)
    rows = load_segments(e, at, nbits, mask)
    e.e(f"br label %{name}.loaded")
    e.label(f"{name}.loaded")
    e.e(f"br label %{name}.end")
    e.label(f"{name}.each")
    each = gather(e, where, nbits, mask or "splat (i1 true)")
    e.e(f"br label %{name}.end")
    e.label(f"{name}.end")
    return e.v(f"phi {kind} [ {rows}, %{name}.loaded ], [ {each}, %{name}.each ]")


def _row_of_acting(e: Emitter, where: str, nbytes: int, mask: str) -> tuple[Value, str]:
    """A row that has the first acting lane's address, and the acting lanes whose addresses are not those of the row."""
    bits = e.v(f"bitcast <{WARP} x i1> {mask} to i32")
    lane = e.v(f"and i32 {e.v(e.call('i32', 'llvm.cttz.i32', ('i32', bits), ('i1', 'false')))}, {WARP - 1}")
    first = e.v(f"extractelement <{WARP} x i64> {where}, i32 {lane}")
    base = e.v(f"sub i64 {first}, {e.v(f'mul i64 {e.resize(SCALAR, lane, 32, 64)}, {nbytes}')}")
    at = Value(base, 64, linear(nbytes))
    return at, e.v(f"and <{WARP} x i1> {e.v(f'icmp ne <{WARP} x i64> {e.vector(at)}, {where}')}, {mask}")


@emits("st")
def store(e: Emitter, ins: ir.Instruction) -> None:
    if ins.has("async", "bulk"):
        raise e.unsupported()
    nbits = ir.TYPE_NBITS[ins.type]
    nbytes = nbits // 8
    sources = elements(ins.operands[1])
    values = [e.read(source, nbits) for source in sources]
    value = values[0] if len(values) == 1 else None
    place = address(e, ins, ins.operands[0], space_of(e, ins), nbytes * len(sources), value=value)
    if ins.has("global") and not e.in_loop:
        fetch_ahead(e, place, nbytes * len(sources), write=True)
    ordered = ins.has(*_ORDERED)
    if ordered:
        fence_before(e, ins)
    if ordered and (len(values) > 1 or nbits == _WIDEST):
        store_whole(e, place, values)
        fence_after(e, ins)
        return
    tuples = _is_tuple(place, nbytes, len(values)) and not ordered
    if tuples:
        vectors = [e.vector(value) for value in values]
        name = e.unique("tuple")
        some = e.mask_bits() != "-1"
        if some:
            e.e(f"br i1 {e.v(f'icmp eq i32 {e.mask_bits()}, -1')}, label %{name}.row, label %{name}.each")
            e.label(f"{name}.row")
        store_tuples(e, place.text, vectors, nbits)
        if not some:
            return
        e.e(f"br label %{name}.end")
        e.label(f"{name}.each")
    for index, value in enumerate(values):
        at = plus(e, place, index * nbytes)
        if at.uniform and value.uniform:
            e.if_any(lambda at=at, value=value: e.e(  # type: ignore[misc]
                f"store {'volatile ' if ordered else ''}i{nbits} {value.text}, ptr {pointer(e, at.text)}, "
                f"align {nbytes}"
            ))  # fmt: skip
        elif ordered or nbits == _WIDEST:
            _store_each(e, at, value)
        else:
            store_lanes(e, at, e.vector(value), nbits, row=len(values) == 1)
    if tuples:
        e.e(f"br label %{name}.end")
        e.label(f"{name}.end")
    if ordered:
        fence_after(e, ins)


def _store_each(e: Emitter, at: Value, value: Value) -> None:
    nbits = value.nbits
    where, what = e.spread("address", e.vector(at), 64), e.spread("operand", e.vector(value), nbits)
    e.each_lane(
        lambda lane: e.e(f"store volatile i{nbits} {what(lane)}, ptr {pointer(e, where(lane))}, align {nbits // 8}")
    )


def store_lanes(e: Emitter, at: Value, text: str, nbits: int, row: bool = True) -> None:
    """Plain stores of all acting lanes; of lanes with one address the highest wins."""
    mask = e.mask()
    if row and can_store(at.pattern, nbits // 8, mask is not None):
        store_segments(e, at, text, nbits, mask)
        return
    if mask is None and (order := reordered(at.pattern, nbits // 8)):
        store_reordered(e, at, text, nbits, order)
        return
    if can_offset(at, nbits):
        scatter_offsets(e, at, text, nbits, mask)
        return
    if mask is not None and emit_masked.can_place(e, at, nbits):
        emit_masked.scatter_placed(e, at, text, nbits, mask)
        return
    if nbits < 32:
        where, what = e.spread("address", e.vector(at), 64), e.spread("operand", text, nbits)
        e.each_lane(lambda lane: e.e(f"store i{nbits} {what(lane)}, ptr {pointer(e, where(lane))}, align 1"))
        return
    scatter(e, e.vector(at), text, nbits, mask or "splat (i1 true)")


def fence_before(e: Emitter, ins: ir.Instruction) -> None:
    if ins.has("release", "acq_rel"):
        e.e("fence release")


def fence_after(e: Emitter, ins: ir.Instruction) -> None:
    if ins.has("acquire", "acq_rel"):
        e.e("fence acquire")


@emits("mov")
def move(e: Emitter, ins: ir.Instruction) -> None:
    target, source = ins.operands
    nbits = ir.TYPE_NBITS[ins.type]
    if isinstance(source, ir.Vector):
        _pack(e, ins, target, source, nbits)
    elif isinstance(target, ir.Vector):
        _unpack(e, ins, target, source, nbits)
    else:
        form, (text,) = e.sources(ins, [source], nbits, any_nan=e.defers_nan)
        e.put(target, form, text, nbits, signed=ins.type[0] == "s")


def _pack(e: Emitter, ins: ir.Instruction, target: ir.Operand, source: ir.Vector, nbits: int) -> None:
    part = nbits // len(source.items)
    form, values = e.sources(ins, source.items, part)
    kind = form.int(nbits)
    result = e.resize(form, values[0], part, nbits)
    for index, value in enumerate(values[1:], 1):
        high = e.v(f"shl {kind} {e.resize(form, value, part, nbits)}, {form.const(index * part, nbits)}")
        result = e.v(f"or {kind} {result}, {high}")
    e.put(target, form, result, nbits)


def _unpack(e: Emitter, ins: ir.Instruction, target: ir.Vector, source: ir.Operand, nbits: int) -> None:
    part = nbits // len(target.items)
    form, (value,) = e.sources(ins, [source], nbits)
    for index, item in enumerate(target.items):
        high = e.v(f"lshr {form.int(nbits)} {value}, {form.const(index * part, nbits)}") if index else value
        e.put(item, form, e.resize(form, high, nbits, part), part)


@emits("cvta")
def convert_address(e: Emitter, ins: ir.Instruction) -> None:
    """Only shared addresses differ from generic ones, and addresses of local memory that were kept in 32 bits."""
    nbits = ir.TYPE_NBITS[ins.type]
    space = space_of(e, ins)
    form, (text,) = e.sources(ins, ins.operands[1:2], nbits)
    if space == "shared":
        window = e.splat("%shared", "i64") if form.vector else "%shared"
        text = e.v(f"{'sub' if ins.has('to') else 'add'} {form.int(64)} {e.resize(form, text, nbits, 64)}, {window}")
        text = e.resize(form, text, 64, nbits)
    elif space == "local" and nbits == 64 and not ins.has("to"):
        text = whole_local(e, form, text)
    e.put(ins.operands[0], form, text, nbits)


@emits("isspacep")
def is_space(e: Emitter, ins: ir.Instruction) -> None:
    """Membership by address range; what is neither shared nor local counts as global (const has no range of its
    own)."""
    space = space_of(e, ins)
    form, (text,) = e.sources(ins, ins.operands[1:2], 64)

    def within(start: str, nbytes: int) -> str:
        base = e.splat(start, "i64") if form.vector else start
        return e.v(f"icmp ult {form.int(64)} {e.v(f'sub {form.int(64)} {text}, {base}')}, {form.const(nbytes, 64)}")

    def shared() -> str:
        return within("%shared", 1 << 32)

    def own() -> str:
        """Whether the address lies in this CTA's part of the cluster's shared memory."""
        kind = form.int(64)
        begin, nbytes = e.v(f"add i64 %shared, {e.v('zext i32 %own to i64')}"), e.v("zext i32 %stride to i64")
        base, size = (e.splat(begin, "i64"), e.splat(nbytes, "i64")) if form.vector else (begin, nbytes)
        return e.v(f"icmp ult {kind} {e.v(f'sub {kind} {text}, {base}')}, {size}")

    def local() -> str:
        return within("%local", max(1, e.local_stride * WARP))

    match space:
        case "shared":
            result = own() if e.cluster is not None and not ins.has("shared::cluster") else shared()
        case "local":
            result = local()
        case "global":
            either = e.v(f"or {form.int(1)} {shared()}, {local()}")
            result = e.v(f"xor {form.int(1)} {either}, {form.const(1, 1)}")
        case "param":
            result = within("%params.i", max(1, e.program.param_nbytes))
        case _:
            raise e.unsupported()
    e.put(ins.operands[0], form, result, 1)


@emits("prefetch", "prefetchu", "discard", "applypriority")
def hint(e: Emitter, ins: ir.Instruction) -> None:
    """No effect on results. (discard may leave the data undefined; here it stays unchanged.)"""


@emits("membar", "fence")
def fence(e: Emitter, ins: ir.Instruction) -> None:
    """A CTA runs on one thread, so its own fence only binds the compiler."""
    if e.state.watched:
        emit_watch.sync(e, ins, emit_watch.FENCE)
    if ins.has("proxy", "mbarrier_init"):
        return
    scope = 'syncscope("singlethread") ' if ins.has("cta") else ""
    e.e(f"fence {scope}seq_cst")


__all__ = ["abi", "address", "elements", "load_lanes", "pointer", "space_of", "store_lanes"]
