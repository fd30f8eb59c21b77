"""Watched kernels: the sanitizer (device/vgx_sim_watch.h) learns of each access and barrier before it is made."""

from __future__ import annotations

import hashlib
import itertools

from vgpusim.codegen import abi, unset
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_pattern import LANE_BITS, Pattern
from vgpusim.codegen.lane_value import LANES, Value
from vgpusim.ptx import ir

_READ, _WRITE, _ATOMIC, _ACQUIRE, _RELEASE, _OBJECT = range(6)  # enum vgx_sim_access_kind
WAIT, ARRIVE, RESUME, IN_WARP, FENCE = range(5)  # enum vgx_sim_sync
_GROUP_MAX = 64
_ROW_NBYTES = (1, 2, 4)  # of a lane's access, in a row that is no longer than a span (device/vgx_sim_race_span.c)
_STRIPES = 1  # VGX_SIM_PATTERN_STRIPES
_STRIPE_DISTANCE_MAX = 32  # so that few spans have to be looked at
_ORDERED = ("volatile", "relaxed", "acquire", "release", "mmio")
_KINDS = {"read": _READ, "write": _WRITE, "atomic": _ATOMIC}


def _kind(ins: ir.Instruction, kind: str) -> int:
    if kind == "atomic" and (ins.opcode == "mbarrier" or ins.has("async")):
        return _OBJECT
    if kind:
        return _KINDS[kind]
    if ins.opcode in ("atom", "red"):
        return _ATOMIC
    ordered = ins.opcode in ("ld", "st") and ins.has(*_ORDERED)
    if ins.opcode in ("st", "stmatrix") or ins.has("store"):
        return _RELEASE if ordered else _WRITE
    return _ACQUIRE if ordered else _READ


_ROW = "{ i32, i32, i32, ptr }"
_SITE = "{ ptr, ptr, i32, i32, i32, i32, [5 x i32], i32, i32, ptr, ptr, i32, i32, i32, i8, i8, i8 }"
Row = tuple[int, int, int, str]  # offset from lane 0's address, bytes, the first lane, its site or "null"


def _site(
    e: Emitter, ins: ir.Instruction, nbytes: int, align: int, kind: int, known: int = 0, pattern: Pattern | None = None,
    rows: list[Row] | None = None,
) -> str:  # fmt: skip
    """A constant struct vgx_sim_site; returns its name. `rows`: of a group."""
    text, place = e.string(ins.text), e.string(ins.source or f"PTX line {ins.line}")
    steps, low, high, distinct, form, spans = (0,) * LANE_BITS, 0, 0, 0, 0, []
    if pattern is not None:
        steps = tuple(step or 0 for step in pattern.steps)
        offsets = pattern.offsets()
        form = _form(offsets, nbytes) if rows is None and kind in (_READ, _WRITE) else 0
        rows = rows or _rows(offsets, nbytes)
        spans = _spans(rows)
        low, high = min(row[0] for row in rows), max(row[0] + row[1] for row in rows) - nbytes
        distinct = int(all(b - a >= nbytes for a, b in itertools.pairwise(sorted(offsets))))
    listed, joined = _table(e, rows or []), _table(e, spans)
    tracked = int(e.state.tracked and unset.is_source(ins))
    fields = f"ptr {text}, ptr {place}, i32 {nbytes}, i32 {align}, i32 {kind}, i32 {known}, [5 x i32] ["
    fields += ", ".join(f"i32 {step}" for step in steps)
    fields += (
        f"], i32 {len(rows or [])}, i32 {len(spans)}, ptr {listed}, ptr {joined}, i32 {low}, i32 {high}, i32 {ins.line}"
    )
    return _constant(e, "site", f"{_SITE} {{ {fields}, i8 {distinct}, i8 {tracked}, i8 {form} }}")


def _form(offsets: list[int], nbytes: int) -> int:
    """The member `pattern` of a site."""
    distance = offsets[1] - offsets[0]
    if offsets != [lane * distance for lane in range(WARP)]:
        return 0
    if distance == nbytes:
        return (WARP * nbytes).bit_length() - 1 if nbytes in _ROW_NBYTES else 0
    return _STRIPES if nbytes <= abs(distance) <= _STRIPE_DISTANCE_MAX else 0


