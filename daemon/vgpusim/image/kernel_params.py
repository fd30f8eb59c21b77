"""Where a kernel's parameters lie, as the image that it comes from says: drivers before 12.4 do not tell.

PTX declares them. A cubin has a section `.nv.info.<kernel>` of attributes: a byte of format, a byte of kind, and
16 bits, which in format 4 are the length of what follows. Kind 0x17 describes a parameter, kind 0x45 one of a kernel
with more than 4 KiB of them. NVIDIA publishes no layout: this one was seen in cubins that nvcc 13.0 made for sm_75,
sm_90 and sm_100 from kernels with known parameters.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING

from vgpusim.image.error import INVALID_IMAGE, ImageError
from vgpusim.ptx.declaration import parse_header
from vgpusim.ptx.lexer import Tokens
from vgpusim.ptx.text import PtxText

from . import elf, fatbin

if TYPE_CHECKING:
    from collections.abc import Callable

Layout = tuple[tuple[int, int], ...]
"""(offset, size) of each parameter, in bytes."""

_SECTION = ".nv.info."
_ATTRIBUTE = struct.Struct("<BBH")
_WITH_BYTES = 4
_PARAM, _LARGE_PARAM = 0x17, 0x45
_DESCRIPTION = struct.Struct("<IHHI")  # index, ordinal, offset, a word with the size
_PARAMS_MAX = 4096  # the most parameters that a record describes


class KernelParams:
    """The kernels of one image. Its programs are decoded one after the other, until one has the kernel asked for: a
    kernel's parameters are the same on every architecture."""

    def __init__(self, data: bytes) -> None:
        """Raises ImageError: `data` is neither PTX, nor a cubin, nor fat binaries."""
        view = memoryview(data)
        self._found: dict[str, Layout] = {}
        self._left: list[Callable[[], dict[str, Layout]]] = []
        if fatbin.is_fatbin(view):
            entries = [entry for container in fatbin.read_containers(view) for entry in container.entries]
            readers = {fatbin.KIND_ELF: _of_cubin, fatbin.KIND_PTX: _of_ptx}
            for entry in sorted(entries, key=lambda entry: len(entry.stored), reverse=True):  # smallest is popped first
                if entry.kind in readers:
                    self._left.append(partial(_of_entry, entry, readers[entry.kind]))
        else:
            read = _of_cubin if elf.is_elf(view) else _of_ptx
            self._left.append(partial(read, data))

    def layout(self, kernel: str) -> Layout | None:
        """None: no program of the image has the kernel. Raises ImageError, PtxError: a program is damaged."""
        while kernel not in self._found and self._left:
            self._found |= self._left.pop()()
        return self._found.get(kernel)


def _of_entry(entry: fatbin.Entry, read: Callable[[bytes], dict[str, Layout]]) -> dict[str, Layout]:
    return read(fatbin.payload(entry))


def _of_ptx(data: bytes) -> dict[str, Layout]:
    text = PtxText(data.partition(b"\0")[0].decode("utf-8", errors="replace"))
    found = {}
    for name, place in text.places.items():
        if not place.is_entry:
            continue
        tokens = Tokens(text.text, place.start, place.end, text.lines)
        offset, layout = 0, []
        for param in parse_header(tokens, place.name, True).params:
            offset += -offset % param.align
            layout.append((offset, param.nbytes))
            offset += param.nbytes
        found[name] = tuple(layout)
    return found


def _of_cubin(data: bytes) -> dict[str, Layout]:
    file = elf.read(memoryview(data))
    if file.machine != elf.EM_CUDA:
        raise ImageError(INVALID_IMAGE, f"ELF file for machine {file.machine}, not a GPU")
    return {
        section.name.removeprefix(_SECTION): _described(file.contents(section))
        for section in file.sections
        if section.name.startswith(_SECTION)
    }


def _described(attributes: memoryview) -> Layout:
    params: dict[int, tuple[int, int]] = {}
    place = 0
    while place + _ATTRIBUTE.size <= len(attributes):
        form, kind, value = _ATTRIBUTE.unpack_from(attributes, place)
        place += _ATTRIBUTE.size
        if form != _WITH_BYTES:
            continue
        if kind in (_PARAM, _LARGE_PARAM):
            if value < _DESCRIPTION.size or place + value > len(attributes) or len(params) == _PARAMS_MAX:
                raise ImageError(INVALID_IMAGE, "a cubin's description of a kernel's parameters is damaged")
            _index, ordinal, offset, word = _DESCRIPTION.unpack_from(attributes, place)
            params[ordinal] = (offset, word >> 18 if kind == _PARAM else word & 0xFFFFFF)
        place += value
    if sorted(params) != list(range(len(params))):
        raise ImageError(INVALID_IMAGE, "a cubin describes some of a kernel's parameters")
    return tuple(params[ordinal] for ordinal in range(len(params)))
