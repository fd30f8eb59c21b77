"""Loads and stores of lanes whose addresses have a pattern, as few memory accesses: a run of lanes with consecutive
elements is one vector, lanes that share an address are one element. Only bytes of acting lanes are touched, as by a
gather, and where lanes store to one address the highest wins.

The lanes are halved until a part is such a segment: part (first lane, n) is lanes first..first+2**n-1."""

from __future__ import annotations

from typing import NamedTuple

from vgpusim.codegen import native
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_masked import scatter_row
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_pattern import LANE_BITS, Pattern
from vgpusim.codegen.lane_value import LANES, Value

_MAX_SEGMENTS = 8  # with more accesses a gather is as fast
_MAX_SMALL_SEGMENTS = WARP  # of elements a gather has no instruction for
_MAX_BRANCHES = 2  # from 2**3 lanes on a loop over those that act is faster than a branch for each
_PAGE_NBYTES = 4096  # the smallest of any processor


class Acting(NamedTuple):
    """Those of 2**n lanes that act: a vector of bits, and the same bits as an i32. What is not used is not computed."""

    lanes: str
    bits: str


def segments(pattern: Pattern, nbytes: int) -> int | None:
    """How many accesses the lanes' elements of `nbytes` take; None: too many, do not use them."""
    count = 1
    for n in range(LANE_BITS, -1, -1):
        if _same(pattern, n) or is_row(pattern, n, nbytes):
            break
        count *= 1 if pattern.steps[n - 1] == 0 else 2
    return count if count <= (_MAX_SEGMENTS if nbytes >= 4 else _MAX_SMALL_SEGMENTS) else None


def _same(pattern: Pattern, n: int) -> bool:
    return all(step == 0 for step in pattern.steps[:n])


def is_row(pattern: Pattern, n: int, nbytes: int) -> bool:
    """Whether 2**n neighbouring lanes have consecutive elements."""
    return n > 0 and all(step == nbytes << k for k, step in enumerate(pattern.steps[:n]))


def load_segments(e: Emitter, at: Value, nbits: int, mask: str | None) -> str:
    """The elements of all acting lanes."""
    return _load(e, at, nbits, _acting(e, mask), 0, LANE_BITS)


def has_rows_of_tuples(pattern: Pattern, nbytes: int, count: int) -> bool:
    """Whether lanes' vectors of `count` elements are few segments, and their single elements are not."""
    if count not in (2, 4) or segments(pattern, nbytes) is not None:
        return False
    return pattern.known and segments(pattern, nbytes * count) is not None


def load_segments_of_tuples(e: Emitter, at: Value, nbits: int, count: int) -> str:
    """`count` consecutive elements of each acting lane, lane after lane."""
    return _load(e, at, nbits, _acting(e, e.mask()), 0, LANE_BITS, count)


def load_part(e: Emitter, at: Value, nbits: int, first: int, n: int, count: int) -> str:
    """`count` consecutive elements of each of 2**n lanes from lane `first`, lane after lane; all lanes act."""
    return _load(e, at, nbits, None, first, n, count)


def _load(e: Emitter, at: Value, nbits: int, mask: Acting | None, first: int, n: int, count: int = 1) -> str:
    """The elements of 2**n lanes from lane `first`, `count` of each, lane after lane."""
    kind, nbytes = f"<{count << n} x i{nbits}>", nbits // 8
    if is_row(at.pattern, n, nbytes * count):
        place = _pointer(e, at, first)
        if mask is None:
            return e.v(f"load {kind}, ptr {place}, align {nbytes}")
        return _load_masked(e, place, nbits, mask, n, count)
    if _same(at.pattern, n):
        place = _pointer(e, at, first)
        if mask is not None:  # nothing is read where no lane acts
            nowhere = e.stack("nowhere", "[4 x i64]")  # the widest tuple
            some = e.v(f"icmp ne i32 {mask.bits}, 0")
            place = e.v(f"select i1 {some}, ptr {place}, ptr {nowhere}")
        if count > 1:
            own = f"<{count} x i{nbits}>"
            element = e.v(f"load {own}, ptr {place}, align {nbytes}")
            order = ", ".join(f"i32 {k % count}" for k in range(count << n))
            return e.v(f"shufflevector {own} {element}, {own} poison, <{count << n} x i32> <{order}>")
        element = e.v(f"load i{nbits}, ptr {place}, align {nbytes}")
        one = e.v(f"insertelement {kind} poison, i{nbits} {element}, i32 0")
        return e.v(f"shufflevector {kind} {one}, {kind} poison, <{1 << n} x i32> zeroinitializer") if n else one
    half = 1 << (n - 1)
    lower, upper = (_part(e, mask, n, side) for side in (0, 1))
    if at.pattern.steps[n - 1] == 0:
        low = high = _load(e, at, nbits, _either(e, lower, upper, half), first, n - 1, count)
    else:
        low = _load(e, at, nbits, lower, first, n - 1, count)
        high = _load(e, at, nbits, upper, first + half, n - 1, count)
    return e.joined([low, high], nbits, half * count)


