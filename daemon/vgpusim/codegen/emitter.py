"""The state of code generation for one kernel, and what every instruction emitter uses: reading operands, writing
registers, masks, memory addresses. LLVM IR is written as text.

A warp is one call of a function; a varying register is a <32 x iN>, a uniform or affine one the iN of lane 0. All
registers are integers; floating point is a bitcast at the use. Registers live in allocas that LLVM turns into
values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vgpusim.codegen import nan_payload, native
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.induction import Induction
from vgpusim.codegen.lane_pattern import UNIFORM, VARYING, linear
from vgpusim.codegen.lane_value import FP_NAMES, LANES, SCALAR, Bound, Form, Indexed, Value
from vgpusim.codegen.passes import State
from vgpusim.codegen.uniformity import Shape, local_stride, special_shape
from vgpusim.ptx import form as ptx_form
from vgpusim.ptx import ir
from vgpusim.ptx.error import InternalError, PtxError, UnsupportedInstruction

EmitFunction = Callable[["Emitter", ir.Instruction], None]
EMITTERS: dict[str, EmitFunction] = {}
_COUPLE = Form(2 * WARP)
_LARGE_INSTRUCTIONS = 1200
_ARITHMETIC = frozenset(["add", "sub", "mul", "mad", "fma"])
BEGIN, END = "  ; ", "  ;"  # around the text of an instruction, for outline.py

SpecialFunction = Callable[["Emitter", str], tuple[str, int]]
SPECIAL_REGISTERS: list[SpecialFunction] = []  # holds one function, which emit_special appends


def emits(*opcodes: str) -> Callable[[EmitFunction], EmitFunction]:
    """Register the emitter of some opcodes, or of those with a certain first modifier."""

    def register(function: EmitFunction) -> EmitFunction:
        for opcode in opcodes:
            assert opcode not in EMITTERS, opcode
            EMITTERS[opcode] = function
        return function

    return register


def slot_alignment(vector: bool) -> int:
    """Bytes; the alignment of every register's slot, in an alloca or in the frame (spill.py)."""
    return 64 if vector else 8