def _table(e: Emitter, rows: list[Row]) -> str:
    if not rows:
        return "null"
    fields = ", ".join(f"{_ROW} {{ i32 {o}, i32 {n}, i32 {lane}, ptr {site} }}" for o, n, lane, site in rows)
    return _constant(e, "rows", f"[{len(rows)} x {_ROW}] [ {fields} ]")


def _constant(e: Emitter, what: str, text: str) -> str:
    """A constant, one for each text; returns its name."""
    name = f"{what}.{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"
    e.helper(name, f"@{name} = private constant {text}")
    return f"@{name}"


def _rows(offsets: list[int], nbytes: int) -> list[Row]:
    """Ranges without gaps whose elements consecutive lanes access."""
    rows: list[Row] = []
    following = -1
    for lane, offset in enumerate(offsets):
        if any(begin <= offset and offset + nbytes <= begin + size for begin, size, *_ in rows):
            continue  # another lane accesses these bytes, too
        if rows and lane == following and offset == rows[-1][0] + rows[-1][1]:
            rows[-1] = (rows[-1][0], rows[-1][1] + nbytes, rows[-1][2], rows[-1][3])
        else:
            rows.append((offset, nbytes, lane, "null"))
        following = lane + 1
    return rows


def _spans(rows: list[Row]) -> list[Row]:
    """The bytes of all rows, joined where they meet."""
    spans: list[Row] = []
    for begin, size, *_ in sorted(rows):
        if spans and begin <= spans[-1][0] + spans[-1][1]:
            first = spans[-1][0]
            spans[-1] = (first, max(spans[-1][1], begin + size - first), 0, "null")
        else:
            spans.append((begin, size, 0, "null"))
    return spans


def site_of(e: Emitter, ins: ir.Instruction, loads: list[int] | None = None) -> str:
    """The site of an instruction that accesses nothing by itself. `loads`: the lines of those whose values it uses."""
    return _site(e, ins, 0, 1, _READ, rows=[(line, 0, 0, "null") for line in loads or []])


_GROUP_ENDS = (
    "atom",
    "red",
    "membar",
    "fence",
    "mbarrier",
    "bar",
    "barrier",
    "cp",
    "call",
    "wgmma",
    "griddepcontrol",
    "tensormap",
)


def _group(e: Emitter, ins: ir.Instruction, at: Value, nbytes: int, align: int, known: int) -> str | None:
    """Announce a load from shared memory and those that follow it in the block from the same register, without anything
    between that orders warps. Returns, for each of these loads, an i1: whether it needs no announcement of its own.
    """
    if id(ins) in e.announced:
        return e.announced.pop(id(ins))
    operand = ins.operands[1] if len(ins.operands) > 1 else None
    if ins.opcode != "ld" or e.guard is not None or not isinstance(operand, ir.Address):
        return None
    rows: list[Row] = []
    members: list[ir.Instruction] = []
    instructions = e.graph.blocks[e.position].instructions
    begin = next(i for i, each in enumerate(instructions) if each is ins)
    for other in instructions[begin:]:
        same = other.opcode == "ld" and other.guard is None and other.modifiers == ins.modifiers
        place = other.operands[1] if same else None
        if (
            isinstance(place, ir.Address)
            and place.base == operand.base
            and type(other.operands[0]) is type(ins.operands[0])
        ):
            site = _site(e, other, nbytes, align, _READ, known, at.pattern)
            distance = place.offset - operand.offset
            rows += [(o + distance, n, lane, site) for o, n, lane, _ in _rows(at.pattern.offsets(), nbytes)]
            members.append(other)
        if other.opcode in _GROUP_ENDS or operand.base in ir.defined(other) or len(members) == _GROUP_MAX:
            break
    if len(members) < 2 or any(row[0] % align for row in rows):
        return None
    site = _site(e, ins, nbytes, align, _READ, known, at.pattern, rows)
    done = e.v(e.service(abi.SERVICE_GROUP, "i32", ("ptr", "%thread"), ("ptr", site), ("i64", at.text),
                         ("i32", e.mask_bits())))  # fmt: skip
    done = e.v(f"icmp ne i32 {done}, 0")
    e.announced.update((id(member), done) for member in members[1:])
    return done