def _load_masked(e: Emitter, place: str, nbits: int, acting: Acting, n: int, count: int) -> str:
    """Consecutive elements of those of 2**n lanes that act."""
    kind, nbytes, lanes, name = f"<{count << n} x i{nbits}>", nbits // 8, acting.lanes, ""
    if _avoids_masks(e, nbits):
        name = e.unique("whole")
        harmless = _is_harmless(e, place, acting.bits, n, nbytes * count)
        e.e(f"br i1 {harmless}, label %{name}.all, label %{name}.some")
        e.label(f"{name}.all")
        whole = e.v(f"load {kind}, ptr {place}, align {nbytes}")
        e.e(f"br label %{name}.end")
        e.label(f"{name}.some")
        lanes = _lanes(e, acting.bits, n, nbits)
    if count > 1:
        order = ", ".join(f"i32 {k // count}" for k in range(count << n))
        lanes = e.v(f"shufflevector <{1 << n} x i1> {lanes}, <{1 << n} x i1> poison, <{count << n} x i32> <{order}>")
    some = e.v(e.call(kind, f"llvm.masked.load.v{count << n}i{nbits}.p0", ("ptr", place), ("i32", str(nbytes)),
                      (f"<{count << n} x i1>", lanes), (kind, "zeroinitializer")))  # fmt: skip
    if not name:
        return some
    e.e(f"br label %{name}.end")
    e.label(f"{name}.end")
    return e.v(f"phi {kind} [ {whole}, %{name}.all ], [ {some}, %{name}.some ]")


def _store_masked(e: Emitter, place: str, text: str, nbits: int, acting: Acting, n: int) -> None:
    """Consecutive elements of those of 2**n lanes that act."""
    kind, nbytes, lanes, name = f"<{1 << n} x i{nbits}>", nbits // 8, acting.lanes, ""
    if _avoids_masks(e, nbits):
        name = e.unique("whole")
        e.e(f"br i1 {e.v(f'icmp eq i32 {acting.bits}, {_every(n)}')}, label %{name}.all, label %{name}.part")
        e.label(f"{name}.all")
        e.e(f"store {kind} {text}, ptr {place}, align {nbytes}")
        e.e(f"br label %{name}.end")
        e.label(f"{name}.part")
        e.e(f"br i1 {e.v(f'icmp eq i32 {acting.bits}, 0')}, label %{name}.end, label %{name}.some")
        e.label(f"{name}.some")
        lanes = _lanes(e, acting.bits, n, nbits)
    if lacks_masks(nbits) and n > _MAX_BRANCHES:
        scatter_row(e, place, text, nbits, lanes, n)
    else:
        e.e(e.call("void", f"llvm.masked.store.v{1 << n}i{nbits}.p0", (kind, text), ("ptr", place),
                   ("i32", str(nbytes)), (f"<{1 << n} x i1>", lanes)))  # fmt: skip
    if name:
        e.e(f"br label %{name}.end")
        e.label(f"{name}.end")


def lacks_masks(nbits: int) -> bool:
    """Whether the processor has no masked accesses of such elements: LLVM then makes a branch for each lane."""
    return nbits < 32 and not native.has_masked_gathers()


def _avoids_masks(e: Emitter, nbits: int) -> bool:
    """Whether accesses of all lanes are worth branches. Without AVX-512 it takes some ten instructions to make a mask,
    and an AMD processor needs ten times as long for a masked store as for a plain one."""
    return lacks_masks(nbits) or not (native.has_masked_gathers() or e.is_large)


def _every(n: int) -> int:
    """The bits of 2**n lanes as an i32."""
    return (1 << (1 << n)) - 1 if n < LANE_BITS else -1


