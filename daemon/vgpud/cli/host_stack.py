"""The call stacks of a program's allocations and launches, which its libcuda writes for `vgpu sanitize`
(shim/cuda/vgs_host_stack.c)."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vgpu_guest.elf import ElfError
from vgpu_guest.elf_symbol import read_functions
from vgpusim import demangle

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "VGPU_HOST_STACKS"  # names the folder
_MARK = 1 << 63  # VGW_HOST_STACK in the protocol: set if a correlation number names a host call stack
_PYTHON = re.compile(r'File "(.*)", line (\d+|\?\?\?) in (.*)')


@dataclass(frozen=True, slots=True)
class Frame:
    """A return address: its distance from the start of the module, and the function, empty if unknown."""

    offset: int
    function: str
    module: str


@dataclass(slots=True)
class HostStack:
    """The callers of a function of the driver, innermost first, and those in Python."""

    call: str
    frames: list[Frame] = field(default_factory=list)
    python: list[str] = field(default_factory=list)

    def lines(self, time: str) -> Iterator[str]:
        """The text, as compute-sanitizer has it; `time`: when the stack was saved."""
        yield f"    Saved host backtrace up to driver entry point at {time}"
        yield f"        Host Frame: {self.call}"
        for frame in self.frames:
            name = f" {demangle.readable(frame.function)}" if frame.function else ""
            yield f"        Host Frame:{name} [0x{frame.offset:x}] in {Path(frame.module).name or '(unknown)'}"
        for line in self.python:
            found = _PYTHON.fullmatch(line)
            yield f"        Python Frame: {f'{found[3]} in {found[1]}:{found[2]}' if found else line}"


def read_stacks(folder: Path) -> dict[int, HostStack]:
    """The stacks of all processes, by the number that reports have. Functions that the program's loader does not know
    are looked up in the modules' symbol tables."""
    stacks: dict[int, HostStack] = {}
    for path in folder.iterdir():
        stacks |= _read(path)
    wanted: dict[str, set[int]] = defaultdict(set)
    for stack in stacks.values():
        for frame in stack.frames:
            if not frame.function:
                wanted[frame.module].add(frame.offset - 1)  # a return address may lie behind it
    found = {module: _functions(module, offsets) for module, offsets in wanted.items()}
    for stack in stacks.values():
        stack.frames = [
            frame
            if frame.function
            else Frame(frame.offset, found[frame.module].get(frame.offset - 1, ""), frame.module)
            for frame in stack.frames
        ]
    return stacks


def _functions(module: str, offsets: set[int]) -> dict[int, str]:
    try:
        return read_functions(Path(module), offsets)
    except (ElfError, OSError):
        return {}  # of another mount namespace, or not a file


def _read(path: Path) -> dict[int, HostStack]:
    stacks: dict[int, HostStack] = {}
    stack = None
    for line in path.read_text(errors="replace").splitlines():
        kind, _, text = line.partition(" ")
        words = text.split(" ", 2)
        if kind == "stack" and len(words) == 2:
            stack = stacks[_MARK | int(path.name, 16) << 32 | int(words[0])] = HostStack(words[1])
        elif kind == "frame" and len(words) == 3 and stack is not None:
            offset, function, module = (word if word != "-" else "" for word in words)
            stack.frames.append(Frame(int(offset, 16), function, module))
        elif kind == "python" and stack is not None:
            stack.python.append(text)
    return stacks
