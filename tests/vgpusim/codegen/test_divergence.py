"""Random programs of nested ifs, loops, breaks, continues and early exits, against a thread-by-thread interpreter.

Registers are written on any path and read on any other; conditions are uniform or differ between lanes. There are no
barriers, shuffles or accesses to shared memory, so each thread's result depends on that thread alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import HEADER, run

VARIABLES = 5
THREADS = 45


@dataclass
class Writer:
    """Makes a program twice: as PTX, and as a tree that interpret() walks."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    labels: int = 0
    loops: list[tuple[str, str]] = field(default_factory=list)  # (continue, break)
    counters: int = 0

    def label(self) -> str:
        self.labels += 1
        return f"$L{self.labels}"

    def value(self) -> str:
        return self.rng.choice([f"%v{self.rng.randrange(VARIABLES)}", "%t", "%c", str(self.rng.randrange(1, 9))])

    def condition(self) -> tuple[str, str, int]:
        a, modulus, limit = self.value(), self.rng.randrange(2, 6), 0
        limit = self.rng.randrange(modulus)
        self.lines.append(f"rem.u32 %x, {a}, {modulus}; setp.le.u32 %p, %x, {limit};")
        return (a, str(modulus), limit)

    def block(self, depth: int) -> list[tuple[object, ...]]:
        return [self.statement(depth) for _ in range(self.rng.randrange(1, 4))]

    def statement(self, depth: int) -> tuple[object, ...]:
        rng = self.rng
        kind = rng.choice(["set", "set", "guarded", "if", "if", "loop", "break", "continue", "exit"])
        if kind in ("break", "continue") and self.loops:
            test = self.condition()
            self.lines.append(f"@%p bra {self.loops[-1][kind == 'break']};")
            return (kind, test)
        if kind == "exit" and rng.random() < 0.3:
            test = self.condition()
            self.lines.append("@%p bra $done;")
            return ("exit", test)
        if kind == "if" and depth:
            test = self.condition()
            other, end = self.label(), self.label()
            self.lines.append(f"@!%p bra {other};")
            then = self.block(depth - 1)
            self.lines.append(f"bra {end}; {other}:")
            otherwise = self.block(depth - 1) if rng.random() < 0.7 else []
            self.lines.append(f"{end}:")
            return ("if", test, then, otherwise)
        if kind == "loop" and depth:
            top, step, end = self.label(), self.label(), self.label()
            counter = f"%n{self.counters}"
            self.counters += 1
            bound = self.value()
            self.lines.append(f"mov.u32 {counter}, 0; rem.u32 %b{counter[2:]}, {bound}, 5; {top}:")
            self.lines.append(f"setp.ge.u32 %p, {counter}, %b{counter[2:]}; @%p bra {end};")
            self.loops.append((step, end))
            body = self.block(depth - 1)
            self.loops.pop()
            self.lines.append(f"{step}: add.u32 {counter}, {counter}, 1; bra {top}; {end}:")
            return ("loop", bound, body)
        target, a, b = rng.randrange(VARIABLES), self.value(), self.value()
        if kind == "guarded":
            test = self.condition()
            self.lines.append(f"@%p mad.lo.u32 %v{target}, {a}, 3, {b};")
            return ("guarded", test, target, a, b)
        self.lines.append(f"mad.lo.u32 %v{target}, {a}, 3, {b};")
        return ("set", target, a, b)


class Stop(Exception):
    pass


def interpret(program: list[tuple[object, ...]], state: dict[str, int]) -> None:
    def value(name: str) -> int:
        return state[name] if name[0] == "%" else int(name)

    def holds(test: tuple[str, str, int]) -> bool:
        return value(test[0]) % int(test[1]) <= test[2]

    def walk(block: list[tuple[object, ...]]) -> str:
        for statement in block:
            match statement:
                case ("set", target, a, b):
                    state[f"%v{target}"] = (value(a) * 3 + value(b)) & 0xFFFFFFFF
                case ("guarded", test, target, a, b):
                    if holds(test):
                        state[f"%v{target}"] = (value(a) * 3 + value(b)) & 0xFFFFFFFF
                case ("break" | "continue" as kind, test):
                    if holds(test):
                        return kind
                case ("exit", test):
                    if holds(test):
                        raise Stop
                case ("if", test, then, otherwise):
                    left = walk(then if holds(test) else otherwise)
                    if left:
                        return left
                case ("loop", bound, body):
                    for _ in range(value(bound) % 5):
                        if walk(body) == "break":
                            break
        return ""

    try:
        walk(program)
    except Stop:
        return


def check(seed: int) -> None:
    writer = Writer(random.Random(seed))
    program = writer.block(4) + writer.block(4)
    regs = "".join(f".reg .u32 %n{i}, %b{i};" for i in range(writer.counters))
    stores = "".join(f"st.global.u32 [%a+{4 * i}], %v{i};" for i in range(VARIABLES))
    body = "\n".join(writer.lines)
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 out) {{ .reg .u32 %v<{VARIABLES}>, %t, %c, %x, %g; .reg .pred %p;
.reg .u64 %o, %a; {regs}
mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; {"".join(f"mov.u32 %v{i}, {i + 1};" for i in range(VARIABLES))}
{body}
$done: mad.lo.u32 %g, %c, {THREADS}, %t; ld.param.u64 %o, [out]; mad.wide.u32 %a, %g, {4 * VARIABLES}, %o;
{stores} ret; }}"""
    )
    out = np.zeros((2, THREADS, VARIABLES), np.uint32)
    run(text, "k", 2, THREADS, [out])
    for cta in range(2):
        for thread in range(THREADS):
            state = {f"%v{i}": i + 1 for i in range(VARIABLES)} | {"%t": thread, "%c": cta}
            interpret(program, state)
            expected = [state[f"%v{i}"] for i in range(VARIABLES)]
            assert out[cta, thread].tolist() == expected, f"seed {seed}, thread {thread}:\n{body}"


@pytest.mark.parametrize("seed", range(40))
def test_random_program(seed: int) -> None:
    check(seed)
