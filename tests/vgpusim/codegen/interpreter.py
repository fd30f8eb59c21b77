"""A slow, obvious interpreter of the compiler's IR: one thread at a time, one instruction at a time, in Python.

It reads the same blocks as the emitters, and shares none of their ideas: no lanes, no masks, no scalars for warps. It
refuses what it does not know. It also records the values of each register of each thread in each block, so that claims
of the uniformity analysis can be checked against what happened."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from fractions import Fraction

from vgpusim.codegen.cfg import EXIT, Graph
from vgpusim.codegen.program import Program
from vgpusim.ptx import ir

CANONICAL = {32: 0x7FFFFFFF}
_MOST_STEPS = 200_000


class Memory:
    """Bytes at real addresses: the target of a kernel's pointers."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, bytearray]] = []

    def add(self, address: int, data: bytes) -> bytearray:
        self.ranges.append((address, bytearray(data)))
        return self.ranges[-1][1]

    def place(self, address: int, nbytes: int) -> tuple[bytearray, int]:
        for start, data in self.ranges:
            if start <= address and address + nbytes <= start + len(data):
                return data, address - start
        raise IndexError(f"{nbytes} bytes at {address:#x}")


def signed(value: int, nbits: int) -> int:
    value &= (1 << nbits) - 1
    return value - (1 << nbits) if value >> (nbits - 1) else value


