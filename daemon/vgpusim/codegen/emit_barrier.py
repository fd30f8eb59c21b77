"""CTA barriers: what an arriving warp counts, and the results of bar.red. Tables: see device/vgx_sim_schedule.c."""

from __future__ import annotations

from vgpusim.codegen import abi, emit_cluster, emit_watch
from vgpusim.codegen.emit_layout import BARRIER_WORDS
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES, SCALAR, Value
from vgpusim.ptx import ir

_LAUNCH_FAILED = 719  # CUDA_ERROR_LAUNCH_FAILED


@emits("bar", "barrier")
def barrier(e: Emitter, ins: ir.Instruction) -> None:
    """bar.warp.sync needs no code: lanes run in lockstep. Waiting CTA barriers end a block: see emit_control."""
    if ins.has("cluster"):  # an arrival; the wait is ir.CLUSTER_BARRIER
        emit_cluster.arrive(e)
        return
    if e.state.watched and ins.has("warp"):
        acting = e.mask_bits()
        emit_watch.sync(e, ins, emit_watch.IN_WARP, "0", _named(e, ins, acting), acting, emit_watch.elsewhere(e))
    if ins.has("arrive"):
        if e.state.watched:
            watch(e, ins, emit_watch.ARRIVE, "0")
        arrive(e, ins, wait=False)


def _named(e: Emitter, ins: ir.Instruction, acting: str) -> str:
    """The lanes for which a bar.warp.sync of the `acting` lanes waits: those in their masks, which may differ, without
    acting ones that their own mask leaves out."""
    kind, lanes = LANES.int(32), ", ".join(f"i32 {1 << lane}" for lane in range(abi.WARP))
    masks = e.vector(e.read(ins.operands[0], 32))
    own = e.v(f"icmp ne {kind} {e.v(f'and {kind} {masks}, <{lanes}>')}, zeroinitializer")
    acts = e.v(f"bitcast i32 {acting} to {LANES.int(1)}")
    used = e.v(f"select {LANES.int(1)} {acts}, {kind} {masks}, {kind} zeroinitializer")
    union = e.v(e.call("i32", f"llvm.vector.reduce.or.v{abi.WARP}i32", (kind, used)))
    left_out = e.v(f"xor i32 {e.v(f'bitcast {LANES.int(1)} {own} to i32')}, -1")
    left_out = e.v(f"and i32 {left_out}, {acting}")
    return e.v(f"and i32 {union}, {e.v(f'xor i32 {left_out}, -1')}")


def watch(e: Emitter, ins: ir.Instruction, what: int, others: str) -> None:
    """Report to the sanitizer that the warp arrives while its lanes `others` are elsewhere."""
    number, expected, _ = _operands(e, ins)
    emit_watch.sync(e, ins, what, number, expected, e.mask_bits(), others)


def _operands(e: Emitter, ins: ir.Instruction) -> tuple[str, str, ir.Operand | None]:
    """(barrier number, threads expected or "0" for all, predicate of a reduction)."""
    operands = list(ins.operands[1:] if ins.has("red") else ins.operands)
    predicate = operands.pop() if ins.has("red") else None
    values = []
    for operand in operands:
        value = e.read(operand, 32)
        if not value.uniform and predicate is not None and e.cluster is not None:
            raise e.unsupported("barrier number or count differs between lanes")
        values.append(value.text if value.uniform else _agreed(e, ins, value))
    number = "0"
    if values:
        number = values[0] if values[0] == str(ir.CLUSTER_BARRIER) else e.v(f"and i32 {values[0]}, 15")
    return number, values[1] if len(values) > 1 else "0", predicate


