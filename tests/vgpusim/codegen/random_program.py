"""Random PTX: straight-line code, divergent branches, loops of differing length, guards, memory private to a thread,
and exchanges through shared memory. A kernel ends by storing all its registers."""

from __future__ import annotations

import random

SLOT_NBYTES = 128  # of each thread, in global memory: its results, then a scratch area
_RESULTS = 14 * 4
_INT = 6
_FLOAT = 4
_PREDICATES = 4
_TWO = ["add.u32", "sub.s32", "mul.lo.u32", "mul.hi.s32", "mul.hi.u32", "min.s32", "max.u32", "and.b32", "or.b32",
        "xor.b32", "shl.b32", "shr.s32", "shr.u32"]  # fmt: skip
_FLOAT_TWO = ["add.f32", "sub.f32", "mul.f32", "min.f32", "max.f32"]
_COMPARE = ["lt.s32", "le.u32", "eq.u32", "ne.u32", "gt.s32", "hs.u32"]
_FLOAT_COMPARE = ["lt.f32", "gtu.f32", "equ.f32", "num.f32", "ne.f32"]


class RandomProgram:
    def __init__(self, seed: int, shared: bool) -> None:
        self.rng = random.Random(seed)
        self.shared = shared
        self.lines: list[str] = []
        self.labels = 0

    def text(self, header: str) -> str:
        lines = [".visible .entry k(.param .u64 p, .param .u32 u)\n{",
                 ".reg .b32 %r<10>, %t<6>, %c<8>; .reg .f32 %f<4>; .reg .b64 %x<4>; .reg .pred %p<5>, %q<8>;",
                 ".shared .align 4 .b8 s[1024];",
                 "mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x; mad.lo.u32 %t3, %t1, %t2, %t0;",
                 f"ld.param.u64 %x0, [p]; mad.wide.u32 %x0, %t3, {SLOT_NBYTES}, %x0; ld.param.u32 %r0, [u];",
                 "mov.u32 %r1, %tid.x; mov.u32 %r2, %t1; ld.global.u32 %r3, [%x0]; ld.global.u32 %r4, [%x0+4];",
                 "ld.global.u32 %r5, [%x0+8]; mov.b32 %f0, %r4; cvt.rn.f32.s32 %f1, %r3; mov.f32 %f2, 0f3FC00000;",
                 "ld.global.f32 %f3, [%x0+12];"]  # fmt: skip
        lines += [f"setp.lt.u32 %p{i}, %r{i + 1}, {self.rng.randrange(1 << 32)};" for i in range(_PREDICATES)]
        self.block(3, True)
        lines += self.lines
        lines += [f"selp.u32 %t4, 1, 0, %p{i}; st.global.u32 [%x0+{40 + 4 * i}], %t4;" for i in range(_PREDICATES)]
        lines += [f"st.global.u32 [%x0+{4 * i}], %r{i};" for i in range(_INT)]
        lines += [f"st.global.f32 [%x0+{24 + 4 * i}], %f{i};" for i in range(_FLOAT)]
        return header + "\n".join([*lines, "ret;\n}\n"])

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def reg(self) -> str:
        return f"%r{self.rng.randrange(_INT)}"

    def source(self) -> str:
        return self.reg() if self.rng.random() < 0.7 else str(self.rng.choice([0, 1, 3, 31, 32, 255, 0x80000000, 77]))

    def fp(self) -> str:
        return f"%f{self.rng.randrange(_FLOAT)}"

    def pred(self) -> str:
        return f"%p{self.rng.randrange(_PREDICATES)}"

    def block(self, depth: int, top: bool = False) -> None:
        for _ in range(self.rng.randrange(2, 7)):
            choice = self.rng.random()
            if depth and choice < 0.18:
                self.branch(depth - 1)
            elif depth and choice < 0.28:
                self.loop(depth - 1)
            elif top and self.shared and choice < 0.4:
                self.exchange()
            else:
                self.statement()

    def statement(self) -> None:
        rng, guard = self.rng, ""
        if rng.random() < 0.2:
            guard = f"@{rng.choice(['', '!'])}{self.pred()} "
        match rng.randrange(12):
            case 0 | 1 | 2:
                text = f"{rng.choice(_TWO)} {self.reg()}, {self.reg()}, {self.source()};"
            case 3:
                text = f"mad.lo.s32 {self.reg()}, {self.reg()}, {self.source()}, {self.reg()};"
            case 4:
                text = f"{rng.choice(_FLOAT_TWO)} {self.fp()}, {self.fp()}, {self.fp()};"
            case 5:
                text = f"fma.rn.f32 {self.fp()}, {self.fp()}, {self.fp()}, {self.fp()};"
            case 6:
                text = f"setp.{rng.choice(_COMPARE)} {self.pred()}, {self.reg()}, {self.source()};"
            case 7:
                text = f"setp.{rng.choice(_FLOAT_COMPARE)} {self.pred()}, {self.fp()}, {self.fp()};"
            case 8:
                text = f"selp.b32 {self.reg()}, {self.reg()}, {self.source()}, {self.pred()};"
            case 9:
                text = rng.choice([f"mov.b32 {self.reg()}, {self.fp()};", f"mov.b32 {self.fp()}, {self.reg()};",
                                   f"mov.f32 {self.fp()}, {self.fp()};", f"popc.b32 {self.reg()}, {self.reg()};",
                                   f"cvt.rn.f32.s32 {self.fp()}, {self.reg()};", f"neg.f32 {self.fp()}, {self.fp()};",
                                   f"cvt.rzi.s32.f32 {self.reg()}, {self.fp()};"])  # fmt: skip
            case 10:
                at = f"and.b32 %t5, {self.reg()}, 15; mad.wide.u32 %x1, %t5, 4, %x0;"
                self.emit(f"{at} {guard}st.global.u32 [%x1+{_RESULTS}], {self.reg()};")
                return
            case _:
                at = f"and.b32 %t5, {self.source() if rng.random() < 0.3 else self.reg()}, 15;"
                at = at if "%r" in at else f"mov.u32 %t5, {rng.randrange(16)};"
                self.emit(f"{at} mad.wide.u32 %x1, %t5, 4, %x0; {guard}ld.global.u32 {self.reg()}, [%x1+{_RESULTS}];")
                return
        self.emit(guard + text)

    def branch(self, depth: int) -> None:
        other, end = self.label(), self.label()
        self.emit(f"@{self.rng.choice(['', '!'])}{self.pred()} bra {other};")
        self.block(depth)
        self.emit(f"bra {end};\n{other}:")
        if self.rng.random() < 0.7:
            self.block(depth)
        self.emit(f"{end}:")

    def loop(self, depth: int) -> None:
        """Emit a loop of at most 4 rounds, counted by a register; a predicate may leave it early."""
        head, end = self.label(), self.label()
        counter, flag = f"%c{depth}", f"%q{depth}"
        self.emit(f"and.b32 {counter}, {self.source() if self.rng.random() < 0.2 else self.reg()}, 3;")
        self.emit(f"{head}:")
        self.block(depth)
        if self.rng.random() < 0.3:
            self.emit(f"@{self.pred()} bra {end};")
        self.emit(f"setp.eq.u32 {flag}, {counter}, 0; sub.u32 {counter}, {counter}, 1; @!{flag} bra {head};\n{end}:")

    def exchange(self) -> None:
        mask = self.rng.choice([1, 5, 31, 32])
        self.emit(f"mov.u32 %t4, s; mad.lo.u32 %t4, %t0, 4, %t4; bar.sync 0; st.shared.u32 [%t4], {self.reg()};")
        self.emit(f"xor.b32 %t5, %t0, {mask}; rem.u32 %t5, %t5, %t2; mov.u32 %t4, s; mad.lo.u32 %t4, %t5, 4, %t4;")
        self.emit(f"bar.sync 0; ld.shared.u32 {self.reg()}, [%t4];")
