"""Random statements of PTX over registers of every width: what random_kernel.py makes programs of.

Whatever the PTX ISA leaves open stays out: approximate functions, additions and products that a compiler may fuse,
sources outside a membermask, and, unless `raw`, bits of NaNs (a NaN is replaced before its bits can be seen)."""

from __future__ import annotations

import functools
import lzma
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from tests.vgpusim.codegen.card_forms import Form

_DATA = Path(__file__).parent / "data" / "program-forms.tsv.xz"
_T = TypeVar("_T")
COUNTS = {"h": 4, "r": 6, "l": 4, "f": 4, "d": 3, "p": 4}
TYPES = {"h": "b16", "r": "b32", "l": "b64", "f": "f32", "d": "f64", "p": "pred"}
NBITS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64}
SHARED_NBYTES, SCRATCH_NBYTES = 16, 64  # of each thread
SCRATCH, LOCAL = 128, 192  # offsets in a thread's part of global memory
_HALF = re.compile(r"\bb?f16(x2)?\b")
_IMMEDIATE = {"add", "sub", "mul", "mad", "and", "or", "xor", "shl", "shr", "min", "max", "bfe", "bfi", "prmt", "lop3",
              "shf", "sad", "dp4a", "mul24", "mad24"}  # fmt: skip
_INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
_EDGES = (0, 1, 2, 3, 7, 15, 16, 31, 32, 33, 63, 64, 255, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_ATOMICS = (("b32", ("and", "or", "xor", "exch", "cas")), ("u32", ("add", "inc", "dec", "min", "max")),
            ("s32", ("add", "min", "max")), ("b64", ("and", "or", "xor", "exch", "cas")),
            ("u64", ("add", "min", "max")), ("s64", ("min", "max")), ("b16", ("cas",)))  # fmt: skip
_FLOAT_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


@functools.cache
def pool() -> tuple[tuple[float, tuple[Form, ...]], ...]:
    """The forms by opcode, with how often an opcode is chosen, summed up to it. The file is a copy of the forms that
    an H200 took on 2026-11-29: a seed's program must not change when forms are added."""
    found: dict[str, list[Form]] = {}
    for line in lzma.decompress(_DATA.read_bytes()).decode().splitlines():
        text, out, operands = line.split("\t")
        found.setdefault(opcode(text), []).append(Form(text, "", "", out, tuple(operands)))
    total, summed = 0.0, []
    for name, forms in sorted(found.items()):
        total += len(forms) ** 0.5 / (6 if name[0] == "v" else 1)
        summed.append((total, tuple(forms)))
    return tuple(summed)


def opcode(text: str) -> str:
    inner = re.sub(r"\.reg [^;]*;", "", text).strip("{ ")
    return inner.split()[0].split(".")[0]


def half(text: str) -> str | None:
    """The type of a form's result, if that is a half or a pair of halves."""
    if text.startswith("{"):
        return None
    kinds = re.findall(r"\.((?:b?f|[usb])\d+(?:x2)?|e\dm\dx2)", text.split()[0])
    kind = kinds[0] if opcode(text) in ("cvt", "set") else kinds[-1]
    return kind if _HALF.fullmatch(kind) else None


class Statements:
    """Registers are %h, %r, %l, %f, %d and %p with a number; %t is temporary; %x0 holds the address of the thread's
    part of global memory, %x1 that of the counters, %s its place in shared memory."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.lines: list[str] = []
        self.temporaries: list[str] = []
        self.mask: str | None = None  # the membermask of the lanes that are here, if that is known
        self.raw = False
        self.counters = True

    # ---- chance. random() alone is promised to give the same numbers in later versions of Python.

    def below(self, limit: int) -> int:
        return int(self._rng.random() * limit)

    def chance(self, share: float) -> bool:
        return self._rng.random() < share

    def choose(self, items: Sequence[_T]) -> _T:
        return items[self.below(len(items))]

    def several(self, letter: str, count: int) -> list[str]:
        numbers = list(range(COUNTS[letter]))
        return [f"%{letter}{numbers.pop(self.below(len(numbers)))}" for _ in range(count)]

    # ---- text

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def temp(self, letter: str) -> str:
        name = f"%t{len(self.temporaries)}"
        self.temporaries.append(f".reg .{TYPES[letter]} {name};")
        return name

    def reg(self, letter: str) -> str:
        return f"%{letter}{self.below(COUNTS[letter])}"

    def guard(self, share: float = 0.2) -> str:
        return f"@{self.choose(('', '!'))}{self.reg('p')} " if self.chance(share) else ""

    def constant(self, nbits: int) -> str:
        return str((self.choose(_EDGES) if self.chance(0.7) else self.below(1 << 32)) & ((1 << min(nbits, 32)) - 1))

    def number(self, share: float = 0.7) -> str:
        """A 32-bit register, or a number."""
        return self.reg("r") if self.chance(share) else self.constant(32)

    def clear_nan(self, name: str, kind: str) -> None:
        """Replace a NaN by one that does not depend on where it came from."""
        if self.raw:
            return
        flag = self.temp("p")
        match kind:
            case "f32" | "f64":
                value = "0f7FFFFFFF" if kind == "f32" else "0d7FF8000000000000"
                self.emit(f"testp.notanumber.{kind} {flag}, {name}; selp.{kind} {name}, {value}, {name}, {flag};")
            case "f16" | "bf16":
                self.emit(f"setp.nan.{kind} {flag}, {name}, {name}; selp.b16 {name}, 0x7fff, {name}, {flag};")
            case _:
                low, high = self.temp("h"), self.temp("h")
                self.emit(f"mov.b32 {{{low}, {high}}}, {name};")
                self.clear_nan(low, kind.removesuffix("x2"))
                self.clear_nan(high, kind.removesuffix("x2"))
                self.emit(f"mov.b32 {name}, {{{low}, {high}}};")

    def clear(self, name: str) -> None:
        if name[1] in "fd":
            self.clear_nan(name, TYPES[name[1]])

    # ---- statements

    def statement(self) -> None:
        kinds = [(36, self.arithmetic), (8, self.compare), (5, self.select), (8, self.move), (3, self.logic),
                 (13, self.memory), (2, self.table), (4, self.atomic)]  # fmt: skip
        if self.counters:
            kinds.append((2, self.count))
        if self.mask:
            kinds.append((12, self.exchange))
        at = self._rng.random() * sum(weight for weight, _ in kinds)
        for weight, kind in kinds:
            at -= weight
            if at < 0:
                kind()
                return

    def arithmetic(self) -> None:
        total = pool()[-1][0]
        at = self._rng.random() * total
        forms = next(forms for share, forms in pool() if at < share)
        form = self.choose(forms)
        text, name = form.text, opcode(form.text)
        names = {"D": self.reg(form.out)}
        for letter, kind in zip("ABC", form.operands, strict=False):
            names[letter] = self.reg(kind)
            if name in _IMMEDIATE and kind in "hrl" and letter != "A" and self.chance(0.25) and "x2" not in text:
                names[letter] = (
                    self.constant(8 if name[:2] == "bf" else NBITS[kind]) if half(text) is None else self.reg(kind)
                )
            elif name == "copysign" or "xorsign" in text:
                self.clear(names[letter])
        if form.odd_divisor:
            names["B"] = self.temp(form.operands[1])
            kind = TYPES[form.operands[1]]
            self.emit(f"or.{kind} {names['B']}, {self.reg(form.operands[1])}, 1;")
        text = re.sub(r"\b([ABCD])\b", lambda match: names[match[1]], text)
        self.emit(("" if text.startswith("{") else self.guard()) + text)
        kind = half(form.text)
        if kind:
            self.clear_nan(names["D"], kind)

    def compare(self) -> None:
        if self.chance(0.35):
            kind = self.choose(("f32", "f64", "f16", "bf16"))
            name, letter = self.choose(_FLOAT_COMPARISONS), {"f32": "f", "f64": "d"}.get(kind, "h")
        else:
            kind = self.choose(_INTEGERS)
            name, letter = self.choose(("eq", "ne", "lt", "le", "gt", "ge")), {"6": "h", "2": "r", "4": "l"}[kind[-1]]
            if kind[0] == "u" and self.chance(0.3):
                name = self.choose(("lo", "ls", "hi", "hs"))
        b = self.reg(letter)
        if kind[0] in "us" and self.chance(0.4):
            b = self.constant(NBITS[letter])
        first, second = self.several("p", 2)
        target = f"{first}|{second}" if self.chance(0.2) and kind not in ("f16", "bf16") else first
        if self.chance(0.3):
            op, other = self.choose(("and", "or", "xor")), self.choose(("", "!")) + self.reg("p")
            self.emit(f"{self.guard()}setp.{name}.{op}.{kind} {target}, {self.reg(letter)}, {b}, {other};")
        else:
            self.emit(f"{self.guard()}setp.{name}.{kind} {target}, {self.reg(letter)}, {b};")

    def select(self) -> None:
        letter = self.choose("hrrlfd")
        kind = {"h": ("b16", "s16"), "r": ("b32", "u32"), "l": ("b64", "s64"), "f": ("f32",), "d": ("f64",)}[letter]
        source = self.constant(NBITS[letter]) if letter in "hrl" and self.chance(0.3) else self.reg(letter)
        names = f"{self.reg(letter)}, {self.reg(letter)}, {source}, {self.reg('p')}"
        self.emit(f"{self.guard(0.1)}selp.{self.choose(kind)} {names};")

    def move(self) -> None:
        h, r, wide, f, d = (self.several(letter, 2) for letter in "hrlfd")
        match self.below(14):
            case 0:
                self.emit(f"{self.guard()}mov.b32 {f[0]}, {r[0]};")
            case 1:
                self.clear(f[0])
                self.emit(f"{self.guard()}mov.b32 {r[0]}, {f[0]};")
            case 2:
                self.emit(f"{self.guard()}mov.b64 {d[0]}, {wide[0]};")
            case 3:
                self.clear(d[0])
                self.emit(f"{self.guard()}mov.b64 {wide[0]}, {d[0]};")
            case 4:
                self.emit(f"mov.b64 {wide[0]}, {{{r[0]}, {r[1]}}};")
            case 5:
                self.emit(f"{self.guard()}mov.b64 {{{r[0]}, {r[1]}}}, {wide[0]};")
            case 6:
                self.emit(f"{self.guard()}mov.b32 {r[0]}, {{{h[0]}, {h[1]}}};")
            case 7:
                self.emit(f"mov.b32 {{{h[0]}, {h[1]}}}, {r[0]};")
            case 8:
                self.emit(f"mov.b64 {wide[0]}, {{{', '.join(self.reg('h') for _ in range(4))}}};")
            case 9:
                letter = self.choose("hrlfd")
                self.emit(f"{self.guard(0.4)}mov.{TYPES[letter]} {self.reg(letter)}, {self.reg(letter)};")
            case 10:
                special = ("laneid", "tid.x", "ctaid.x", "ntid.x", "lanemask_lt", "lanemask_ge", "lanemask_eq")
                self.emit(f"{self.guard()}mov.u32 {r[0]}, %{self.choose(special)};")
            case 11:
                self.emit(f"{self.guard()}mov.u32 {r[0]}, {self.constant(32)};")
            case 12:
                self.emit(f"mov.f32 {f[0]}, {self.choose(('0f3F800000', '0fBF000000', '0f00000001', '0f7F800000'))};")
            case _:
                self.emit(f"mov.f64 {d[0]}, {self.choose(('0d3FF8000000000000', '0d8000000000000000'))};")

    def logic(self) -> None:
        op, names = self.choose(("and", "or", "xor", "not", "mov")), self.several("p", 3)
        self.emit(f"{op}.pred {', '.join(names[: 2 if op in ('not', 'mov') else 3])};")

    def _address(self, nbytes: int, local: bool = True) -> tuple[str, str, bool]:
        """(space or nothing, address, whether it is local) of bytes of this thread's own."""
        spaces = ("global", "shared", "local") if local else ("global", "shared")
        own = self.choose(spaces)
        size = SHARED_NBYTES if own == "shared" else SCRATCH_NBYTES
        space, address = self._place(own, size, nbytes)
        return space, address, own == "local"

    def _place(self, space: str, size: int, nbytes: int) -> tuple[str, str]:
        if self.chance(0.3):
            offset = nbytes * self.below(size // nbytes)
            if space == "global":
                return space, f"[%x0+{SCRATCH + offset}]"
            return space, f"[%s+{offset}]" if space == "shared" else f"[mine+{offset}]"
        index = self.temp("r")
        self.emit(f"and.b32 {index}, {self.reg('r')}, {size - nbytes};")
        if space == "global":
            address = self.temp("l")
            self.emit(f"cvt.u64.u32 {address}, {index}; add.u64 {address}, {address}, %x0;")
            return self.choose(("global", "")), f"[{address}+{SCRATCH}]"
        base = self.temp("r")
        self.emit(f"mov.u32 {base}, {'%s' if space == 'shared' else 'mine'}; add.u32 {base}, {base}, {index};")
        if self.chance(0.6):
            return space, f"[{base}]"
        wide = self.temp("l")
        self.emit(f"cvt.u64.u32 {wide}, {base}; cvta.{space}.u64 {wide}, {wide};")
        return "", f"[{wide}]"

    def memory(self) -> None:
        kind = self.choose(
            ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
        )
        nbytes, whole = int(kind[1:]) // 8, kind[0] != "f"
        count = self.choose([n for n in (1, 1, 2, 4) if n * nbytes <= 16])
        letter = {"f32": "f", "f64": "d"}.get(kind) or {1: "hrl", 2: "hrl", 4: "rl", 8: "l"}[nbytes][0]
        if whole and nbytes < 8 and self.chance(0.4):
            letter = self.choose("rl" if nbytes < 4 else "l")
        count = min(count, COUNTS[letter])
        count = 2 if count == 3 else count
        load, names = self.chance(0.5), self.several(letter, count)
        if not load:
            for name in names:
                self.clear(name)
        space, address, local = self._address(nbytes * count)
        vector = f".v{count}" if count > 1 else ""
        registers = names[0] if count == 1 else f"{{{', '.join(names)}}}"
        order = self.choose(("", "", "", ".volatile", ".relaxed.gpu", ".relaxed.cta"))
        if local or (order.startswith(".relaxed") and count > 1 and nbytes == 1):
            order = ""
        middle = f"{order}{'.' if space else ''}{space}{vector}.{kind}"
        if load:
            self.emit(f"{self.guard()}ld{middle} {registers}, {address};")
        else:
            self.emit(f"{self.guard()}st{middle} {address}, {registers};")

    def table(self) -> None:
        """A load from constant memory, or from memory that no kernel writes."""
        kind, letter = self.choose((("u8", "r"), ("s16", "r"), ("b32", "r"), ("f32", "f"), ("b64", "l"), ("s32", "l")))
        nbytes, index, base = int(kind[1:]) // 8, self.temp("r"), self.temp("l")
        name = self.choose(("ctable", "gtable"))
        self.emit(f"and.b32 {index}, {self.number()}, {256 - nbytes}; mov.u64 {base}, {name};")
        wide = self.temp("l")
        self.emit(f"cvt.u64.u32 {wide}, {index}; add.u64 {base}, {base}, {wide};")
        middle = "const" if name == "ctable" else self.choose(("global", "global.nc"))
        self.emit(f"{self.guard()}ld.{middle}.{kind} {self.reg(letter)}, [{base}];")

    def atomic(self) -> None:
        """An atomic operation on this thread's own memory, so that its result does not depend on any order."""
        kind, ops = self.choose(_ATOMICS)
        op, letter, nbytes = self.choose(ops), {"6": "h", "2": "r", "4": "l"}[kind[-1]], int(kind[1:]) // 8
        space, address, _ = self._address(nbytes, local=False)
        operands = ", ".join(self.reg(letter) for _ in range(2 if op == "cas" else 1))
        middle = f"{'.' if space else ''}{space}.{op}.{kind}"
        if op in ("exch", "cas") or self.chance(0.7):
            order = self.choose(("", "", ".relaxed.gpu", ".acq_rel.cta"))
            self.emit(f"{self.guard()}atom{order}{middle} {self.reg(letter)}, {address}, {operands};")
        else:
            self.emit(f"{self.guard()}red{middle} {address}, {operands};")

    def count(self) -> None:
        """A reduction in memory of the whole grid: the result is the same in every order."""
        place = self.below(8)
        op = ("add.u32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32", "add.u64", "max.u64")[place]
        letter = "l" if op.endswith("64") else "r"
        self.emit(f"{self.guard()}red.global.{op} [%x1+{8 * place}], {self.reg(letter)};")

    # ---- between the lanes of `mask`

    def exchange(self) -> None:
        mask = self.mask
        assert mask
        match self.below(8):
            case 0 | 1:
                self.shuffle(mask)
            case 2:
                p, q = self.several("p", 2)
                self.emit(
                    f"vote.sync.{self.choose(('all', 'any', 'uni'))}.pred {p}, {self.choose(('', '!'))}{q}, {mask};"
                )
            case 3:
                self.emit(f"vote.sync.ballot.b32 {self.reg('r')}, {self.reg('p')}, {mask};")
            case 4:
                letter, few = self.choose((("r", self.temp("r")), ("l", self.temp("l"))))
                kind = TYPES[letter]
                self.emit(f"and.{kind} {few}, {self.reg(letter)}, {self.choose((0, 1, 3, 0x80000000, 0xFFFFFFFF))};")
                if self.chance(0.5):
                    self.emit(f"match.any.sync.{kind} {self.reg('r')}, {few}, {mask};")
                else:
                    self.emit(f"match.all.sync.{kind} {self.reg('r')}|{self.reg('p')}, {few}, {mask};")
            case 5:
                op = self.choose(("add.s32", "add.u32", "min.s32", "min.u32", "max.s32", "max.u32", "and.b32", "or.b32",
                                  "xor.b32"))  # fmt: skip
                self.emit(f"redux.sync.{op} {self.reg('r')}, {self.reg('r')}, {mask};")
            case 6:
                self.shuffle(mask)
            case _:
                self.through_memory(mask)

    def shuffle(self, mask: str) -> None:
        """A value from a lane outside the mask is undefined: the lane's own takes its place."""
        mode, target, value = self.choose(("up", "down", "bfly", "idx")), self.temp("r"), self.reg("r")
        amount, control, flag = self.temp("r"), self.choose((0x1F, 0x1F, 0x181F, 0x1C07, 0x1007)), self.temp("p")
        if mode == "up":
            control &= ~0x1F
        self.emit(f"and.b32 {amount}, {self.number(0.4)}, 31;")
        self.emit(f"shfl.sync.{mode}.b32 {target}|{flag}, {value}, {amount}, {control}, {mask};")
        lane, source, inside = self.temp("r"), self.temp("r"), self.temp("p")
        self.emit(f"mov.u32 {lane}, %laneid;")
        segment = control >> 8
        match mode:
            case "up":
                self.emit(f"sub.u32 {source}, {lane}, {amount};")
            case "down":
                self.emit(f"add.u32 {source}, {lane}, {amount};")
            case "bfly":
                self.emit(f"xor.b32 {source}, {lane}, {amount};")
            case _:
                kept = self.temp("r")
                self.emit(f"and.b32 {source}, {amount}, {31 & ~segment}; and.b32 {kept}, {lane}, {segment}; "
                          f"or.b32 {source}, {source}, {kept};")  # fmt: skip
        self.emit(f"selp.u32 {source}, {source}, {lane}, {flag}; shf.r.wrap.b32 {source}, {mask}, {mask}, {source}; "
                  f"and.b32 {source}, {source}, 1; setp.ne.u32 {inside}, {source}, 0; "
                  f"selp.u32 {self.reg('r')}, {target}, {value}, {inside};")  # fmt: skip
        if self.chance(0.5):
            self.emit(f"and.pred {self.reg('p')}, {flag}, {inside};")

    def through_memory(self, mask: str) -> None:
        source, lane, other = self.temp("r"), self.temp("r"), self.temp("r")
        inside, letter = self.temp("p"), self.choose("rl")
        kind = TYPES[letter]
        self.emit(f"mov.u32 {lane}, %laneid; and.b32 {source}, {self.reg('r')}, 31; "
                  f"shf.r.wrap.b32 {other}, {mask}, {mask}, {source}; "
                  f"and.b32 {other}, {other}, 1; setp.ne.u32 {inside}, {other}, 0; "
                  f"selp.u32 {source}, {source}, {lane}, {inside}; sub.u32 {source}, {source}, {lane}; "
                  f"mad.lo.u32 {source}, {source}, 8, %w;")  # fmt: skip
        self.emit(f"bar.warp.sync {mask}; st.shared.{kind} [%w], {self.reg(letter)}; bar.warp.sync {mask}; "
                  f"ld.shared.{kind} {self.reg(letter)}, [{source}]; bar.warp.sync {mask};")  # fmt: skip