def _lanes(e: Emitter, bits: str, n: int, nbits: int) -> str:
    """The lanes of those bits, in the form that accesses of such elements need: a mask of another form, or of another
    basic block, is converted."""
    count, kind = 1 << n, f"<{1 << n} x i{max(nbits, 32)}>"
    own = e.constants(max(nbits, 32), [1 << lane for lane in range(count)])
    one = e.v(f"insertelement <{count} x i32> poison, i32 {bits}, i32 0")
    each = e.v(f"shufflevector <{count} x i32> {one}, <{count} x i32> poison, <{count} x i32> zeroinitializer")
    if nbits > 32:
        each = e.v(f"zext <{count} x i32> {each} to {kind}")
    return e.v(f"icmp eq {kind} {e.v(f'and {kind} {each}, {own}')}, {own}")


def _is_harmless(e: Emitter, place: str, bits: str, n: int, nbytes: int) -> str:
    """Whether a load of all of 2**n lanes, each of so many bytes, touches no page that a load of those that act does
    not touch."""
    within = e.v(f"and i64 {e.v(f'ptrtoint ptr {place} to i64')}, {_PAGE_NBYTES - 1}")
    one_page = e.v(f"icmp ule i64 {within}, {_PAGE_NBYTES - (nbytes << n)}")
    some = e.v(f"icmp ne i32 {bits}, 0")
    return e.v(f"or i1 {e.v(f'icmp eq i32 {bits}, {_every(n)}')}, {e.v(f'and i1 {some}, {one_page}')}")


def load_tuples(e: Emitter, at: str, nbits: int, count: int) -> list[str]:
    """Load `count` consecutive elements of each lane, lane after lane; vector i has element i of each lane."""
    wide = f"<{count * WARP} x i{nbits}>"
    return apart(e, e.v(f"load {wide}, ptr {e.v(f'inttoptr i64 {at} to ptr')}, align {nbits // 8}"), nbits, count)


def apart(e: Emitter, row: str, nbits: int, count: int) -> list[str]:
    """Of a row of `count` elements of each lane: vector i has element i of each lane."""
    wide, parts = f"<{count * WARP} x i{nbits}>", []
    for index in range(count):
        lanes = ", ".join(f"i32 {count * lane + index}" for lane in range(WARP))
        parts.append(e.v(f"shufflevector {wide} {row}, {wide} poison, <{WARP} x i32> <{lanes}>"))
    return parts


def store_tuples(e: Emitter, at: str, parts: list[str], nbits: int) -> None:
    """The reverse of load_tuples."""
    whole, count = e.joined(parts, nbits, WARP), len(parts)  # the first element of each lane, then the second
    lanes = WARP * count
    kind = f"<{lanes} x i{nbits}>"
    order = ", ".join(f"i32 {index * WARP + lane}" for lane in range(WARP) for index in range(count))
    row = e.v(f"shufflevector {kind} {whole}, {kind} poison, <{lanes} x i32> <{order}>")
    e.e(f"store {kind} {row}, ptr {e.v(f'inttoptr i64 {at} to ptr')}, align {nbits // 8}")


def can_store(pattern: Pattern, nbytes: int, masked: bool) -> bool:
    """Whether store_segments serves: under a mask it has no way to store one of several lanes' elements."""
    rows = any(is_row(pattern, n, nbytes) for n in range(1, LANE_BITS + 1))
    return segments(pattern, nbytes) is not None and (rows or not masked)


def reordered(pattern: Pattern, nbytes: int) -> tuple[list[int], Pattern] | None:
    """For lanes whose elements are rows only in another order of lanes, as where neighbours in memory are 16 lanes
    apart: that order, and the pattern in it. None: not so, or lanes' elements are not all different ones."""
    if not pattern.known or segments(pattern, nbytes) is not None or len(set(pattern.offsets())) < WARP:
        return None
    bits: list[int] = []
    while (nbytes << len(bits)) in pattern.steps:
        bits.append(pattern.steps.index(nbytes << len(bits)))
    if not bits:
        return None
    bits += [k for k in range(LANE_BITS) if k not in bits]
    lanes = [sum(1 << bit for k, bit in enumerate(bits) if place >> k & 1) for place in range(WARP)]
    return lanes, Pattern(tuple(pattern.steps[bit] for bit in bits))