def to_float(bits: int, nbits: int) -> float:
    return float(struct.unpack("<f" if nbits == 32 else "<d", bits.to_bytes(nbits // 8, "little"))[0])


def round_to(value: Fraction, nbits: int, negative_zero: bool = False) -> int:
    """The bits nearest to an exact number, ties to even."""
    mantissa, least, largest, bias = (23, -149, 128, 127) if nbits == 32 else (52, -1074, 1024, 1023)
    sign = 1 << (nbits - 1) if value < 0 or (value == 0 and negative_zero) else 0
    size = abs(value)
    if size == 0:
        return sign
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = max(exponent - mantissa, least)
    scaled = size / Fraction(2) ** unit
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1):
        whole += 1
    if whole >> (mantissa + 1):
        whole, unit = whole >> 1, unit + 1
    if unit + mantissa >= largest:
        return sign | ((2 * bias + 1) << mantissa)
    if not whole >> mantissa:  # subnormal
        return sign | whole
    return sign | ((unit + mantissa + bias) << mantissa) + whole - (1 << mantissa)


class Thread:
    """Runs the blocks; yields at each barrier."""

    def __init__(
        self, program: Program, graph: Graph, params: bytes, memory: Memory, shared: bytearray, special: dict[str, int]
    ) -> None:
        self.program, self.graph, self.params, self.memory, self.shared = program, graph, params, memory, shared
        self.special = special
        self.registers: dict[ir.Reg, int] = {}
        self.local = bytearray(max(1, program.local_nbytes))
        self.given: dict[tuple[int, int], list[int]] = {}  # values of a register, by block and place in the block

    def run(self) -> Iterator[None]:
        index = steps = 0
        while index != EXIT:
            block = self.graph.blocks[index]
            for place, ins in enumerate(block.instructions):
                steps += 1
                if steps > _MOST_STEPS:
                    raise RuntimeError("the program does not end")
                if ins.guard is None or bool(self.registers.get(ins.guard, 0)) != ins.guard_negated:
                    self.execute(ins)
                    for reg in ir.defined(ins):
                        self.given.setdefault((index, place), []).append(self.registers[reg])
            end = block.terminator
            if end is None:
                index = block.successors[0]
                continue
            if block.is_barrier:
                if end.opcode in ("bar", "barrier"):
                    yield
                index = block.successors[0]
                continue
            taken = end.guard is None or bool(self.registers.get(end.guard, 0)) != end.guard_negated
            if end.opcode == "brx":
                index = block.successors[self.value(end.operands[0], 32)] if taken else block.successors[-1]
            else:
                index = block.successors[0 if taken else -1]

    # ---- operands

    def value(self, operand: ir.Operand, nbits: int) -> int:
        mask = (1 << nbits) - 1
        match operand:
            case ir.Reg():
                return self.registers.get(operand, 0) & mask
            case ir.Imm():
                return operand.value & mask
            case ir.FloatImm():
                return ir.narrow_float(operand.bits) if (operand.nbits, nbits) == (64, 32) else operand.bits
            case ir.Special():
                return self.special[operand.name] & mask
            case ir.Not():
                return 1 - self.value(operand.operand, 1)
            case ir.Symbol():
                return self.address(operand)[1] & mask
        raise NotImplementedError(operand)

    def put(self, target: ir.Operand, value: int, nbits: int, is_signed: bool = False) -> None:
        if isinstance(target, ir.Reg):
            wide = signed(value, nbits) if is_signed else value & ((1 << nbits) - 1)
            self.registers[target] = wide & ((1 << target.nbits) - 1)

    def address(self, operand: ir.Operand) -> tuple[str, int]:
        """(space of the variable, or "" if the address is in a register; the address)."""
        offset = 0
        if isinstance(operand, ir.Address):
            operand, offset = operand.base, operand.offset
        if isinstance(operand, ir.Symbol):
            offset += operand.offset
            for space, table in (("shared", self.program.shared), ("local", self.program.locals),
                                 ("param", self.program.params)):  # fmt: skip
                if operand.name in table:
                    return space, table[operand.name] + offset
            raise NotImplementedError(operand)
        return "", self.value(operand, 64) + offset

    def bytes_at(self, ins: ir.Instruction, operand: ir.Operand, nbytes: int) -> tuple[bytearray, int]:
        space, address = self.address(operand)
        space = space or (ins.one_of("shared", "local", "param", "global") or "global")
        if space == "global":
            return self.memory.place(address & ((1 << 64) - 1), nbytes)
        if space == "param":
            return bytearray(self.params), address
        return (self.shared, address & 0xFFFFFFFF) if space == "shared" else (self.local, address)

    # ---- instructions

    def execute(self, ins: ir.Instruction) -> None:
        function = getattr(self, f"do_{ins.opcode}", None)
        if function is None:
            raise NotImplementedError(ins.text)
        function(ins)

    def do_mov(self, ins: ir.Instruction) -> None:
        nbits = ir.TYPE_NBITS[ins.type]
        target, source = ins.operands
        if isinstance(source, ir.Vector):
            part = nbits // len(source.items)
            total = sum(self.value(item, part) << part * i for i, item in enumerate(source.items))
            self.put(target, total, nbits)
        elif isinstance(target, ir.Vector):
            part = nbits // len(target.items)
            whole = self.value(source, nbits)
            for i, item in enumerate(target.items):
                self.put(item, whole >> part * i, part)
        else:
            self.put(target, self.value(source, nbits), nbits)

    def do_cvta(self, ins: ir.Instruction) -> None:
        self.put(ins.operands[0], self.value(ins.operands[1], 64), 64)

    def do_ld(self, ins: ir.Instruction) -> None:
        nbytes = ir.TYPE_NBITS[ins.type] // 8
        targets = ins.operands[0].items if isinstance(ins.operands[0], ir.Vector) else (ins.operands[0],)
        data, at = self.bytes_at(ins, ins.operands[1], nbytes * len(targets))
        for index, target in enumerate(targets):
            start = at + index * nbytes
            word = int.from_bytes(data[start : start + nbytes], "little")
            self.put(target, word, nbytes * 8, ins.type[0] == "s")

    def do_st(self, ins: ir.Instruction) -> None:
        nbytes = ir.TYPE_NBITS[ins.type] // 8
        sources = ins.operands[1].items if isinstance(ins.operands[1], ir.Vector) else (ins.operands[1],)
        data, at = self.bytes_at(ins, ins.operands[0], nbytes * len(sources))
        for index, source in enumerate(sources):
            start = at + index * nbytes
            data[start : start + nbytes] = self.value(source, nbytes * 8).to_bytes(nbytes, "little")

    def do_selp(self, ins: ir.Instruction) -> None:
        nbits = ir.TYPE_NBITS[ins.type]
        self.put(ins.operands[0], self.value(ins.operands[1 if self.value(ins.operands[3], 1) else 2], nbits), nbits)

    def do_setp(self, ins: ir.Instruction) -> None:
        kind, name = ins.type, ins.modifiers[0]
        nbits = ir.TYPE_NBITS[kind]
        a, b = (self.value(o, nbits) for o in ins.operands[1:3])
        result = self.compare(name, kind, nbits, a, b)
        if len(ins.operands) > 3:
            other = bool(self.value(ins.operands[3], 1))
            result = {"and": result and other, "or": result or other, "xor": result != other}[ins.modifiers[1]]
        self.put(ins.operands[0], int(result), 1)

    def compare(self, name: str, kind: str, nbits: int, a: int, b: int) -> bool:
        x: float = a
        y: float = b
        if kind[0] == "s":
            x, y = signed(a, nbits), signed(b, nbits)
        elif kind[0] == "f":
            x, y = to_float(a, nbits), to_float(b, nbits)
            unordered = math.isnan(x) or math.isnan(y)
            if name in ("num", "nan"):
                return unordered == (name == "nan")
            if unordered:
                return name.endswith("u") and len(name) == 3
            name = name[:2]
        name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name)
        return {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[name]

    def integers(self, ins: ir.Instruction) -> tuple[int, list[int]]:
        """The width in bits, and the operands as signed or unsigned integers, by the instruction's type."""
        nbits = ir.TYPE_NBITS[ins.type]
        values = [self.value(o, nbits) for o in ins.operands[1:]]
        return nbits, [signed(v, nbits) for v in values] if ins.type[0] == "s" else values

    def arithmetic(self, ins: ir.Instruction) -> None:
        if ins.type[0] == "f":
            self.floating(ins)
            return
        nbits, v = self.integers(ins)
        match ins.opcode:
            case "add":
                result = v[0] + v[1]
            case "sub":
                result = v[0] - v[1]
            case "rem" if ins.type[0] == "u":
                result = v[0] % v[1] if v[1] else v[0]
            case "min" | "max":
                result = (min if ins.opcode == "min" else max)(v)
            case "abs":
                result = abs(v[0])
            case "neg":
                result = -v[0]
            case "and":
                result = v[0] & v[1]
            case "or":
                result = v[0] | v[1]
            case "xor":
                result = v[0] ^ v[1]
            case "not":
                result = ~v[0]
            case "mul" | "mad":
                product = v[0] * v[1]
                if ins.has("hi"):
                    product >>= nbits
                wide = 2 * nbits if ins.has("wide") else nbits
                extra = self.value(ins.operands[3], wide) if ins.opcode == "mad" else 0
                self.put(ins.operands[0], product + extra, wide)
                return
            case _:
                raise NotImplementedError(ins.text)
        self.put(ins.operands[0], result, nbits)

    do_add = do_sub = do_min = do_max = do_abs = do_neg = do_and = do_or = do_xor = do_not = do_mul = do_mad = (
        arithmetic
    )
    do_rem = arithmetic

    def do_shl(self, ins: ir.Instruction) -> None:
        nbits = ir.TYPE_NBITS[ins.type]
        amount = self.value(ins.operands[2], 32)
        self.put(ins.operands[0], self.value(ins.operands[1], nbits) << amount if amount < nbits else 0, nbits)

    def do_shr(self, ins: ir.Instruction) -> None:
        nbits = ir.TYPE_NBITS[ins.type]
        value = self.value(ins.operands[1], nbits)
        amount = min(self.value(ins.operands[2], 32), nbits)
        self.put(ins.operands[0], (signed(value, nbits) if ins.type[0] == "s" else value) >> amount, nbits)

    def do_popc(self, ins: ir.Instruction) -> None:
        self.put(ins.operands[0], self.value(ins.operands[1], ir.TYPE_NBITS[ins.type]).bit_count(), 32)

    def do_clz(self, ins: ir.Instruction) -> None:
        nbits = ir.TYPE_NBITS[ins.type]
        self.put(ins.operands[0], nbits - self.value(ins.operands[1], nbits).bit_length(), 32)

    def do_lop3(self, ins: ir.Instruction) -> None:
        a, b, c = (self.value(o, 32) for o in ins.operands[1:4])
        table = self.value(ins.operands[4], 8)
        bits = [table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1 for i in range(32)]
        self.put(ins.operands[0], sum(bit << i for i, bit in enumerate(bits)), 32)

    def do_cvt(self, ins: ir.Instruction) -> None:
        to, source = [m for m in ins.modifiers if m in ir.TYPE_NBITS]
        old, new = ir.TYPE_NBITS[source], ir.TYPE_NBITS[to]
        bits = self.value(ins.operands[1], old)
        if source[0] in "usb" and to[0] in "usb":
            self.put(ins.operands[0], signed(bits, old) if source[0] == "s" else bits, new, to[0] == "s")
        elif source[0] in "us" and to[0] == "f" and ins.has("rn"):
            self.put(ins.operands[0], round_to(Fraction(signed(bits, old) if source[0] == "s" else bits), new), new)
        elif source == "f32" and to == "s32" and ins.has("rzi"):
            x = to_float(bits, old)
            whole = 0 if math.isnan(x) else (math.copysign(1 << 40, x) if math.isinf(x) else math.trunc(x))
            self.put(ins.operands[0], int(min(max(whole, -(1 << 31)), (1 << 31) - 1)), new)
        else:
            raise NotImplementedError(ins.text)

    def floating(self, ins: ir.Instruction) -> None:
        """Execute add, sub, mul, fma, min, max, abs or neg, rounded to nearest."""
        nbits = ir.TYPE_NBITS[ins.type]
        if nbits != 32 or ins.has("rz", "rm", "rp", "sat", "ftz"):
            raise NotImplementedError(ins.text)
        values = [to_float(self.value(o, nbits), nbits) for o in ins.operands[1:]]
        self.put(ins.operands[0], _float_result(ins.opcode, values), nbits)

    do_fma = floating


def _float_result(opcode: str, v: list[float]) -> int:
    if opcode in ("min", "max"):
        numbers = [x for x in v if not math.isnan(x)]
        if not numbers:
            return CANONICAL[32]
        pick = min if opcode == "min" else max
        return _bits(pick(numbers, key=lambda x: (x, math.copysign(1, x))))
    if any(map(math.isnan, v)):
        return CANONICAL[32]
    if opcode in ("abs", "neg"):
        return _bits(abs(v[0]) if opcode == "abs" else -v[0])
    if opcode == "sub":
        v = [v[0], -v[1]]
    if any(map(math.isinf, v)):
        with_infinity = v[0] * v[1] + v[2] if opcode == "fma" else v[0] * v[1] if opcode == "mul" else v[0] + v[1]
        return CANONICAL[32] if math.isnan(with_infinity) else _bits(with_infinity)
    exact = [Fraction(x) for x in v]
    negative = math.copysign(1, v[0]) * math.copysign(1, v[1]) < 0  # whether a product is negative
    if opcode == "mul":
        return round_to(exact[0] * exact[1], 32, negative)
    if opcode == "fma":
        zero = negative and math.copysign(1, v[2]) < 0
        return round_to(exact[0] * exact[1] + exact[2], 32, zero and exact[0] * exact[1] == 0)
    return round_to(exact[0] + exact[1], 32, math.copysign(1, v[0]) < 0 and math.copysign(1, v[1]) < 0)


def _bits(x: float) -> int:
    return int.from_bytes(struct.pack("<f", x), "little")


def run(
    program: Program, graph: Graph, grid: int, block: int, params: bytes, memory: Memory, shared_nbytes: int
) -> list[list[Thread]]:
    """Run a one-dimensional grid, CTA by CTA. Returns the threads of each CTA."""
    ctas = []
    for cta in range(grid):
        shared = bytearray(max(1, shared_nbytes))
        threads = []
        for tid in range(block):
            special = {"%tid.x": tid, "%ntid.x": block, "%ctaid.x": cta, "%nctaid.x": grid, "%laneid": tid % 32}
            threads.append(Thread(program, graph, params, memory, shared, special))
        waiting = [thread.run() for thread in threads]
        while waiting:
            waiting = [thread for thread in waiting if next(thread, waiting) is None]
        ctas.append(threads)
    return ctas
