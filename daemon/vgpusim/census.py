"""Which kernels of a library, fat binary or PTX text the compiler accepts, and which instruction stops the others.

Kernels are compiled as far as LLVM IR, for the block that they require; compiling the IR by LLVM is not measured.
"""

from __future__ import annotations

import mmap
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vgpusim.codegen import compile as compiler
from vgpusim.image import fatbin, image, report
from vgpusim.image.error import ImageError
from vgpusim.ptx.error import PtxError, UnsupportedInstruction
from vgpusim.ptx.module import PtxModule

_USUAL_BLOCK = 128
_GUARD = re.compile(r"^@!?\S+\s+")


@dataclass
class Census:
    """The contents of one file."""

    file: str
    containers: int = 0  # with or without PTX for the device
    modules: int = 0  # containers with PTX for the device
    unreadable: Counter[str] = field(default_factory=Counter)  # modules, by the reason
    kernels: int = 0  # in the modules that could be read
    read: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # kernels, by the instruction that stops them

    @property
    def share(self) -> float:
        """The fraction of the read kernels that the compiler accepts."""
        return self.accepted / self.read if self.read else 0.0


def take(path: Path, capability: tuple[int, int], sample: int | None = None, part: tuple[int, int] = (0, 1)) -> Census:
    """Read a file.

    Args:
        capability: Of the device that is to run it, as (13, 0).
        sample: Read about so many kernels, chosen at random with a fixed seed; None: all.
        part: Number of a part and how many there are: each reads modules of its own, and about `sample` kernels.
    Raises:
        OSError: The file cannot be read.
        ImageError: It is neither a library, a fat binary nor PTX.
    """
    census = Census(path.name)
    texts = list(_texts(path, capability, census))
    chosen = random.Random(1)
    chosen.shuffle(texts)
    texts = texts[part[0] :: part[1]]
    each = None if sample is None else -(-4 * sample // max(1, len(texts)))  # many texts hold no kernel
    for entry in texts:
        if sample is not None and census.read >= sample:
            break
        try:
            module = PtxModule.link([entry if isinstance(entry, str) else _text(entry)])
        except (ImageError, PtxError) as error:
            census.unreadable[_reason(error)] += 1
            continue
        names = list(module.entries)
        census.kernels += len(names)
        chosen.shuffle(names)
        for name in names[:each]:
            _read(module, name, census)
    return census


def _texts(path: Path, capability: tuple[int, int], census: Census) -> Iterator[str | fatbin.Entry]:
    """The PTX that the driver would select from each container, or the whole file where it is PTX text."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            raise ImageError(200, "an empty file")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # stays open while its views, the entries, exist
    for _, container in report.containers(data):
        if container == ():
            continue
        census.containers += 1
        usable = [] if isinstance(container, ImageError) else image.usable(container, capability)
        if usable:
            census.modules += 1
            yield usable[0]
    if not census.containers:
        loaded = image.load(bytes(data), capability)
        census.containers = census.modules = len(loaded.texts)
        yield from loaded.texts


def _text(entry: fatbin.Entry) -> str:
    return fatbin.payload(entry).partition(b"\0")[0].decode(errors="replace")


def _read(module: PtxModule, name: str, census: Census) -> None:
    census.read += 1
    try:
        entry = module.entry(name)
        block = entry.required_block or (min(_USUAL_BLOCK, entry.max_threads or _USUAL_BLOCK), 1, 1)
        compiler.lower(module, name, block)
    except PtxError as error:
        census.refused[_reason(error)] += 1
    except (AssertionError, RuntimeError) as error:
        census.refused[f"internal error: {type(error).__name__}"] += 1
    else:
        census.accepted += 1


def _reason(error: Exception) -> str:
    """The instruction without its operands, or the message without what differs from kernel to kernel."""
    if isinstance(error, UnsupportedInstruction):
        return _GUARD.sub("", error.instruction.strip()).split()[0].rstrip(";")
    return re.sub(r"^.*?: ", "", str(error))[:80]
