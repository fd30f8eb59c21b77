"""Blocks, lane masks, branches and barriers: the warp function.

Blocks stand in layout order, each with a mask of the lanes that wait for it; a block with no lane is skipped. After the
last block of a loop, lanes waiting at its header go round again, so a loop ends when its last lane leaves it. Where all
lanes are known to be together (the block is not divergent) branches are real ones.

At a CTA barrier, and where it yields, the warp has saved what is live and returns the number of the place to resume at;
0: it has ended. In a large kernel these copies would be most of the code, and LLVM would take minutes over values that
live that long: there, registers and masks stay in their places in the frame all the time. Some registers do so in every
kernel: see spill.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vgpusim.codegen import (
    abi,
    emit_absent,
    emit_cluster,
    emit_count,
    emit_index,
    emit_pairs,
    emit_tile,
    emit_watch,
    native,
    spill,
)
from vgpusim.codegen.cfg import EXIT, YIELD
from vgpusim.codegen.emit_barrier import arrive, reduction_result, watch
from vgpusim.codegen.emit_code import Turns
from vgpusim.codegen.emit_layout import lay_out
from vgpusim.codegen.emitter import BEGIN, END, Emitter
from vgpusim.codegen.lane_pattern import linear
from vgpusim.codegen.lane_value import LANES, SCALAR, Bound, Value
from vgpusim.codegen.uniformity import thread_shape
from vgpusim.ptx import ir

_YIELD_PERIOD = 256  # rounds of a spinning loop before lanes outside it may run
_DOUBLED_INSTRUCTIONS = 64  # blocks of loops up to this size are made for all lanes and for some
_LARGE_NBYTES = 600_000  # a warp function with more text than this, copies included, is large
_COPY_NBYTES = 110  # estimated text that saves or restores one register
_SAVED = f"{BEGIN}saved"  # begins a copy
_PATIENCE = 64  # rounds of waiting loops before other warps may run
_MEET = frozenset(
    [
        "shfl",
        "vote",
        "match",
        "redux",
        "activemask",
        "bar",
        "barrier",
        "mma",
        "wmma",
        "wgmma",
        "ldmatrix",
        "stmatrix",
        "movmatrix",
        "elect",
    ]
)

WARP_ARGUMENTS = "ptr %launch, ptr %thread, i32 %state, i32 %warp"  # vgx_sim_warp_fn


class WarpFunction:
    """Emits @warp."""

    def __init__(self, e: Emitter, patient: bool) -> None:
        """`patient`: yield only after many rounds, not in every one."""
        self.e, self.patient = e, patient
        self.blocks = e.graph.blocks
        self.divergent = e.analysis.divergent
        self.barriers = [i for i, b in enumerate(self.blocks) if b.is_barrier]
        self.latches: dict[int, list[int]] = {}
        for header, last in e.graph.loops:
            self.latches.setdefault(last, []).append(header)
        self.body: list[str] = []
        self.prologue: list[str] = []
        self.large = False
        self.early: set[int] = set()  # barriers before which registers are saved as soon as they have their values
        self.spins = bool(e.analysis.spin_loops & self.divergent)
        self.arrivals = (
            bool(self.barriers)
            or e.cluster is not None
            or any(ins.has("arrive") for b in self.blocks for ins in b.all() if _is_barrier(ins))
        )
        self.lockstep = (
            e.cluster is None
            and bool(self.barriers)
            and all(self._is_plain(ins) for b in self.blocks for ins in b.all())
        )
        e.couples = emit_pairs.couples(e)
        masks = [(f"%m{number}", "i32") for number in range(len(self.blocks))]
        self.spills = spill.lay_out(e, self.barriers, [*masks, ("%yielding", "i1")] if self.spins else masks)
        self.frame = lay_out(e.warp_count, self.spills.nbytes, e.local_stride * abi.WARP, self.arrivals)

    def emit(self, turns: Turns) -> str:
        """The text of the function. Turns.ROWS: it is a part of one that runs CTAs of a row, and %state is %ctaid.x."""
        e = self.e
        e.in_rows = turns is Turns.ROWS
        self.inlined = turns is not Turns.IN_ORDER
        for index in range(len(self.blocks)):
            e.position = index
            self._block(index)
        self.body = body = e.lines
        copies = sum(map(len, (*self.spills.saved.values(), *self.spills.restored.values())))
        self.large = sum(map(len, body)) + copies * _COPY_NBYTES > _LARGE_NBYTES
        e.lines = []
        self._prologue()
        self.prologue, e.lines = e.lines, []
        return self._text(body, self.large)

    def without_copies(self) -> str:
        """The text of the function, once it has been emitted, with all that a barrier saves in its place all the time.
        At a barrier a warp goes on in either: the places are the same."""
        return self._text(list(_without_copies(self.body)), large=True)

    def _text(self, body: list[str], large: bool) -> str:
        e = self.e
        own = {slot: offset for slot, _, offset in self.spills.places if large or slot in self.spills.homes}
        kinds = {e.slot(r): f"{e.slot_type(r)}, align 64" for r in e.live.registers}
        kinds |= {f"%{name}": f"{kind}, align 64" for name, kind in e.allocas.items()}
        masks = {f"%m{i}": "i32" for i in range(len(self.blocks))}
        if self.spins:
            masks |= {"%yielding": "i1"}
            kinds["%spin"] = "i32"
        waits = self.patient and any(self._yields(index) for index in self.barriers)
        if waits:
            kinds["%waited"] = "i32"
        slots = [
            f"  {slot} = getelementptr i8, ptr %frame, i64 {own[slot]}" if slot in own else f"  {slot} = alloca {kind}"
            for slot, kind in (kinds | masks).items()
        ]
        clear = [f"  store {kind} 0, ptr {slot}" for slot, kind in masks.items()]
        counters = [f"  store i32 0, ptr {slot}" for slot in ("%spin", "%waited") if slot in kinds]
        # Masks that lie in the frame keep their values from one call of the function to the next; others begin at 0.
        each_call, first_call = ([], clear) if "%m0" in own else (clear, [])
        resumes = " ".join(f"i32 {n + 1}, label %resume{i}" for n, i in enumerate(self.barriers))
        state = "0" if e.in_rows else "%state"
        begin = [f"  switch i32 {state}, label %start [ {resumes} ]", "start:"]
        begin += [*first_call, "  store i32 %init, ptr %m0", "  br label %b0"]
        for index in self.barriers:
            begin += [*self._save(index, large), *self._resume(index, large)]
        lines = ["entry:", *self._memory(), *slots, *self.prologue, *counters, *each_call, *begin, *body, *self._end()]
        inlining = "alwaysinline" if self.inlined else "noinline"
        return f"define internal i32 @warp({WARP_ARGUMENTS}) {inlining} #0 {{\n" + "\n".join(lines) + "\n}\n"

    def _is_plain(self, ins: ir.Instruction) -> bool:
        """Whether the block ends without a barrier, or with one for all warps: bar.sync 0 without a count."""
        if ins.opcode == YIELD:
            return False
        if not _is_barrier(ins) or ins.has("warp"):
            return True
        return (
            len(ins.operands) == 1 and not ins.has("arrive", "red") and self.e.analysis.constant(ins.operands[0]) == 0
        )

    def _memory(self) -> list[str]:
        """%tables of the CTA, %frame and %local memory of the warp, %cta.x, %cta.y, %cta.z."""
        frame = self.frame
        lines = [
            f"%tables.p = getelementptr i8, ptr %thread, i64 {abi.THREAD_FRAMES}",
            "%tables = load ptr, ptr %tables.p, align 8, !invariant.load !0",
            "%warp.i = zext i32 %warp to i64",
            f"%saved.i = mul i64 %warp.i, {frame.saved_nbytes if self.arrivals else 0}",
            f"%saved = add i64 %saved.i, {frame.saved}",
            "%frame = getelementptr i8, ptr %tables, i64 %saved",
            f"%local.p = getelementptr i8, ptr %thread, i64 {abi.THREAD_LOCAL}",
            "%local.0 = load i64, ptr %local.p, align 8, !invariant.load !0",
            f"%local.i = mul i64 %warp.i, {frame.local_nbytes if self.arrivals else 0}",
            "%local = add i64 %local.0, %local.i",
        ]
        for i, axis in enumerate("xyz"):
            if self.e.in_rows and axis == "x":
                lines.append("%cta.x = add i32 %state, 0")
                continue
            fixed = ", !invariant.load !0" if self.inlined else ""
            lines.append(f"%cta.{axis}.p = getelementptr i8, ptr %thread, i64 {abi.THREAD_CTA + 4 * i}")
            lines.append(f"%cta.{axis} = load i32, ptr %cta.{axis}.p, align 4{fixed}")
        return [f"  {line}" for line in lines]

    def _prologue(self) -> None:
        e = self.e
        for name, offset in (
            ("params", abi.LAUNCH_PARAMS),
            ("symbols", abi.LAUNCH_SYMBOLS),
            ("services", abi.LAUNCH_SERVICES),
        ):
            e.e(f"%{name}.p = getelementptr i8, ptr %launch, i64 {offset}")
            # As parameters can be read whatever lanes act, their loads may leave loops and branches.
            known = ", !dereferenceable !5" if name == "params" else ""
            e.e(f"%{name} = load ptr, ptr %{name}.p, align 8, !invariant.load !0{known}")
        e.e("%params.i = ptrtoint ptr %params to i64")
        e.e(f"%shared.p = getelementptr i8, ptr %thread, i64 {abi.THREAD_SHARED}")
        e.e("%shared.w = load i64, ptr %shared.p, align 8, !invariant.load !0")
        e.e(f"%shared = and i64 %shared.w, -{abi.SHARED_ALIGN}")  # already aligned: hides no misaligned offset
        emit_cluster.prologue(e)
        if e.state.counted:
            emit_count.prologue(e)
        self._note_warp()
        self._thread_numbers()
        if e.full_warps:
            e.e("%init = add i32 -1, 0")
        else:
            rest = e.v(f"sub i32 {e.thread_count}, {e.v(f'mul i32 %warp, {abi.WARP}')}")
            full = e.v(f"icmp uge i32 {rest}, {abi.WARP}")
            part = e.v(f"sub i32 {e.v(f'shl i32 1, {rest}')}, 1")
            e.e(f"%init = select i1 {full}, i32 -1, i32 {part}")

    def _note_warp(self) -> None:
        """Record which warp runs, for reports of faults. Atomic: no generated code reads it."""
        e = self.e
        place = e.v(f"getelementptr i8, ptr %thread, i64 {abi.THREAD_WARP}")
        e.e(f"store atomic i32 %warp, ptr {place} monotonic, align 4")

    def _thread_numbers(self) -> None:
        """%tid, lane 0's where the pattern is known; see uniformity.thread_shape."""
        e = self.e
        width, height, _ = e.block
        first = e.v(f"mul i32 %warp, {abi.WARP}")
        for axis, (below, count) in enumerate(((1, width), (width, height), (width * height, 0))):
            form, text = SCALAR, first
            if not thread_shape(axis, e.block).pattern.known:
                form, text = LANES, e.vector(Value(first, 32, linear(1)))
            text = e.v(f"udiv {form.int(32)} {text}, {form.const(below, 32)}")
            name = f"%tid.{'xyz'[axis]}"
            if count:
                e.e(f"{name} = urem {form.int(32)} {text}, {form.const(count, 32)}")
            else:
                e.e(f"{name} = add {form.int(32)} {text}, {form.const(0, 32)}")

    def _end(self) -> list[str]:
        if not self.spins:
            return ["done:", "  ret i32 0"]
        # Lanes wait at the header of a loop that yielded, and beyond it. If earlier blocks were entered from here too,
        # LLVM would keep all their masks.
        first = min(self.e.analysis.spin_loops & self.divergent)
        return [
            "done:", "  %y = load i1, ptr %yielding", "  br i1 %y, label %again, label %end",
            "again:", "  store i1 false, ptr %yielding", f"  br label %c{first}", "end:", "  ret i32 0",
        ]  # fmt: skip

    # ---- one block

    def _after(self, index: int) -> str:
        return f"%c{index + 1}" if index + 1 < len(self.blocks) else "%done"

    def _block(self, index: int) -> None:
        e, block = self.e, self.blocks[index]
        divergent = index in self.divergent
        e.label(f"c{index}")
        empty = e.v(f"icmp eq i32 {e.v(f'load i32, ptr %m{index}')}, 0")
        if self.spins and any(ins.opcode in _MEET for ins in block.all()):
            empty = e.v(f"or i1 {empty}, {e.v('load i1, ptr %yielding')}")
        e.e(f"br i1 {empty}, label %l{index}, label %b{index}")
        e.label(f"b{index}")
        mask = "-1" if e.full_warps else "%init"
        if divergent:
            mask = e.v(f"load i32, ptr %m{index}")
        e.e(f"store i32 0, ptr %m{index}")
        if divergent and self._doubled(index):
            e.e(f"br i1 {e.v(f'icmp eq i32 {mask}, -1')}, label %f{index}, label %s{index}")
            e.label(f"f{index}")  # all lanes are active, as in most iterations of most loops: no masks
            self._body(index, "-1")
            e.label(f"s{index}")
        self._body(index, mask)
        e.label(f"l{index}")
        self._latch(index)

    def _doubled(self, index: int) -> bool:
        block = self.blocks[index]
        small = len(block.instructions) <= _DOUBLED_INSTRUCTIONS and not self.e.is_large
        return small and self._often() and not block.is_barrier

    def _often(self) -> bool:
        """Whether code at this place is worth making for all lanes, too. Without AVX-512 masks are slow, and a kernel's
        warps are a loop themselves where one call runs them all."""
        return self.e.in_loop or (self.e.in_rows and not native.has_masked_gathers())

    def _body(self, index: int, mask: str) -> None:
        """A block's instructions and branches; code that does not branch elsewhere goes on at label l<index>."""
        e, block = self.e, self.blocks[index]
        e.current = mask
        e.bounds.clear()
        e.checked.clear()
        e.unread.clear()
        e.indices.clear()
        e.ready.clear()
        e.announced.clear()
        assert e.unannounced is None
        if e.state.counted:
            emit_count.block(e, block)
        e.pairs = emit_pairs.plan(e, block.instructions) if mask == "-1" else {}
        final = self._final_values(index)
        self._copy(final.pop(None, []))
        for tile in emit_tile.runs(e, block.instructions, self.spills.homes):
            if tile.steps:
                emit_tile.emit(e, tile)
            else:
                self._instruction(*tile.instructions)
            for ins in tile.instructions:
                self._copy(final.get(id(ins), []))
        e.guard = None
        if block.is_barrier:
            self._barrier(index)
        else:
            self._branch(index, index in self.divergent)

    def _instruction(self, ins: ir.Instruction) -> None:
        e = self.e
        if id(ins) in e.pairs:
            if (first := e.pairs[id(ins)]) is not None:
                emit_pairs.emit(e, first, ins)
            return
        found = emit_index.derive(e, ins)
        e.emit(ins, emit_absent.kept(e, ins))
        if found is not None:
            e.indices[found[0]] = found[1]

    def _latch(self, index: int) -> None:
        """Lanes at the header of a loop that ends here go round again, inner loops first."""
        e = self.e
        for header in sorted(self.latches.get(index, ()), reverse=True):
            waiting = e.v(f"icmp ne i32 {e.v(f'load i32, ptr %m{header}')}, 0")
            name = e.unique("latch")
            if self.spins:
                if header in e.analysis.spin_loops and header in self.divergent:
                    count = e.v(f"add i32 {e.v('load i32, ptr %spin')}, 1")
                    e.e(f"store i32 {count}, ptr %spin")
                    tired = e.v(f"icmp eq i32 {e.v(f'and i32 {count}, {_YIELD_PERIOD - 1}')}, 0")
                    leave = e.v(f"and i1 {tired}, {waiting}")
                    old = e.v("load i1, ptr %yielding")
                    e.e(f"store i1 {e.v(f'or i1 {old}, {leave}')}, ptr %yielding")
                    waiting = e.v(f"and i1 {waiting}, {e.v(f'xor i1 {leave}, true')}")
                e.e(f"br i1 {waiting}, label %{name}.back, label %{name}")
                e.label(f"{name}.back")
                e.e("store i1 false, ptr %yielding")
                e.e(f"br label %c{header}")
            else:
                e.e(f"br i1 {waiting}, label %b{header}, label %{name}")
            e.label(name)
        e.e(f"br label {self._after(index)}")

    def _send(self, target: int, lanes: str) -> None:
        """Lanes wait at `target`."""
        if target == EXIT:
            return
        e = self.e
        waiting = e.v(f"load i32, ptr %m{target}")
        e.e(f"store i32 {e.v(f'or i32 {waiting}, {lanes}')}, ptr %m{target}")

    def _jump(self, target: int) -> None:
        """All lanes of the warp go to `target` together."""
        e = self.e
        if target == EXIT:
            e.e("br label %done")
            return
        e.e(f"store i32 %init, ptr %m{target}")
        e.e(f"br label %b{target}")

    def _branch(self, index: int, divergent: bool) -> None:
        e, block = self.e, self.blocks[index]
        end, targets = block.terminator, block.successors
        if end is not None:
            e.instruction = end
            if e.state.counted and (end.opcode == "brx" or end.guard is not None):
                emit_count.branch(e)
        if end is not None and end.opcode == "brx":
            self._indexed(index, end, divergent)
            return
        if end is None or end.guard is None:
            if divergent:
                self._send(targets[0], e.current)
                e.e(f"br label %l{index}")
            else:
                self._jump(targets[0])
            return
        guard = e.read(ir.Not(end.guard) if end.guard_negated else end.guard, 1)
        taken, other = targets[0], targets[-1]
        if guard.uniform and not divergent:
            name = e.unique("u")
            e.e(f"br i1 {guard.text}, label %{name}.t, label %{name}.f")
            e.label(f"{name}.t")
            self._jump(taken)
            e.label(f"{name}.f")
            self._jump(other)
            return
        if e.current == "-1" and self._often() and end.guard in e.bounds:
            self._together(index, e.bounds[end.guard], taken, other, end.guard_negated)
        bits = e.v(
            f"sext i1 {guard.text} to i32" if guard.uniform else f"bitcast <{abi.WARP} x i1> {guard.text} to i32"
        )
        current = e.current
        sent = e.v(f"and i32 {current}, {bits}"), e.v(f"and i32 {current}, {e.v(f'xor i32 {bits}, -1')}")
        if e.state.counted:
            emit_count.split(e, *sent)
        self._send(taken, sent[0])
        self._send(other, sent[1])
        e.e(f"br label %l{index}")

    def _together(self, index: int, bound: Bound, taken: int, other: int, negated: bool) -> None:
        """One scalar comparison tells that all lanes stay below a loop's limit, as in all rounds but the last."""
        e, name = self.e, self.e.unique("together")
        e.e(f"br i1 {e.all_below(bound)}, label %{name}, label %{name}.not")
        e.label(name)
        self._send(taken if bound.holds != negated else other, "-1")
        e.e(f"br label %l{index}")
        e.label(f"{name}.not")

    def _indexed(self, index: int, end: ir.Instruction, divergent: bool) -> None:
        """brx.idx: lanes go to the target their index names; an index out of range ends the lane."""
        e, targets = self.e, self.blocks[index].successors
        choices = targets[:-1] if end.guard else targets
        value = e.vector(e.read(end.operands[0], 32))
        left = e.current
        if end.guard is not None:
            e.guard = e.read(ir.Not(end.guard) if end.guard_negated else end.guard, 1)
            left = e.mask_bits()
            e.guard = None
            self._send(targets[-1], e.v(f"and i32 {e.current}, {e.v(f'xor i32 {left}, -1')}"))
        for number, target in enumerate(choices):
            here = e.v(f"icmp eq <{abi.WARP} x i32> {value}, splat (i32 {number})")
            self._send(target, e.v(f"and i32 {left}, {e.v(f'bitcast <{abi.WARP} x i1> {here} to i32')}"))
        e.e(f"br label %l{index}")

    # ---- barriers

    def _yields(self, index: int) -> bool:
        end = self.blocks[index].terminator
        return end is not None and end.opcode == YIELD

    def _barrier(self, index: int) -> None:
        """Wait: see vgx_sim_schedule.c for the tables."""
        e, block = self.e, self.blocks[index]
        ins = block.terminator
        assert ins is not None
        e.instruction = ins
        if ins.opcode != YIELD:
            if e.state.watched:
                watch(e, ins, emit_watch.WAIT, emit_watch.elsewhere(e))
            if not self.lockstep:
                arrive(e, ins, wait=True)
        elif self.patient:
            self._go_on(index)
        target = block.successors[0]
        if index in self.divergent:
            self._send(target, e.current)
        e.e(f"br label %save{index}")

    def _go_on(self, index: int) -> None:
        """Yield only after PATIENCE rounds."""
        e, target = self.e, self.blocks[index].successors[0]
        count = e.v(f"add i32 {e.v('load i32, ptr %waited')}, 1")
        e.e(f"store i32 {count}, ptr %waited")
        tired = e.v(f"icmp eq i32 {e.v(f'and i32 {count}, {_PATIENCE - 1}')}, 0")
        name = e.unique("wait")
        e.e(f"br i1 {tired}, label %{name}.yield, label %{name}.on")
        e.label(f"{name}.on")
        if index in self.divergent:
            self._send(target, e.current)
            e.e(f"br label %l{index}")
        else:
            self._jump(target)
        e.label(f"{name}.yield")

    def _final_values(self, index: int) -> dict[int | None, list[spill.Place]]:
        """Where the registers that a barrier saves get their values: by the id of an instruction of the block that ends
        in it; None: before the block. Saved there, they need no processor's register for the rest of the block. A pair
        (Emitter.pairs) gets its values at its second."""
        if not self.blocks[index].is_barrier or index in self.divergent or self.e.is_large:
            return {}
        found: dict[str, int | None] = {}
        for ins in self.blocks[index].instructions:
            first = self.e.pairs.get(id(ins), ins)
            for each in (first, ins) if first is not None else ():
                found |= dict.fromkeys(map(self.e.slot, ir.defined(each)), id(ins))
        places: dict[int | None, list[spill.Place]] = {}
        for place in self.spills.saved[index]:
            places.setdefault(found.get(place[0]), []).append(place)
        self.early.add(index)
        return places

    def _copy(self, places: Sequence[spill.Place]) -> None:
        """Save registers."""
        e = self.e
        for slot, kind, offset in places:
            e.lines.append(_SAVED)
            text = e.v(f"load {kind}, ptr {slot}")
            e.e(f"store {kind} {text}, ptr {e.v(f'getelementptr i8, ptr %frame, i64 {offset}')}, align 4")
            e.lines.append(END)

    def _save(self, index: int, large: bool) -> list[str]:
        e = self.e
        outer, e.lines = e.lines, []
        e.label(f"save{index}")
        if not large and index not in self.early:
            self._copy(self.spills.saved[index])
        e.e(f"ret i32 {self.barriers.index(index) + 1}")
        lines, e.lines = e.lines, outer
        return lines

    def _resume(self, index: int, large: bool) -> list[str]:
        e = self.e
        outer, e.lines = e.lines, []
        e.label(f"resume{index}")
        for slot, kind, offset in () if large else self.spills.restored[index]:
            e.lines.append(f"{BEGIN}restored")
            text = e.v(f"load {kind}, ptr {e.v(f'getelementptr i8, ptr %frame, i64 {offset}')}, align 4")
            e.e(f"store {kind} {text}, ptr {slot}")
            e.lines.append(END)
        ins = self.blocks[index].terminator
        assert ins is not None
        if e.state.watched and ins.opcode != YIELD:
            emit_watch.sync(e, ins, emit_watch.RESUME)
        if ins.has("red"):
            e.instruction, e.position = ins, index
            e.current = "-1"
            reduction_result(e, ins)
        if index in self.divergent:
            e.e(f"br label %l{index}")
        else:
            self._jump(self.blocks[index].successors[0])
        lines, e.lines = e.lines, outer
        return lines


def _without_copies(lines: Sequence[str]) -> Iterator[str]:
    copies = False
    for line in lines:
        copies |= line == _SAVED
        if not copies:
            yield line
        elif line == END:
            copies = False


def _is_barrier(ins: ir.Instruction) -> bool:
    return ins.opcode in ("bar", "barrier")