def _is_announced_later(e: Emitter, ins: ir.Instruction) -> bool:
    """Whether the block's next access is a plain store by the same lanes, with nothing between that orders warps: it
    announces this load, too."""
    if ins.opcode != "ld" or e.guard is not None:
        return False
    instructions = e.graph.blocks[e.position].instructions
    begin = next(i for i, each in enumerate(instructions) if each is ins)
    for other in instructions[begin + 1 :]:
        if other.opcode in _GROUP_ENDS:
            return False
        if other.opcode == "st" or any(isinstance(operand, ir.Address) for operand in other.operands):
            return other.opcode == "st" and other.guard is None and other.has("global") and not other.has(*_ORDERED)
    return False


def access(
    e: Emitter, ins: ir.Instruction, at: Value, nbytes: int, align: int, kind: str, mask: str | None,
    space: str = "", value: Value | None = None, sizes: str = "null",
) -> None:  # fmt: skip
    """Report the addresses that the acting lanes are about to access, unless known to be valid. `value`: what a store
    stores; `sizes`: each lane's bytes, in memory."""
    known = _known(e, ins)
    rowed = at.pattern.known and nbytes and all(distance % align == 0 for distance in at.pattern.offsets())
    first, e.unannounced = e.unannounced, None
    group = None
    if rowed and space == "shared" and _kind(ins, kind) == _READ:
        group = _group(e, ins, at, nbytes, align, known)
    if group:
        name = e.unique("group")
        e.e(f"br i1 {group}, label %{name}.done, label %{name}.each")
        e.label(f"{name}.each")
        _announce(e, ins, at, nbytes, align, kind, mask, space, value, sizes, first)
        e.e(f"br label %{name}.done")
        e.label(f"{name}.done")
    else:
        _announce(e, ins, at, nbytes, align, kind, mask, space, value, sizes, first)


def _known(e: Emitter, ins: ir.Instruction) -> int:
    """The number of the struct vgx_sim_known of an access. Accesses through one register share it: mostly they are to
    one allocation, and those through others, which may take turns with them in a loop, are not."""
    place = next((operand for operand in ins.operands if isinstance(operand, ir.Address)), None)
    return e.known.setdefault(place.base if place else ins.line, len(e.known)) % abi.KNOWN_COUNT


def _announce(
    e: Emitter, ins: ir.Instruction, at: Value, nbytes: int, align: int, kind: str, mask: str | None, space: str,
    value: Value | None, sizes: str, first: tuple[str, str] | None,
) -> None:  # fmt: skip
    known = _known(e, ins)
    rowed = at.pattern.known and nbytes and all(distance % align == 0 for distance in at.pattern.offsets())
    told = "0"
    acting, kind_number = mask or e.mask_bits(), _kind(ins, kind)
    site = _site(e, ins, nbytes, align, kind_number, known, at.pattern if rowed else None)
    if nbytes:
        name = e.unique("watch")
        is_known = _is_known(e, at, nbytes, align, space, acting, known)
        told = e.v(f"zext i1 {is_known} to i32")
        place = e.v(f"getelementptr i8, ptr %services, i64 {abi.SERVICES_WATCHES_ALL}")
        few = e.v(f"icmp eq i32 {e.v(f'load i32, ptr {place}, align 4, !invariant.load !0')}, 0")
        done, right = e.v(f"and i1 {is_known}, {few}"), "false"
        if rowed and space != "shared":
            right = e.v(f"and i1 {is_known}, {e.v(f'icmp eq i32 {acting}, -1')}")
        if right != "false" and mask is None and kind_number == _READ and _is_announced_later(e, ins):
            later = e.v(f"and i1 {right}, {e.v(f'xor i1 {few}, true')}")
            e.unannounced = e.v(f"select i1 {later}, ptr {site}, ptr null"), at.text
            done = e.v(f"or i1 {done}, {later}")
        e.e(f"br i1 {done}, label %{name}, label %{name}.ask")
        e.label(f"{name}.ask")
        if first is not None:
            second = e.v(f"select i1 {right}, ptr {site}, ptr null")
            noted = _pair(e, first, second, at.text if right != "false" else "0")
            e.e(f"br i1 {e.v(f'icmp ne i32 {noted}, 0')}, label %{name}, label %{name}.alone")
            e.label(f"{name}.alone")
    elif first is not None:
        _pair(e, first, "null", "0")
    values = "null"
    if value is not None and value.nbits >= 8:
        values = e.stack(f"watch.value.{value.nbits}", f"[{WARP} x i{value.nbits}]")
        e.e(f"store {LANES.int(value.nbits)} {e.vector(value)}, ptr {values}, align 64")
    if rowed:
        e.e(e.service(abi.SERVICE_ROW, "void", ("ptr", "%thread"), ("ptr", site), ("i64", at.text), ("i32", acting),
                      ("ptr", values), ("i32", told)))  # fmt: skip
    else:
        place = e.stack("watch.address", f"[{WARP} x i64]")
        e.e(f"store {LANES.int(64)} {e.vector(at)}, ptr {place}, align 64")
        objects = _objects(e, at, acting) if kind_number >= _ATOMIC and nbytes else "0"
        e.e(e.service(abi.SERVICE_ACCESS, "void", ("ptr", "%thread"), ("ptr", site), ("ptr", place),
                      ("i32", acting), ("ptr", values), ("ptr", sizes), ("i32", _starts(e, at, nbytes)),
                      ("i32", told), ("i64", objects)))  # fmt: skip
    if nbytes:
        e.e(f"br label %{name}")
        e.label(name)


