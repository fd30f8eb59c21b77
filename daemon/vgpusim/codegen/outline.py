"""Makes a kernel's text cheap to compile, for its first launches: instructions become calls of functions they share.

A large kernel repeats few forms of instruction on many registers. Registers are places in memory, and an instruction
ends by storing there, so the same text with other registers, constants and values of the block is the same function
with other arguments. LLVM then compiles each form once, and a list of calls. What is computed is the same, bit for bit;
a warp saves the same values at the same places of its frame, too, so that it may go on in the code made from the whole
text.

All of this is done on text: a value's type is read from the instruction that makes it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from vgpusim.codegen.emitter import BEGIN, END
from vgpusim.codegen.shared_forms import PLACEHOLDER, Definitions, name_of

_NAMES = re.compile(r'(%"[^"]*"|%[\w.]+|@\.s\d+|^[\w.]+(?=:))', re.MULTILINE)  # with those of the labels
_ONLY_VALUES = re.compile(r'(%"[^"]*"|%[\w.]+|@\.s\d+)')  # the same in text without labels
_MADE = re.compile(r"^  (%\"[^\"]*\"|%[\w.]+) = (.*)$", re.MULTILINE)
# Constants that may be arguments: all lanes', and the last operand.
_CONSTANT = re.compile(r"(?<=splat \()(i\d+) (-?\d+)(?=\))|(?<=, )(i32 |i64 )?(-?\d+)$", re.MULTILINE)
_MARK = re.compile(r"\x01(\d+)\x01")
_SPLAT = re.compile(r"splat \(i\d+ \x01(\d+)\x01\)")
_BINARY = "add|sub|mul|shl|lshr|ashr|and|or|xor|udiv|urem|sdiv|srem|fadd|fsub|fmul|fdiv"
_FLAGS = "(?:nuw |nsw |exact )*"
_TYPE = r"(<[^>]*>|\{[^}]*\}|\[[^\]]*\]|\w+)"
_CAST = re.compile(rf"(?:bitcast|[zs]ext|trunc|inttoptr|ptrtoint|fptrunc|fpext|[us]itofp|fpto[us]i) .* to {_TYPE}$")
_FIRST = re.compile(rf"(?:{_BINARY}|fneg|load atomic|load|freeze|call|insertelement|phi) {_FLAGS}{_TYPE}[ ,]")
_COMPARED = re.compile(r"[if]cmp \w+ (<\d+ x )?")
_WITH_CONSTANT = re.compile(rf"  %\w+ = (?:{_BINARY}|icmp \w+) {_FLAGS}(i\d+) ")
_LEAST_NBYTES = 150  # of text: shorter instructions stay where they are
_STACK_NBYTES = 1 << 19  # of registers' slots: LLVM keeps few of them on the stack when it compiles the whole text
_FRAME = "getelementptr i8, ptr %frame, "
_ARGUMENTS = {"%launch": "load ptr,", "%thread": "load ptr,", "%state": "load i32,", "%warp": "load i32,"}  # of @warp

_MAX_SHAPES = 4096

Names = dict[str, int]  # of a unit, numbered in the order in which they come first


@dataclass(slots=True)
class _Shape:
    """Text of instructions that differ in names alone, which are known by their numbers."""

    text: str  # with names and constants of its own
    constants: list[str]
    values: list[int]  # what is made here
    inside: frozenset[int]  # that, and labels
    arguments: list[int]
    ends: bool  # it has the end of the kernel


@dataclass(slots=True)
class _Unit:
    """The text of an instruction, or what is between two."""

    text: str
    names: Names
    shape: _Shape | None  # of an instruction


@dataclass(slots=True)
class _Use:
    """An instruction as a call."""

    unit: _Unit
    arguments: list[str]
    result: str | None


@dataclass(slots=True)
class _Form:
    """A function that instructions share."""

    name: str
    kinds: tuple[str, ...]  # of its arguments
    result: str  # type
    uses: list[_Use]
    varying: dict[int, str]  # constants that are arguments, and their types


# Of instructions of all kernels, by their texts without names, and the numbers of these.
_shapes: dict[tuple[tuple[str, ...], tuple[int, ...]], _Shape] = {}


def type_of(text: str) -> str | None:
    """The type of what an instruction makes; None: not known."""
    found = _CAST.match(text) or _FIRST.match(text)
    if found:
        return found[1]
    found = _COMPARED.match(text)
    if found:
        return f"{found[1]}i1>" if found[1] else "i1"
    return "ptr" if text.startswith(("getelementptr i", "alloca ")) else None


def outlined(
    text: str, warp: str, temporary: Collection[str], version: bytes = b""
) -> tuple[str, dict[str, str]] | None:
    """The text of a kernel (compile.lower), and, by name, the modules of functions that it shares with other kernels;
    or None: registers would take too much of a thread's stack.

    Args:
        warp: The text of @warp, with registers in their places (WarpFunction.without_copies).
        temporary: Slots of registers that no block needs from another.
        version: Of this compiler: part of the functions' names.
    """
    begin = text.index("define internal i32 @warp(")
    after = text[text.index("\n}\n", begin) + 3 :]
    head, _, rest = warp.partition("\n")
    head = re.sub("alwaysinline|noinline", "noinline optnone", head)
    body = rest.removesuffix("\n}\n")
    units = _units(f"{body}\n")
    made = _ARGUMENTS | {name: made for u in units if u.shape is None for name, made in _MADE.findall(u.text)}
    # Others have a place in the frame, such as the operand of a barrier's reduction in a large kernel.
    on_stack = frozenset(name for name in temporary if made.get(name, "").startswith("alloca "))
    slots, renamed = _share(units, made, on_stack)
    kept = [kind for name, kind in made.items() if kind.startswith("alloca ") and name not in renamed]
    if sum(map(_nbytes, kept)) + sum(_nbytes(kind) for _, kind in slots) > _STACK_NBYTES:
        return None
    elsewhere: set[str] = set()
    for unit in units:
        inside = unit.shape.inside if unit.shape else ()
        elsewhere.update(name for name, number in unit.names.items() if number not in inside)
    forms: dict[tuple[object, ...], _Form] = {}
    lines: list[str | tuple[_Form, _Use]] = []
    for number, unit in enumerate(units):
        use = _use(unit, elsewhere, made, forms) if unit.shape and len(unit.text) > _LEAST_NBYTES else None
        if use is not None:
            lines.append(use)
        elif number:
            lines.append("".join(renamed.get(part, part) for part in _NAMES.split(unit.text)))
        else:
            lines.append(_MADE.sub(lambda m: "" if m[1] in renamed else m[0], unit.text))
    definitions = Definitions(text[:begin] + after)
    modules: dict[str, str] = {}
    functions = [_shared(form, definitions, version, modules) for form in forms.values()]
    plain = [line for line in lines if isinstance(line, str) and "@" in line]
    after = definitions.without_unused(after, [*plain, *functions])
    calls = (
        line if isinstance(line, str) else _call(*line, made, renamed, number) for number, line in enumerate(lines)
    )
    entry, _, others = "".join(calls).partition("\n")
    places = "".join(f"  {name} = alloca {kind}\n" for name, kind in slots)
    whole = f"{head}\n{entry}\n{places}{others}}}\n"
    return text[:begin] + "".join(functions) + whole + after, modules


def _shared(form: _Form, definitions: Definitions, version: bytes, modules: dict[str, str]) -> str:
    """The declaration of a form's function, which gets a module of its own, or its text, if it cannot have one."""
    function = _function(form)
    module = definitions.module_of(function)
    if module is None:
        return function.replace(PLACEHOLDER, f"@{form.name}(").replace("define ", "define internal ", 1)
    form.name = name_of(module, version)
    modules[form.name] = module
    kinds = ", ".join((*form.kinds, *form.varying.values()))
    return f"declare {form.result} @{form.name}({kinds})\n"


