"""What the pass of unset.py has added: predicates of values that nothing has written, and where they are used."""

from __future__ import annotations

from vgpusim.codegen import abi, emit_watch
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES, SCALAR
from vgpusim.ptx import ir

_WORDS = f"<{WARP} x i32>"


def _place(e: Emitter, offset: int) -> str:
    return e.v(f"getelementptr i8, ptr %services, i64 {offset}")


def _any_of(e: Emitter, flags: list[str]) -> str:
    text = flags[0]
    for other in flags[1:]:
        text = e.v(f"or {LANES.int(1)} {text}, {other}")
    return text


def _if_acting(e: Emitter, flags: str) -> tuple[str, str]:
    """Begin code for the case that acting lanes have a flag set: returns the name of the label after it, and those."""
    lanes = e.v(f"and i32 {e.v(f'bitcast {LANES.int(1)} {flags} to i32')}, {e.mask_bits()}")
    name = e.unique("unset")
    e.e(f"br i1 {e.v(f'icmp ne i32 {lanes}, 0')}, label %{name}.some, label %{name}, !prof !1")
    e.label(f"{name}.some")
    return name, lanes


def _tell(e: Emitter, ins: ir.Instruction, lanes: str, stores: bool, loads: list[int]) -> None:
    e.e(e.service(abi.SERVICE_UNSET, "void", ("ptr", "%thread"), ("ptr", emit_watch.site_of(e, ins, loads)),
                  ("i32", lanes), ("i32", str(int(stores)))))  # fmt: skip


@emits("unset begin")
def _begin(e: Emitter, ins: ir.Instruction) -> None:
    e.e(f"store {_WORDS} zeroinitializer, ptr {_place(e, abi.SERVICES_UNSET)}, align 8")


@emits("unset load")
def _load(e: Emitter, ins: ir.Instruction) -> None:
    target, nbytes = ins.operands
    assert isinstance(nbytes, ir.Imm)
    words = e.v(f"load {_WORDS}, ptr {_place(e, abi.SERVICES_UNSET)}, align 8")
    own = e.v(f"and {_WORDS} {words}, {LANES.const(nbytes.value, 32)}")
    e.put(target, LANES, e.v(f"icmp ne {_WORDS} {own}, zeroinitializer"), 1)


@emits("unset of")
def _of(e: Emitter, ins: ir.Instruction) -> None:
    target, *sources = ins.operands
    if not sources:
        e.put(target, SCALAR, SCALAR.const(0, 1), 1)
        return
    form, texts = e.sources(ins, sources, 1)
    text = texts[0]
    for other in texts[1:]:
        text = e.v(f"or {form.int(1)} {text}, {other}")
    e.put(target, form, text, 1)


@emits("unset pick")
def _pick(e: Emitter, ins: ir.Instruction) -> None:
    form, (first, second, chosen, choice) = e.sources(ins, ins.operands[1:], 1)
    kind = form.int(1)
    text = e.v(f"select {kind} {chosen}, {kind} {first}, {kind} {second}")
    e.put(ins.operands[0], form, e.v(f"or {kind} {text}, {choice}"), 1)


@emits("unset use")
def _use(e: Emitter, ins: ir.Instruction) -> None:
    flags: dict[int, list[ir.Operand]] = {}  # by load; -1: of the values that are used
    line = -1
    for operand in ins.operands:
        if isinstance(operand, ir.Imm):
            line = operand.value
        flags.setdefault(line, []).extend([] if isinstance(operand, ir.Imm) else [operand])
    name, lanes = _if_acting(e, _any_of(e, e.lanes(flags.pop(-1), 1)))
    rest = lanes
    sure = {line: predicates for line, predicates in flags.items() if predicates}
    for line, predicates in sure.items():
        loaded = e.v(f"bitcast {LANES.int(1)} {_any_of(e, e.lanes(predicates, 1))} to i32")
        _tell(e, ins, e.v(f"and i32 {lanes}, {loaded}"), False, [line])
        rest = e.v(f"and i32 {rest}, {e.v(f'xor i32 {loaded}, -1')}")
    _tell(e, ins, rest, False, [line for line in flags if line and line not in sure])
    e.e(f"br label %{name}")
    e.label(name)


@emits("unset store")
def _store(e: Emitter, ins: ir.Instruction) -> None:
    sizes, flags = ins.operands[::2], e.lanes(ins.operands[1::2], 1)
    name, lanes = _if_acting(e, _any_of(e, flags))
    _tell(e, ins, lanes, True, [])
    words = "zeroinitializer"
    for size, flag in zip(sizes, flags, strict=True):
        assert isinstance(size, ir.Imm)
        own = e.v(f"select {LANES.int(1)} {flag}, {_WORDS} {LANES.const(size.value, 32)}, {_WORDS} zeroinitializer")
        words = e.v(f"or {_WORDS} {words}, {own}")
    e.e(f"store {_WORDS} {words}, ptr {_place(e, abi.SERVICES_STORED_UNSET)}, align 8")
    e.e(f"br label %{name}")
    e.label(name)