def _pair(e: Emitter, first: tuple[str, str], second: str, base: str) -> str:
    """Announce a load, and a store unless `second` is null. Returns an i32: whether the store is noted."""
    return e.v(e.service(abi.SERVICE_PAIR, "i32", ("ptr", "%thread"), ("ptr", first[0]), ("i64", first[1]),
                         ("ptr", second), ("i64", base)))  # fmt: skip


def _objects(e: Emitter, at: Value, mask: str) -> str:
    """A bit for each word that acting lanes access, by its address modulo RACE_OBJECTS, i64."""
    kind = LANES.int(64)
    word = e.v(f"lshr {kind} {e.vector(at)}, {LANES.const(abi.RACE_OBJECT_NBYTES.bit_length() - 1, 64)}")
    word = e.v(f"and {kind} {word}, {LANES.const(abi.RACE_OBJECTS - 1, 64)}")
    bits = e.v(f"shl {kind} {LANES.const(1, 64)}, {word}")
    acting = e.v(f"bitcast i32 {mask} to {LANES.int(1)}")
    bits = e.v(f"select {LANES.int(1)} {acting}, {kind} {bits}, {kind} {LANES.const(0, 64)}")
    return e.v(e.call("i64", f"llvm.vector.reduce.or.v{WARP}i64", (kind, bits)))


def _starts(e: Emitter, at: Value, nbytes: int) -> str:
    """Lanes that do not access the bytes after those of the lane before, an i32; 0: unknown."""
    if not nbytes:
        return "0"
    kind, text = LANES.int(64), e.vector(at)
    order = ", ".join(f"i32 {max(lane - 1, 0)}" for lane in range(WARP))
    before = e.v(f"shufflevector {kind} {text}, {kind} poison, <{WARP} x i32> <{order}>")
    distance = e.v(f"sub {kind} {text}, {before}")
    return e.v(f"bitcast {LANES.int(1)} {e.v(f'icmp ne {kind} {distance}, {LANES.const(nbytes, 64)}')} to i32")


