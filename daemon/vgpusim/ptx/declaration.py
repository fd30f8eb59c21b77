"""Declarations: variables with their initializers, parameters, headers of functions, literals."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from vgpusim.ptx import ir
from vgpusim.ptx.error import NOT_SUPPORTED, PtxError
from vgpusim.ptx.lexer import Tokens, parse_integer

_MAX_VARIABLE_NBYTES = 1 << 40
_MAX_BLOCK_THREADS = 1024
_MAX_ALIGN = 1 << 20
_MAX_INITIALIZER_DEPTH = 32


@dataclass(slots=True)
class Declaration:
    """One declared variable. `initializer` holds one value per element, None when absent; `linkage` is visible, weak,
    common, extern or empty."""

    name: str
    space: str
    type: str
    nbytes: int
    align: int
    linkage: str = ""
    managed: bool = False
    initializer: list[ir.Scalar] | None = None


def parse_declaration(tokens: Tokens) -> list[Declaration]:
    """`.space .align n .type a, b[3] = {..}` up to, and not including, `;` or `)`. `.reg` is handled by the caller."""
    space, elem, align, linkage, managed, lanes = "", "", 0, "", False, 1
    while tokens.peek.startswith("."):
        word = tokens.take()[1:]
        if word == "align":
            align = alignment(tokens)
        elif word in ("ptr", "volatile"):
            continue
        elif word in ("visible", "weak", "common", "extern"):
            linkage = word
        elif word == "attribute":
            tokens.expect("(")
            while not tokens.accept(")"):
                managed |= tokens.take() == ".managed"
        elif word in ("v2", "v4"):
            lanes = int(word[1])
        elif word in ir.TYPE_NBITS:
            elem = word
        elif word in ("texref", "samplerref", "surfref"):
            raise PtxError(f"line {tokens.line}: .{word} is not supported", NOT_SUPPORTED)
        elif word in ("global", "const", "shared", "local", "param", "reg"):
            if not space:
                space = word
                if word == "const" and tokens.peek == "[":
                    raise PtxError(f"line {tokens.line}: constant banks are not supported", NOT_SUPPORTED)
        else:
            raise tokens.error(f"unexpected directive .{word}")
    if not elem:
        raise tokens.error("declaration without a type")
    found = []
    while True:
        name = tokens.name()
        count: int | None = None
        while tokens.accept("["):
            size = 0 if tokens.peek == "]" else integer(tokens)
            if size < 0:
                raise tokens.error(f"{name} has a dimension of {size}")
            tokens.expect("]")
            count = size if count is None else count * size
        initializer = None
        if tokens.accept("="):
            initializer = _initializer(tokens)
            if count == 0:
                count = len(initializer)
        unit = ir.type_nbytes(elem) * lanes
        nbytes = unit * (1 if count is None else count)
        if nbytes > _MAX_VARIABLE_NBYTES:
            raise tokens.error(f"{name} is too large")
        if initializer is not None and len(initializer) * ir.type_nbytes(elem) > nbytes:
            raise tokens.error(f"too many initializers for {name}")
        found.append(Declaration(name, space, elem, nbytes, align or unit, linkage, managed, initializer))
        if tokens.peek != "," or (space == "param" and tokens.words[tokens.index + 1].startswith(".")):
            return found
        tokens.take()


def integer(tokens: Tokens) -> int:
    negative = tokens.accept("-")
    value = parse_integer(tokens.peek)
    if value is None:
        raise tokens.error(f"expected an integer before `{tokens.peek}`")
    tokens.take()
    return -value if negative else value


def alignment(tokens: Tokens) -> int:
    """The number of .align, a power of two."""
    value = integer(tokens)
    if not 0 < value <= _MAX_ALIGN or value & (value - 1):
        raise tokens.error(f"alignment {value}")
    return value


def _initializer(tokens: Tokens, depth: int = 0) -> list[ir.Scalar]:
    if tokens.accept("{"):
        if depth == _MAX_INITIALIZER_DEPTH:
            raise tokens.error("initializer with too many nested braces")
        values: list[ir.Scalar] = []
        while not tokens.accept("}"):
            values += _initializer(tokens, depth + 1)
            tokens.accept(",")
        return values
    literal = parse_literal(tokens)
    if isinstance(literal, ir.Imm) and tokens.peek == "(":
        return [_address_by_bytes(tokens, literal.value)]
    if literal is not None:
        return [literal]
    name = tokens.take()
    if name == "generic" and tokens.accept("("):  # generic(symbol): spaces are one address range here
        name = tokens.take()
        offset = offset_of(tokens)
        tokens.expect(")")
        return [ir.Symbol(name, offset + offset_of(tokens))]
    if not re.match(r"[A-Za-z_$%]", name):
        raise tokens.error(f"unexpected initializer `{name}`")
    return [ir.Symbol(name, offset_of(tokens))]


def _address_by_bytes(tokens: Tokens, mask: int) -> ir.Symbol:
    """An address as LLVM writes it in arrays of bytes: `0xFF(x), 0xFF00(x), ...`, eight of them."""
    found: ir.Scalar | None = None
    for byte in range(8):
        if byte:
            tokens.expect(",")
            literal = parse_literal(tokens)
            mask = literal.value if isinstance(literal, ir.Imm) else 0
        tokens.expect("(")
        values = _initializer(tokens)
        value = values[0] if len(values) == 1 else None
        tokens.expect(")")
        if mask != 0xFF << 8 * byte or not isinstance(value, ir.Symbol) or (byte and value != found):
            raise tokens.error("expected the eight bytes of an address")
        found = value
    assert isinstance(found, ir.Symbol)
    return found


def offset_of(tokens: Tokens) -> int:
    total = 0
    while tokens.peek in ("+", "-"):
        sign = -1 if tokens.take() == "-" else 1
        total += sign * integer(tokens)
    return total


def parse_literal(tokens: Tokens) -> ir.Imm | ir.FloatImm | None:
    """An optional-sign numeric literal; the cursor does not move when there is none."""
    ahead = 1 if tokens.peek in ("-", "~") else 0
    word = tokens.words[tokens.index + ahead]
    if not word[:1].isdigit():
        return None
    negative = ahead and tokens.peek == "-"
    inverted = ahead and not negative
    tokens.index += 1 + ahead
    if word[:2] in ("0f", "0F") and len(word) == 10:
        return ir.FloatImm(int(word[2:], 16) ^ (0x80000000 if negative else 0), 32)
    if word[:2] in ("0d", "0D") and len(word) == 18:
        return ir.FloatImm(int(word[2:], 16) ^ (1 << 63 if negative else 0), 64)
    value = parse_integer(word)
    if value is not None:
        return ir.Imm(-value if negative else ~value if inverted else value)
    if "." not in word and "e" not in word.lower():
        raise tokens.error(f"malformed number `{word[:40]}`")
    return ir.FloatImm(int.from_bytes(struct.pack("<d", float(word) * (-1 if negative else 1)), "little"), 64)


def parse_header(tokens: Tokens, name: str, is_entry: bool) -> ir.Function:
    while tokens.peek not in (".entry", ".func"):
        if not tokens.peek:
            raise tokens.error(f"malformed header of {name}")
        if not tokens.peek.startswith(".") and not tokens.peek.isdigit() and not tokens.peek.startswith('"'):
            raise tokens.error(f"unexpected `{tokens.peek}` before {name}")
        if tokens.peek in (".file", ".loc", ".version", ".target", ".address_size", ".section"):
            line = tokens.line
            while tokens.peek and tokens.line == line:
                tokens.take()
        else:
            tokens.take()
    tokens.take()
    function = ir.Function(name, is_entry, [], [])
    while tokens.peek.startswith("."):
        tokens.take()  # .noreturn, .attribute before the name
    if tokens.peek == "(":
        function.returns = parameters(tokens)
    if tokens.take() != name:
        raise tokens.error(f"malformed header of {name}")
    if tokens.peek == "(":
        function.params = parameters(tokens)
    while tokens.peek != "{":
        word = tokens.take()
        if word == ".blocksareclusters":  # a launch's grid would then count clusters, not CTAs
            raise PtxError(f"line {tokens.line}: {word} is not supported", NOT_SUPPORTED)
        if word in (".maxntid", ".reqntid", ".reqnctapercluster"):
            block = [1, 1, 1]
            for axis in range(3):
                value = tokens.take()
                block[axis] = parse_integer(value) or 0
                if not 0 < block[axis] <= _MAX_BLOCK_THREADS:
                    raise tokens.error(f"bad {word}")
                if not tokens.accept(","):
                    break
        elif word in (".maxnreg", ".minnctapersm"):
            count = parse_integer(tokens.take()) or 0
            if count <= 0:
                raise tokens.error(f"bad {word}")
            if word == ".maxnreg":
                function.max_registers = count
            else:
                function.min_blocks = count
        if word == ".reqnctapercluster":
            function.cluster = (block[0], block[1], block[2]) if block != [1, 1, 1] else None
        elif word in (".maxntid", ".reqntid"):
            function.max_threads = block[0] * block[1] * block[2]
            if word == ".reqntid":
                function.required_block = (block[0], block[1], block[2])
    return function


def parameters(tokens: Tokens) -> list[ir.Parameter]:
    tokens.expect("(")
    params: list[ir.Parameter] = []
    while not tokens.accept(")"):
        if tokens.accept(".reg"):
            kind = tokens.take()[1:]
            if kind not in ir.TYPE_NBITS:
                raise tokens.error(f"unknown type .{kind}")
            name = tokens.name()
            params.append(ir.Parameter(name, kind, ir.type_nbytes(kind), 1, ir.Reg(name, kind)))
        else:
            align = _param_align(tokens)
            for decl in parse_declaration(tokens):
                params.append(ir.Parameter(decl.name, decl.type, decl.nbytes, align or decl.align))
        tokens.accept(",")
    return params


def _param_align(tokens: Tokens) -> int:
    """The alignment of a parameter: `.param .align 8 .b8 p[16]`. In `.param .u64 .ptr .global .align 16 p` the
    alignment is that of the pointee, so 0: the type's own counts."""
    words, index = tokens.words, tokens.index
    while words[index].startswith(".") and words[index] != ".ptr":
        if words[index] == ".align":
            return parse_integer(words[index + 1]) or 0  # parse_declaration refuses what is not an alignment
        index += 1
    if words[index] == ".ptr":
        kind = next((w[1:] for w in words[tokens.index : index] if w[1:] in ir.TYPE_NBITS), "b8")
        return ir.type_nbytes(kind)
    return 0