def _nbytes(kind: str) -> int:
    """At least as much as a slot takes."""
    found = re.search(r"(?:(\d+) x )?i(\d+)", kind)
    return 64 + (int(found[1] or 1) * int(found[2]) // 8 if found else 0)


def _units(body: str) -> list[_Unit]:
    if len(_shapes) > _MAX_SHAPES:
        _shapes.clear()
    units = []
    for is_instruction, text in _split(body):
        parts = (_NAMES if ":" in text else _ONLY_VALUES).split(text)
        found = parts[1::2]
        if ":" in text:
            found = [name if name[0] in "%@" else f"%{name}" for name in found]
        names: Names = {}
        numbers = tuple([names.setdefault(name, len(names)) for name in found])
        shape = None
        if is_instruction:
            literals = tuple(parts[::2])
            shape = _shapes.get((literals, numbers))
            if shape is None:
                shape = _shapes[literals, numbers] = _shape(text, names)
        units.append(_Unit(text, names, shape))
    return units


def _split(body: str) -> Iterator[tuple[bool, str]]:
    """The texts of instructions, and, first, last and between them, others."""
    first, *pieces = body.split(f"\n{BEGIN}")
    yield False, f"{first}\n"
    for piece in pieces:
        inside, end, between = f"{piece}\n".partition(f"\n{END}\n")
        text = inside.partition("\n")[2]
        if end and text:
            yield True, f"{text}\n"
        elif text:
            yield False, text
        if between:
            yield False, between


def _shape(text: str, names: Names) -> _Shape:
    values = [names[name] for name, _ in _MADE.findall(text)]
    labels = {names[f"%{name}"] for name in re.findall(r"^([\w.]+):", text, re.MULTILINE)}
    inside = frozenset(values) | labels
    constants: list[str] = []

    def note(match: re.Match[str]) -> str:
        lanes_kind, lanes, kind, last = match.groups()
        if last is not None and "value {" in text[text.rfind("\n", 0, match.start()) + 1 : match.start()]:
            return match[0]  # of extractvalue: it must be constant
        constants.append(lanes or last)
        return f"{f'{lanes_kind} ' if lanes_kind else kind or ''}\x01{len(constants) - 1}\x01"

    def rename(match: re.Match[str]) -> str:
        name = match[0]
        if name[0] not in "%@":
            return f"v{names[f'%{name}']}"
        return f"%{'v' if names[name] in inside else 'a'}{names[name]}"

    # Constants first: they are looked up in the text as it is.
    marked = _CONSTANT.sub(note, text)
    arguments = [number for number in names.values() if number not in inside]
    return _Shape(_NAMES.sub(rename, marked), constants, values, inside, arguments, "\n  ret " in text)


def _share(
    units: list[_Unit], made: dict[str, str], temporary: frozenset[str]
) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Slots for registers that are not needed at the same time: their names and types, and each register's slot."""
    last = {name: number for number, unit in enumerate(units) for name in unit.names if name in temporary}
    slots: list[tuple[str, str]] = []
    renamed: dict[str, str] = {}
    free: dict[str, list[str]] = {}
    for number, unit in enumerate(units):
        if number == 0:
            continue  # where they are made
        here = [name for name in unit.names if name in temporary]
        for name in here:
            if name in renamed:
                continue
            kind = made[name].removeprefix("alloca ")
            if free.setdefault(kind, []):
                renamed[name] = free[kind].pop()
            else:
                renamed[name] = f"%shared.slot{len(slots)}"
                slots.append((renamed[name], kind))
        for name in here:
            if last[name] == number:
                free[made[name].removeprefix("alloca ")].append(renamed[name])
    return slots, renamed


def _use(
    unit: _Unit, elsewhere: set[str], made: dict[str, str], forms: dict[tuple[object, ...], _Form]
) -> tuple[_Form, _Use] | None:
    """The instruction as a call; None: it cannot be a function."""
    shape, names = unit.shape, list(unit.names)
    assert shape is not None
    needed = [names[number] for number in shape.inside if names[number] in elsewhere]
    if needed:
        made.update((name, how) for name, how in _MADE.findall(unit.text) if name in needed)
    result = type_of(made.get(needed[0], "")) if needed else "void"
    kinds = tuple(
        ["ptr" if names[number][0] == "@" else type_of(made.get(names[number], "")) or "" for number in shape.arguments]
    )
    if len(needed) > 1 or result is None or "" in kinds or shape.ends:
        return None
    key = (shape.text, kinds, unit.names[needed[0]] if needed else None)
    form = forms.setdefault(key, _Form(f"form{len(forms)}", kinds, result, [], {}))
    form.uses.append(_Use(unit, [names[number] for number in shape.arguments], needed[0] if needed else None))
    return form, form.uses[-1]


def _function(form: _Form) -> str:
    """The text of a form's function; notes which constants are arguments."""
    use = form.uses[0]
    shape = use.unit.shape
    assert shape is not None
    text = shape.text
    lists = [other.unit.shape.constants for other in form.uses if other.unit.shape]
    splats = ""
    for i, values in enumerate(zip(*lists, strict=True)):
        if len(set(values)) == 1:
            continue
        at = text.index(f"\x01{i}\x01")
        line = text[text.rfind("\n", 0, at) + 1 : at]
        lanes = re.search(r"splat \((i\d+) $", line)
        if lanes:
            kind = lanes[1]
            count = re.findall(rf"<(\d+) x {kind}>", line)[-1]
            vector = f"<{count} x {kind}>"
            splats += f"  %c{i}.i = insertelement {vector} poison, {kind} %c{i}, i32 0\n"
            splats += f"  %c{i}.s = shufflevector {vector} %c{i}.i, {vector} poison, <{count} x i32> zeroinitializer\n"
        elif line.endswith(("i32 ", "i64 ")):
            kind = line[-4:-1]
        else:
            found = _WITH_CONSTANT.match(line)
            assert found is not None, line
            kind = found[1]
        form.varying[i] = kind
    text = _SPLAT.sub(lambda m: f"%c{m[1]}.s" if int(m[1]) in form.varying else m[0], text)
    text = _MARK.sub(lambda m: f"%c{m[1]}" if int(m[1]) in form.varying else shape.constants[int(m[1])], text)
    listed = [f"{kind} %a{number}" for kind, number in zip(form.kinds, shape.arguments, strict=True)]
    listed += [f"{kind} %c{i}" for i, kind in form.varying.items()]
    end = f"{form.result} %v{use.unit.names[use.result]}" if use.result else "void"
    head = f"define {form.result} {PLACEHOLDER}{', '.join(listed)}) noinline #0"
    return f"{head} {{\nentry:\n{splats}{text}  ret {end}\n}}\n"


def _call(form: _Form, use: _Use, made: dict[str, str], renamed: dict[str, str], number: int) -> str:
    assert use.unit.shape is not None
    before, listed = "", []
    for i, (kind, name) in enumerate(zip(form.kinds, use.arguments, strict=True)):
        place = renamed.get(name, name)
        if made.get(name, "").startswith(_FRAME):  # made where it is used, not kept from the kernel's start to its end
            place = f"%q{number}.{i}"
            before += f"  {place} = {made[name]}\n"
        listed.append(f"{kind} {place}")
    listed += [f"{kind} {use.unit.shape.constants[i]}" for i, kind in form.varying.items()]
    target = f"{use.result} = " if use.result else ""
    return f"{before}  {target}call {form.result} @{form.name}({', '.join(listed)})\n"