def _agreed(e: Emitter, ins: ir.Instruction, value: Value) -> str:
    """The common value of all active lanes, where it is not known at compile time (debug builds keep it in local
    memory); the launch fails if the lanes' values differ."""
    kind, vector, acting = f"<{abi.WARP} x i32>", e.vector(value), e.mask_bits()
    first = e.v(f"and i32 {e.v(e.call('i32', 'llvm.cttz.i32', ('i32', acting), ('i1', 'false')))}, {abi.WARP - 1}")
    chosen = e.v(f"extractelement {kind} {vector}, i32 {first}")
    other = e.v(f"icmp ne {kind} {vector}, {e.splat(chosen, 'i32')}")
    wrong = e.v(f"and i32 {e.v(f'bitcast <{abi.WARP} x i1> {other} to i32')}, {acting}")
    name = e.unique("agreed")
    e.e(f"br i1 {e.v(f'icmp eq i32 {wrong}, 0')}, label %{name}, label %{name}.not")
    e.label(f"{name}.not")
    message = e.string(f"{ins.text} with different operands in one warp in {e.program.name}, line {ins.line}")
    e.e(e.service(abi.SERVICE_FAIL, "void", ("i32", str(_LAUNCH_FAILED)), ("ptr", message), *abi.NO_THREAD))
    e.e(f"br label %{name}")
    e.label(name)
    return chosen


def _table_entry(e: Emitter, number: str, word: int) -> str:
    """A word of a barrier's row: 0 threads arrived, 1 expected, 2 and 3 true predicates and threads so far, 4 and 5 the
    same of the last completed round."""
    row = e.v(f"mul i32 {number}, 8")
    return e.v(f"getelementptr i32, ptr %tables, i32 {e.v(f'add i32 {row}, {word}')}")


def _voted(e: Emitter) -> str:
    """The word with the number of the bar.red that a warp waits at. In clusters the word records cluster arrivals."""
    return e.v(f"getelementptr i32, ptr %tables, i32 {e.v(f'add i32 %warp, {BARRIER_WORDS + 2 * e.warp_count}')}")


def _add_to(e: Emitter, slot: str, amount: str) -> None:
    old = e.v(f"load i32, ptr {slot}")
    e.e(f"store i32 {e.v(f'add i32 {old}, {amount}')}, ptr {slot}")


def arrive(e: Emitter, ins: ir.Instruction, wait: bool) -> None:
    """Count all lanes of the warp as arrived."""
    number, expected, predicate = _operands(e, ins)
    if e.cluster is not None and number == str(ir.CLUSTER_BARRIER):
        slot = e.v(f"getelementptr i32, ptr %tables, i32 {e.v(f'add i32 %warp, {BARRIER_WORDS}')}")
        e.e(f"store i32 {emit_cluster.waits_at(e)}, ptr {slot}")
        return
    count = _table_entry(e, number, 0)
    _add_to(e, count, str(abi.WARP))
    e.e(f"store i32 {expected}, ptr {_table_entry(e, number, 1)}")
    if predicate is not None:
        if e.cluster is None:
            e.e(f"store i32 {number}, ptr {_voted(e)}")
        (vector,) = e.lanes([predicate], 1)
        true = e.v(f"and i32 {e.v(f'bitcast <{abi.WARP} x i1> {vector} to i32')}, {e.current}")
        for word, bits in ((2, true), (3, e.current)):
            some = e.v(e.call("i32", "llvm.ctpop.i32", ("i32", bits)))
            _add_to(e, _table_entry(e, number, word), some)
    if wait:
        slot = e.v(f"getelementptr i32, ptr %tables, i32 {e.v(f'add i32 %warp, {BARRIER_WORDS}')}")
        e.e(f"store i32 {number}, ptr {slot}")


def reduction_result(e: Emitter, ins: ir.Instruction) -> None:
    """The destination of bar.red, read after the barrier."""
    number = e.v(f"load i32, ptr {_voted(e)}") if e.cluster is None else _operands(e, ins)[0]
    true = e.v(f"load i32, ptr {_table_entry(e, number, 4)}")
    if ins.has("popc"):
        e.put(ins.operands[0], SCALAR, true, 32)
    elif ins.has("and"):
        threads = e.v(f"load i32, ptr {_table_entry(e, number, 5)}")
        e.put(ins.operands[0], SCALAR, e.v(f"icmp eq i32 {true}, {threads}"), 1)
    else:
        e.put(ins.operands[0], SCALAR, e.v(f"icmp ne i32 {true}, 0"), 1)
