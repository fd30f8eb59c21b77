"""Damaged PTX is reported as an image error with its line, or as an unsupported instruction: never as an internal error
(AT19), and never slowly (AT16)."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from vgpusim.codegen import compile as compiler
from vgpusim.codegen.compile import PtxError, PtxModule
from vgpusim.codegen.native import llvm
from vgpusim.ptx.error import InternalError
from vgpusim.ptx.text import PtxText

from tests.vgpusim.codegen.harness import HEADER

_TOKEN = re.compile(r"\s+|//[^\n]*|[.%$\w:]+|.", re.DOTALL)
_ODD = ["-1", "0", "4294967296", "0x", "1.0e999", *"{}[],;_!|-", "%tid.x", ".u8", ".pred", ".f64", ".b128", '"x"']
_WORDS = ["u8", "f16", "b64", "pred", "rn", "foo", "lt", "s32", "wide", "param", "shared", "v4", "sat", "bf16x2", "v2",
          "sync", "trans", "NaN", "m16n8k16", "x4", "red", "arrive", "7", ""]  # fmt: skip
_KERNELS = Path(__file__).parent / "kernels"
_MUTANTS = 400
_MAX_NBYTES = 3000


def _entries() -> list[list[str]]:
    found = []
    for file in sorted(_KERNELS.glob("*.ptx")):
        text = file.read_text()
        for place in PtxText(text).places.values():
            if place.is_entry and place.end - place.start < _MAX_NBYTES:
                found.append(_TOKEN.findall(HEADER + text[place.start : place.end]))
    return found


def _mutate(tokens: list[str], rng: random.Random) -> str:
    tokens = list(tokens)
    real = [i for i, token in enumerate(tokens) if token.strip() and not token.startswith("//")]
    registers = [i for i in real if tokens[i].startswith("%")]
    i, j = rng.choice(real), rng.choice(real)
    match rng.randrange(7):
        case 0:
            tokens[i] = ""
        case 1:
            tokens[i] += " " + tokens[i]
        case 2:
            tokens[i], tokens[j] = tokens[j], tokens[i]
        case 3:
            tokens[i] = rng.choice(_ODD)
        case 4 if registers:
            tokens[rng.choice(registers)] = tokens[rng.choice(registers)]
        case _:
            parts = tokens[i].split(".")
            parts[rng.randrange(len(parts))] = rng.choice(_WORDS)
            tokens[i] = ".".join(parts)
    return "".join(tokens)


def test_mutants() -> None:
    """AT19: no mutated kernel causes an internal error, and what compiles is valid LLVM IR."""
    entries, results = _entries(), set()
    for seed in range(_MUTANTS):
        rng = random.Random(seed)
        text = _mutate(rng.choice(entries), rng)
        try:
            module = PtxModule.parse(text)
            for name in module.entries:
                module.entry(name)
                llvm.parse_assembly(compiler.lower(module, name, (64, 1, 1))[0]).verify()
            results.add(0)
        except InternalError:
            raise
        except PtxError as error:
            results.add(error.result)
    assert {0, 218} <= results <= {0, 218, 801}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add.u32 %r1, %r2;", "takes 3 operands, not 2"),
        ("mov.u32 %r1, %r2, %r3;", "takes 2 operands, not 3"),
        ("add %r1, %r2, %r3;", "too few types"),
        ("ld.global.u32 %r1, %r2;", "needs an address"),
        ("L: bra L; L:", "label L stands twice"),
        (".local .b8 x[-1];", "dimension of -1"),
        (".local .align 3 .b8 x[4];", "alignment 3"),
        (
            "mov.u32 %r1, 99999999999999999999999999999999999999999999999999999999999999999999999999;",
            "malformed number",
        ),
    ],
)
def test_malformed_by_line(body: str, message: str) -> None:
    """AT19: the error names the line."""
    text = f"{HEADER}.visible .entry k()\n{{\n.reg .u32 %r<4>;\n{body}\nret;\n}}\n"
    with pytest.raises(PtxError, match=f"line 7.*{message}") as caught:
        PtxModule.parse(text)
    assert caught.value.result == 218


def test_unknown_modifier_is_not_ignored() -> None:
    text = f"{HEADER}.visible .entry k()\n{{\n.reg .u32 %r<4>;\nadd.foo.u32 %r1, %r2, %r3;\nret;\n}}\n"
    with pytest.raises(PtxError, match=r"unsupported instruction `add.foo.u32`: unknown modifier .foo") as caught:
        compiler.compile_entry(PtxModule.parse(text), "k", (32, 1, 1))
    assert caught.value.result == 801


def test_nested_braces() -> None:
    """AT16: scopes nested beyond a limit are refused, and many scopes cost linear time, measured by counting the items
    of the body instead of time."""
    deep = f"{HEADER}.visible .entry k()\n{{\n{'{' * 16000}{'}' * 16000}\nret;\n}}\n"
    with pytest.raises(PtxError, match="nested scopes"):
        PtxModule.parse(deep)
    wide = "".join(f"{{ bra L; L: }} // {i}\n" for i in range(16000))
    module = PtxModule.parse(f"{HEADER}.visible .entry k()\n{{\n{'{' * 200}{wide}{'}' * 200}\nret;\n}}\n")
    assert len(module.function("k").body) == 32001