def store_reordered(e: Emitter, at: Value, text: str, nbits: int, order: tuple[list[int], Pattern]) -> None:
    """Store the elements of all lanes."""
    lanes, pattern = order
    pairs = nbits == 32 and not is_row(pattern, 2, nbits // 8)
    kind, listed = LANES.of("float") if pairs else LANES.int(nbits), ", ".join(f"i32 {lane}" for lane in lanes)
    text = e.v(f"bitcast {LANES.int(nbits)} {text} to {kind}")
    text = e.v(f"shufflevector {kind} {text}, {kind} poison, <{WARP} x i32> <{listed}>")
    if pairs:  # as floats, of which LLVM stores the upper of two in one operation (movhps) and integers in two
        both = f"<{WARP // 2} x double>"
        text = e.v(f"bitcast {kind} {text} to {both}")
        for index, offset in enumerate(pattern.offsets()[::2]):
            pair = e.v(f"extractelement {both} {text}, i32 {index}")
            place = e.v(f"inttoptr i64 {e.v(f'add i64 {at.text}, {offset}')} to ptr")
            e.e(f"store double {pair}, ptr {place}, align {nbits // 8}")
        return
    _store(e, Value(at.text, 64, pattern), text, nbits, None, 0, LANE_BITS)


def store_segments(e: Emitter, at: Value, text: str, nbits: int, mask: str | None) -> None:
    """Store the elements of all acting lanes."""
    _store(e, at, text, nbits, _acting(e, mask), 0, LANE_BITS)


def _store(e: Emitter, at: Value, text: str, nbits: int, mask: Acting | None, first: int, n: int) -> None:
    kind, nbytes = f"<{1 << n} x i{nbits}>", nbits // 8
    if is_row(at.pattern, n, nbytes):
        place = _pointer(e, at, first)
        if mask is None:
            e.e(f"store {kind} {text}, ptr {place}, align {nbytes}")
        else:
            _store_masked(e, place, text, nbits, mask, n)
        return
    if _same(at.pattern, n):
        last = e.v(f"extractelement {kind} {text}, i32 {(1 << n) - 1}")
        e.e(f"store i{nbits} {last}, ptr {_pointer(e, at, first)}, align {nbytes}")
        return
    half = 1 << (n - 1)
    for side in (0, 1):
        if side == 0 and mask is None and at.pattern.steps[n - 1] == 0:
            continue  # the upper lanes overwrite it all
        indices = ", ".join(f"i32 {side * half + k}" for k in range(half))
        part = e.v(f"shufflevector {kind} {text}, {kind} poison, <{half} x i32> <{indices}>")
        _store(e, at, part, nbits, _part(e, mask, n, side), first + side * half, n - 1)


def _pointer(e: Emitter, at: Value, lane: int) -> str:
    return e.v(f"inttoptr i64 {place_of_lane(e, at, lane)} to ptr")


def place_of_lane(e: Emitter, at: Value, lane: int) -> str:
    """The address of one lane, i64."""
    if not at.pattern.known:
        return e.v(f"extractelement {LANES.int(64)} {at.text}, i32 {lane}")
    return e.v(f"add i64 {at.text}, {at.pattern.offsets()[lane]}") if lane else at.text


def _acting(e: Emitter, mask: str | None) -> Acting | None:
    """Lanes of a warp; `mask`: Emitter.mask()."""
    return None if mask is None else Acting(mask, e.mask_bits())


def _part(e: Emitter, acting: Acting | None, n: int, side: int) -> Acting | None:
    """The lower or upper half of 2**n lanes."""
    if acting is None:
        return None
    half = 1 << (n - 1)
    indices = ", ".join(f"i32 {side * half + k}" for k in range(half))
    lanes = e.v(f"shufflevector <{1 << n} x i1> {acting.lanes}, <{1 << n} x i1> poison, <{half} x i32> <{indices}>")
    bits = e.v(f"lshr i32 {acting.bits}, {half}") if side else e.v(f"and i32 {acting.bits}, {_every(n - 1)}")
    return Acting(lanes, bits)


def _either(e: Emitter, lower: Acting | None, upper: Acting | None, half: int) -> Acting | None:
    if lower is None or upper is None:
        return None
    lanes = e.v(f"or <{half} x i1> {lower.lanes}, {upper.lanes}")
    return Acting(lanes, e.v(f"or i32 {lower.bits}, {upper.bits}"))