def _is_known(e: Emitter, at: Value, nbytes: int, align: int, space: str, mask: str, known: int) -> str:
    """Whether all acting lanes are aligned and lie in the range of struct vgx_sim_known, i1. Each access reads the
    struct: a call between two accesses may change it."""
    if space == "shared":
        begin = "%shared.w"
        end = e.v(f"add i64 {begin}, {_of_thread(e, abi.THREAD_KNOWN_SHARED)}")
        fresh = "true"
    else:
        entry = abi.THREAD_KNOWN + abi.KNOWN_NBYTES * known
        begin, end = _of_thread(e, entry + abi.KNOWN_BEGIN), _of_thread(e, entry + abi.KNOWN_END)
        generation = e.v(f"inttoptr i64 {_of_thread(e, entry + abi.KNOWN_GENERATION)} to ptr")
        now = e.v(f"load atomic i64, ptr {generation} acquire, align 8")
        fresh = e.v(f"icmp eq i64 {now}, {_of_thread(e, entry + abi.KNOWN_SEEN)}")
    least, last = begin, e.v(f"call i64 @llvm.usub.sat.i64(i64 {end}, i64 {nbytes})")
    e.declarations.add("declare i64 @llvm.usub.sat.i64(i64, i64)")
    if at.pattern.known:  # inactive lanes can at most cause an unnecessary check
        offsets = at.pattern.offsets()
        low, high = e.v(f"add i64 {at.text}, {min(offsets)}"), e.v(f"add i64 {at.text}, {max(offsets)}")
        inside = e.v(f"and i1 {e.v(f'icmp uge i64 {low}, {least}')}, {e.v(f'icmp ule i64 {high}, {last}')}")
        if not all(distance % align == 0 for distance in offsets):
            return "false"
        rest = e.v(f"icmp eq i64 {e.v(f'and i64 {at.text}, {align - 1}')}, 0")
        ordered = e.v(f"icmp ule i64 {low}, {high}")
        for condition in (rest, ordered, fresh):
            inside = e.v(f"and i1 {inside}, {condition}")
        return inside
    kind, text = LANES.int(64), e.vector(at)
    highest = e.splat(last, "i64")
    lanes = e.v(f"icmp uge {kind} {text}, {e.splat(least, 'i64')}")
    lanes = e.v(f"and {LANES.int(1)} {lanes}, {e.v(f'icmp ule {kind} {text}, {highest}')}")
    if align > 1:
        rest = e.v(f"and {kind} {text}, {LANES.const(align - 1, 64)}")
        lanes = e.v(f"and {LANES.int(1)} {lanes}, {e.v(f'icmp eq {kind} {rest}, {LANES.const(0, 64)}')}")
    wrong = e.v(f"xor i32 {e.v(f'bitcast {LANES.int(1)} {lanes} to i32')}, -1")
    none = e.v(f"icmp eq i32 {e.v(f'and i32 {wrong}, {mask}')}, 0")
    return e.v(f"and i1 {none}, {fresh}")


def _of_thread(e: Emitter, offset: int) -> str:
    """An i64 of struct vgx_sim_thread."""
    return e.v(f"load i64, ptr {e.v(f'getelementptr i8, ptr %thread, i64 {offset}')}, align 8")


def elsewhere(e: Emitter) -> str:
    """The warp's lanes that wait at other blocks. Those that only have to end count as ended."""
    lanes = "0"
    for number, block in enumerate(e.graph.blocks):
        ends = block.terminator is not None and block.terminator.opcode in ("ret", "exit") and not block.instructions
        if number != e.position and not ends:
            waiting = e.v(f"load i32, ptr %m{number}")
            lanes = e.v(f"or i32 {lanes}, {waiting}")
    return lanes


def sync(
    e: Emitter, ins: ir.Instruction, what: int, number: str = "0", expected: str = "0", mask: str = "-1",
    others: str = "0",
) -> None:  # fmt: skip
    """Report that the warp has arrived at a barrier, leaves it, or has passed a fence."""
    place = e.stack("watch.sync", "{ ptr, i32, i32, i32, i32, i32 }")
    e.e(f"store ptr {_site(e, ins, 0, 1, _READ)}, ptr {place}")
    for index, text in enumerate((str(what), number, expected, mask, others)):
        at = e.v(f"getelementptr {{ ptr, i32, i32, i32, i32, i32 }}, ptr {place}, i32 0, i32 {index + 1}")
        e.e(f"store i32 {text}, ptr {at}")
    e.e(e.service(abi.SERVICE_SYNC, "void", ("ptr", "%thread"), ("ptr", place)))