class Emitter:
    def __init__(self, state: State, flush_by_mxcsr: bool) -> None:
        self.state, self.flush_by_mxcsr = state, flush_by_mxcsr
        self.program, self.graph, self.live, self.analysis = state.program, state.graph, state.live, state.analysis
        self.block, self.cluster, self.deferred = state.block, state.cluster, state.deferred
        block = self.block
        self.thread_count = block[0] * block[1] * block[2]
        self.full_warps = self.thread_count % WARP == 0
        self.warp_count = (self.thread_count + WARP - 1) // WARP
        self.local_stride = local_stride(self.program)
        # A large kernel takes long to compile: none of its code is emitted twice, for all lanes and for some lanes.
        self.is_large = sum(len(block.instructions) for block in self.graph.blocks) > _LARGE_INSTRUCTIONS
        self.follows_sums = native.has_few_registers() and not self.is_large  # see emit_access.py
        self.in_rows = False  # one call runs CTAs of a row, not a warp
        self.lines: list[str] = []
        self._register_types: dict[ir.Reg, str] = {}
        self.allocas: dict[str, str] = {}  # name: type
        self.declarations: set[str] = set()
        self.helpers: dict[str, str] = {}
        self.strings: dict[str, str] = {}
        self.counter = 0
        self.position = 0  # of the block being emitted
        self.current = "-1"  # its lane mask, i32
        self.guard: Value | None = None
        self.instruction: ir.Instruction | None = None
        self.bounds: dict[ir.Reg, Bound] = {}  # the last values of predicates in the current block
        # Offsets from a register that this block has checked for all lanes: (alignment, offset % alignment, in reach).
        self.checked: dict[ir.Reg, tuple[int, int, bool]] = {}
        self.unread: dict[ir.Reg, None] = {}  # floating-point results that this block has not read (emit_access.py)
        self.indices: dict[ir.Reg, Indexed] = {}  # what this block has made of lanes' indices (emit_index.py)
        self.induction: Induction | None = None  # made when it is first needed
        self.fetched: set[ir.Reg] = set()  # addresses of records that have been prefetched
        self.ready: dict[
            tuple[object, ...], str
        ] = {}  # matrix fragments and pairs that this block has (emit_mma.py, emit_pairs.py)
        self.pairs: dict[int, ir.Instruction | None] = {}  # of this block (emit_pairs.py)
        self.couples: dict[ir.Reg, tuple[ir.Reg, ir.Reg]] = {}  # registers that share a slot (emit_pairs.py)
        self.known: dict[object, int] = {}  # numbers of registers that watched accesses go through (emit_watch.py)
        self.unannounced: tuple[str, str] | None = None  # a load that the next store announces (emit_watch.py)
        self.announced: dict[int, str] = {}  # by id: loads of this block that the sanitizer knows of (emit_watch.py)

    @property
    def in_loop(self) -> bool:
        return any(header <= self.position <= last for header, last in self.graph.loops)

    # ---- text

    def v(self, text: str) -> str:
        """Emit an instruction that gives a value; returns the value's name."""
        self.counter = number = self.counter + 1
        name = f"%t{number}"
        self.lines.append(f"  {name} = {text}")
        return name

    def e(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def unique(self, hint: str) -> str:
        self.counter += 1
        return f"{hint}{self.counter}"

    def call(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        """Text of a call to an intrinsic or libm function, which gets declared. Arguments are (type, value)."""
        self.declarations.add(f"declare {result} @{name}({', '.join(kind for kind, _ in arguments)})")
        return f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})"

    def stack(self, name: str, kind: str) -> str:
        """A 64-byte aligned stack slot, shared by all users of the same name."""
        self.allocas[name] = kind
        return f"%{name}"

    def helper(self, name: str, text: str) -> None:
        """Add an internal function once."""
        self.helpers.setdefault(name, text)

    def string(self, text: str) -> str:
        """A NUL-terminated constant; returns its global's name."""
        return self.strings.setdefault(text, f"@.s{len(self.strings)}")

    def unsupported(self, reason: str = "") -> UnsupportedInstruction:
        ins = self.instruction
        assert ins is not None
        return UnsupportedInstruction(self.program.name, ins.text, ins.line, reason)

    def malformed(self, reason: str) -> PtxError:
        ins = self.instruction
        assert ins is not None
        return PtxError(f"{self.program.name}: line {ins.line}: `{ins.text}`: {reason}")

    # ---- values

    def shape(self, reg: ir.Reg) -> Shape:
        return self.analysis.shapes[reg]

    def slot(self, reg: ir.Reg) -> str:
        couple = self.couples.get(reg)
        return f'%"r {reg.name}"' if couple is None else f'%"r {couple[0].name} {couple[1].name}"'

    def slot_type(self, reg: ir.Reg) -> str:
        return _COUPLE.int(reg.nbits) if reg in self.couples else self.register_type(reg)

    def register_type(self, reg: ir.Reg) -> str:
        known = self._register_types.get(reg)
        if known is None:
            form = SCALAR if self.shape(reg).pattern.known else LANES
            known = self._register_types[reg] = form.int(reg.nbits)
        return known

    def _load(self, reg: ir.Reg) -> str:
        """The content of a register."""
        kind = self.slot_type(reg)
        text = self.v(f"load {kind}, ptr {self.slot(reg)}, align {slot_alignment(kind.startswith('<'))}")
        if reg not in self.couples:
            return text
        order = ", ".join(f"i32 {2 * lane + self.couples[reg].index(reg)}" for lane in range(WARP))
        return self.v(f"shufflevector {kind} {text}, {kind} poison, <{WARP} x i32> <{order}>")

    def _store(self, reg: ir.Reg, text: str) -> None:
        kind, own = self.slot_type(reg), self.register_type(reg)
        if reg in self.couples:
            wide = ", ".join(f"i32 {lane // 2}" for lane in range(2 * WARP))
            sides = ", ".join(f"i1 {int(lane % 2 == self.couples[reg].index(reg))}" for lane in range(2 * WARP))
            text = self.v(f"shufflevector {own} {text}, {own} poison, <{2 * WARP} x i32> <{wide}>")
            old = self.v(f"load {kind}, ptr {self.slot(reg)}, align 64")
            text = self.v(f"select <{2 * WARP} x i1> <{sides}>, {kind} {text}, {kind} {old}")
        self.e(f"store {kind} {text}, ptr {self.slot(reg)}, align {slot_alignment(kind.startswith('<'))}")

    def forget(self, reg: ir.Reg) -> None:
        """Drop what this block knows of a register, which gets another value."""
        self.bounds.pop(reg, None)
        self.checked.pop(reg, None)
        self.indices.pop(reg, None)
        for key in [key for key in self.ready if reg in key] if self.ready else ():
            del self.ready[key]

    def splat(self, text: str, kind: str) -> str:
        one = self.v(f"insertelement <{WARP} x {kind}> poison, {kind} {text}, i32 0")
        return self.v(
            f"shufflevector <{WARP} x {kind}> {one}, <{WARP} x {kind}> poison, <{WARP} x i32> zeroinitializer"
        )

    def joined(self, parts: Sequence[str], nbits: int, lanes: int) -> str:
        """One vector of several of that many elements each, in order; their number is a power of two."""
        parts = list(parts)
        while len(parts) > 1:
            kind, both = f"<{lanes} x i{nbits}>", ", ".join(f"i32 {k}" for k in range(2 * lanes))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.v(f"shufflevector {kind} {a}, {kind} {b}, <{2 * lanes} x i32> <{both}>") for a, b in pairs]
            lanes *= 2
        return parts[0]

    def constants(self, nbits: int, values: Sequence[int]) -> str:
        """A constant vector of integers."""
        half = 1 << (nbits - 1)
        wrapped = ((value + half) % (2 * half) - half for value in values)
        return "<" + ", ".join(f"i{nbits} {value}" for value in wrapped) + ">"

    def vector(self, value: Value) -> str:
        """The value on all lanes."""
        if not value.pattern.known:
            return value.text
        text, nbits = value.text, value.nbits
        wide = LANES.const(int(text), nbits) if text.lstrip("-").isdigit() else self.splat(text, f"i{nbits}")
        if value.uniform:
            return wide
        return self.v(f"add {LANES.int(nbits)} {wide}, {self.constants(nbits, value.pattern.offsets())}")

    def resize(self, form: Form, text: str, old: int, new: int, signed: bool = False) -> str:
        if old == new:
            return text
        if text.lstrip("-").isdigit() and not form.vector:
            number = int(text) & ((1 << old) - 1)
            if signed and number >> (old - 1):
                number -= 1 << old
            return form.const(number, new)
        kind = "trunc" if new < old else "sext" if signed else "zext"
        return self.v(f"{kind} {form.int(old)} {text} to {form.int(new)}")

    def read(self, operand: ir.Operand, nbits: int, any_nan: bool = False) -> Value:
        """The value of a source operand as an integer of `nbits`. `any_nan`: the payload of an f32 NaN does not matter
        to the reader."""
        match operand:
            case ir.Imm():
                return Value(SCALAR.const(operand.value, nbits), nbits, UNIFORM)
            case ir.FloatImm():
                bits = operand.bits
                if operand.nbits == 64 and nbits == 32:
                    bits = ir.narrow_float(bits)
                elif operand.nbits != nbits:
                    raise self.malformed("floating-point constant of another width")
                return Value(SCALAR.const(bits, nbits), nbits, UNIFORM)
            case ir.Reg():
                if self.is_constant(operand):
                    return self._constant(operand, nbits)
                pattern = self.shape(operand).pattern
                form = SCALAR if pattern.known else LANES
                text = self._load(operand)
                if operand in self.deferred and not any_nan:
                    text = self.canonical_nan(form, text, "f32")
                return Value(self.resize(form, text, operand.nbits, nbits), nbits, pattern)
            case ir.Special():
                return self._special(operand.name, nbits)
            case ir.Symbol():
                return self._symbol(operand, nbits)
            case ir.Not():
                value = self.read(operand.operand, 1)
                text = self.v(f"xor {value.form.int(1)} {value.text}, {value.form.const(1, 1)}")
                return Value(text, 1, value.pattern)
        raise self.malformed("operand is not a value")

    def is_constant(self, reg: ir.Reg) -> bool:
        """Whether reads of a register use its constant (constants.py), so that nothing needs to save it."""
        return reg in self.state.constants and self.shape(reg).uniform

    def _constant(self, reg: ir.Reg, nbits: int) -> Value:
        value = self.read(self.state.constants[reg], reg.nbits)
        return Value(self.resize(value.form, value.text, reg.nbits, nbits), nbits, value.pattern)

    def _symbol(self, symbol: ir.Symbol, nbits: int) -> Value:
        """The address of a variable in its own space; local and param addresses are real ones."""
        program = self.program
        if symbol.name in program.shared:
            text = self.own_shared(program.shared[symbol.name] + symbol.offset)
            return Value(self.resize(SCALAR, text, 32, nbits), nbits, UNIFORM)
        if symbol.name in program.locals:
            text = self.v(f"add i64 %local, {program.locals[symbol.name] + symbol.offset}")
            return Value(self.resize(SCALAR, text, 64, nbits), nbits, linear(self.local_stride))
        if symbol.name in program.params:
            text = self.v(f"add i64 %params.i, {program.params[symbol.name] + symbol.offset}")
            return Value(self.resize(SCALAR, text, 64, nbits), nbits, UNIFORM)
        if symbol.name in program.symbols:
            place = self.v(f"getelementptr i64, ptr %symbols, i64 {program.symbols.index(symbol.name)}")
            text = self.v(f"load i64, ptr {place}, align 8, !invariant.load !0")
            if symbol.offset:
                text = self.v(f"add i64 {text}, {symbol.offset}")
            return Value(self.resize(SCALAR, text, 64, nbits), nbits, UNIFORM)
        raise self.unsupported(f"address of {symbol.name}")

    def own_shared(self, offset: int) -> str:
        """A place in this CTA's shared memory, i32: an offset into the window, which a cluster's CTAs share."""
        return str(offset) if self.cluster is None else self.v(f"add i32 %own, {offset}")

    def _special(self, name: str, nbits: int) -> Value:
        shape = special_shape(name, self.block)
        text, width = SPECIAL_REGISTERS[0](self, name)
        form = SCALAR if shape.pattern.known else LANES
        return Value(self.resize(form, text, width, nbits), nbits, shape.pattern)

    def sources(
        self, ins: ir.Instruction, operands: Sequence[ir.Operand], *nbits: int, any_nan: bool = False
    ) -> tuple[Form, list[str]]:
        """Read operands, all as scalars or all as vectors, whichever the destination needs. The last width repeats."""
        widths = [*nbits, *([nbits[-1]] * len(operands))][: len(operands)]
        values = [self.read(operand, width, any_nan) for operand, width in zip(operands, widths, strict=True)]
        targets = ir.defined(ins)
        if targets and all(self.shape(reg).pattern.known for reg in targets):
            assert all(value.pattern.known for value in values), ins
            return SCALAR, [value.text for value in values]
        if all(value.uniform for value in values):
            return SCALAR, [value.text for value in values]
        return LANES, [self.vector(value) for value in values]

    def lanes(self, operands: Sequence[ir.Operand], *nbits: int) -> list[str]:
        """Read operands as vectors."""
        widths = [*nbits, *([nbits[-1]] * len(operands))][: len(operands)]
        return [self.vector(self.read(o, width)) for o, width in zip(operands, widths, strict=True)]

    def put(self, target: ir.Operand | None, form: Form, text: str, nbits: int, signed: bool = False) -> None:
        """Write a register under the guard and the lane mask. A narrower value is sign- or zero-extended."""
        if target is None or isinstance(target, ir.Sink):
            return
        if not isinstance(target, ir.Reg):
            raise self.malformed("destination is not a register")
        if (target.nbits == 1) != (nbits == 1):
            raise self.malformed("destination has the wrong type")
        text = self.resize(form, text, nbits, target.nbits, signed)
        self.forget(target)
        kind = self.register_type(target)
        if self.shape(target).pattern.known:
            assert not form.vector, (self.instruction, target)
            if self.guard is not None:
                assert self.guard.uniform
                old = self._load(target)
                text = self.v(f"select i1 {self.guard.text}, {kind} {text}, {kind} {old}")
            self._store(target, text)
            return
        if not form.vector:
            text = self.vector(Value(text, target.nbits, UNIFORM))
        mask = None
        if self.position in self.analysis.divergent and self.analysis.conflicts >> self.live.index[target] & 1:
            mask = self.mask()
        elif self.guard is not None:
            mask = self.vector(self.guard)
        if mask is not None:
            old = self._load(target)
            text = self.v(f"select <{WARP} x i1> {mask}, {kind} {text}, {kind} {old}")
        self._store(target, text)

    # ---- floating point

    def to_fp(self, form: Form, text: str, kind: str) -> str:
        """Reinterpret an integer of the type's width as half, float or double."""
        nbits = ir.TYPE_NBITS[kind]
        return self.v(f"bitcast {form.int(nbits)} {text} to {form.of(FP_NAMES[kind])}")

    def from_fp(self, form: Form, text: str, kind: str) -> str:
        return self.v(f"bitcast {form.of(FP_NAMES[kind])} {text} to {form.int(ir.TYPE_NBITS[kind])}")

    @property
    def defers_nan(self) -> bool:
        """Whether the readers of the current instruction's result make its NaN canonical."""
        targets = ir.defined(self.instruction) if self.instruction is not None else []
        return bool(targets) and all(reg in self.deferred for reg in targets)

    def canonical_nan(self, form: Form, bits: str, kind: str) -> str:
        """The bits of a float with every NaN the one that a GPU makes."""
        nbits, exponent = ir.TYPE_NBITS[kind], {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}[kind]
        magnitude = self.v(f"and {form.int(nbits)} {bits}, {form.const((1 << (nbits - 1)) - 1, nbits)}")
        nan = self.v(f"icmp ugt {form.int(nbits)} {magnitude}, {form.const(exponent, nbits)}")
        if kind == "f32":  # one instruction on most processors
            x = self.to_fp(form, bits, kind)
            nan = self.v(f"fcmp uno {form.of('float')} {x}, {x}")
        canonical = form.const(nan_payload.CANONICAL_NAN[kind], nbits)
        return self.v(f"select {form.int(1)} {nan}, {form.int(nbits)} {canonical}, {form.int(nbits)} {bits}")

    def fcall(self, form: Form, name: str, element: str, *arguments: str) -> str:
        """Call llvm.<name> on floating-point values of one type."""
        kind = form.of(element)
        return self.v(self.call(kind, f"llvm.{name}.{form.suffix(element)}", *((kind, a) for a in arguments)))

    def icall(self, form: Form, name: str, nbits: int, *arguments: str, flag: bool = False) -> str:
        """Call llvm.<name> on integers; `flag` adds the `i1 false` that abs, ctlz and cttz take."""
        kind = form.int(nbits)
        extra = [("i1", "false")] if flag else []
        return self.v(
            self.call(kind, f"llvm.{name}.{form.suffix(f'i{nbits}')}", *((kind, a) for a in arguments), *extra)
        )

    # ---- lane masks

    def mask(self) -> str | None:
        """Lanes an instruction acts on, guard included, as <32 x i1>; None when that is all of them."""
        mask = None
        if self.current != "-1":
            mask = self.lanes_of(self.current)
        if self.guard is not None:
            guard = self.vector(self.guard)
            mask = guard if mask is None else self.v(f"and <{WARP} x i1> {mask}, {guard}")
        return mask

    def lanes_of(self, bits: str) -> str:
        """The lanes whose bits an i32 has, as <32 x i1>. Without AVX-512, LLVM would take each bit apart by itself."""
        if native.has_masked_gathers():
            return self.v(f"bitcast i32 {bits} to {LANES.int(1)}")
        own = self.constants(32, [1 << lane for lane in range(WARP)])
        chosen = self.v(f"and {LANES.int(32)} {self.splat(bits, 'i32')}, {own}")
        return self.v(f"icmp eq {LANES.int(32)} {chosen}, {own}")

    def all_or_mask(self) -> str:
        return self.mask() or "splat (i1 true)"

    def all_below(self, bound: Bound) -> str:
        """Whether the index is below the limit in all lanes, as a scalar: the highest lane's is, and none wrapped."""
        nbits, signed = bound.index.nbits, bound.relation[0]
        highest = str(max(bound.index.pattern.offsets()))
        kind = f"i{nbits}"
        call = self.call(
            f"{{{kind}, i1}}", f"llvm.{signed}add.with.overflow.{kind}", (kind, bound.index.text), (kind, highest)
        )
        pair = self.v(call)
        last, wrapped = (self.v(f"extractvalue {{{kind}, i1}} {pair}, {part}") for part in (0, 1))
        below = self.v(f"icmp {bound.relation} {kind} {last}, {bound.limit.text}")
        return self.v(f"and i1 {below}, {self.v(f'xor i1 {wrapped}, true')}")

    def mask_bits(self) -> str:
        """The same as an i32."""
        if self.guard is None:
            return self.current
        if self.guard.uniform:
            wide = self.v(f"sext i1 {self.guard.text} to i32")
        else:
            wide = self.v(f"bitcast <{WARP} x i1> {self.guard.text} to i32")
        return wide if self.current == "-1" else self.v(f"and i32 {wide}, {self.current}")

    def if_any(self, body: Callable[[], None]) -> None:
        """Run `body` only when some lane acts; a guarded scalar memory access needs it."""
        if self.guard is None:
            body()
            return
        some = self.v(f"icmp ne i32 {self.mask_bits()}, 0")
        name = self.unique("any")
        self.e(f"br i1 {some}, label %{name}, label %{name}.end")
        self.label(name)
        body()
        self.e(f"br label %{name}.end")
        self.label(f"{name}.end")

    def each_lane(self, body: Callable[[str], None]) -> None:
        """A loop over the acting lanes; `body` gets the lane number, an i32."""
        name = self.unique("lane")
        bits = self.mask_bits()
        self.e(f"br label %{name}.pre")
        self.label(f"{name}.pre")
        self.e(f"br label %{name}")
        self.label(name)
        self.e(f"%{name}.m = phi i32 [ {bits}, %{name}.pre ], [ %{name}.n, %{name}.next ]")
        none = self.v(f"icmp eq i32 %{name}.m, 0")
        self.e(f"br i1 {none}, label %{name}.end, label %{name}.body")
        self.label(f"{name}.body")
        lane = self.v(self.call("i32", "llvm.cttz.i32", ("i32", f"%{name}.m"), ("i1", "true")))
        body(lane)
        self.e(f"br label %{name}.next")
        self.label(f"{name}.next")
        less = self.v(f"sub i32 %{name}.m, 1")
        self.e(f"%{name}.n = and i32 %{name}.m, {less}")
        self.e(f"br label %{name}")
        self.label(f"{name}.end")

    def spread(self, name: str, text: str, nbits: int) -> Callable[[str], str]:
        """Put a vector on the stack; the result reads the element of a lane."""
        place = self.stack(f"{name}.{nbits}", f"[{WARP} x i{nbits}]")
        self.e(f"store <{WARP} x i{nbits}> {text}, ptr {place}, align 64")

        def element(lane: str) -> str:
            at = self.v(f"getelementptr i{nbits}, ptr {place}, i32 {lane}")
            return self.v(f"load i{nbits}, ptr {at}")

        return element

    # ---- services

    def service(self, offset: int, result: str, *arguments: tuple[str, str]) -> str:
        """Text of a call of a member of vgx_sim_services."""
        place = self.v(f"getelementptr i8, ptr %services, i64 {offset}")
        function = self.v(f"load ptr, ptr {place}, align 8, !invariant.load !0")
        listed = ", ".join(f"{kind} {value}" for kind, value in (("ptr", "%services"), *arguments))
        return f"call {result} {function}({listed})"

    def thread_place(self, lane: str) -> list[tuple[str, str]]:
        """The arguments that tell a service which thread calls: its CTA, in memory, and its number there."""
        thread = self.v(f"add i32 {self.v(f'mul i32 %warp, {WARP}')}, {lane}")
        return [("ptr", self.cta_place()), ("i32", thread)]

    def cta_place(self) -> str:
        """The CTA's number in the grid, in memory."""
        cta = self.stack("cta.place", "[3 x i32]")
        for axis, name in enumerate("xyz"):
            self.e(f"store i32 %cta.{name}, ptr {self.v(f'getelementptr i32, ptr {cta}, i32 {axis}')}")
        return cta

    def _note_unread(self, ins: ir.Instruction) -> None:
        for reg in ir.used(ins):
            self.unread.pop(reg, None)
        if ins.opcode in _ARITHMETIC and ins.type in FP_NAMES:
            self.unread |= dict.fromkeys(ir.defined(ins))

    def emit(self, ins: ir.Instruction, kept: Value | None = None) -> None:
        """Emit one instruction; `kept`: uniform, whether it is executed."""
        self.instruction = ins
        emitter = EMITTERS.get(".".join((ins.opcode, *ins.modifiers[:1]))) or EMITTERS.get(ins.opcode)
        if emitter is None:
            raise self.unsupported()
        unknown = ptx_form.unknown_modifier(ins)
        if unknown is not None:
            raise self.unsupported(f"unknown modifier .{unknown}")
        self.guard = None
        if ins.guard is not None:
            self.guard = self.read(ir.Not(ins.guard) if ins.guard_negated else ins.guard, 1)
        if kept is not None and self.guard is None:
            self.guard = kept
        elif kept is not None and self.guard is not None:
            both = self.v(f"and {LANES.int(1)} {self.vector(self.guard)}, {self.vector(kept)}")
            self.guard = Value(both, 1, VARYING)
        self.lines.append(f"{BEGIN}{ins.line}: {ins.text}")
        if self.follows_sums:
            self._note_unread(ins)
        try:
            emitter(self, ins)
        except PtxError:
            raise
        except Exception as error:  # an internal error: images are checked before they are used
            raise InternalError(self.program.name, f"line {ins.line}, `{ins.text}`", error) from error
        self.lines.append(END)
