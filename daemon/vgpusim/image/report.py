"""What an image, library or program carries: the command `python -m vgpusim.image`."""

import argparse
import mmap
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from vgpu_guest.fatbin import Compression

from vgpusim.image.error import ImageError

from . import elf, fatbin, image
from .fatbin import Entry, Target
from .link import FATBIN_SECTIONS


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; 0 if every container has PTX for the device, 1 if not, 2 if the file cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m vgpusim.image", description="List the device code that a file carries."
    )
    parser.add_argument("file", type=Path, help="a program, shared library, object, fatbin, cubin or PTX")
    parser.add_argument("--cc", type=_compute_capability, default=(9, 0), help="compute capability (default 9.0)")
    options = parser.parse_args(arguments)
    try:
        with options.file.open("rb") as file:
            if options.file.stat().st_size == 0:
                print(f"{options.file}: empty")
                return 1
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return report(data, options.cc)
    except OSError as error:
        print(f"{options.file}: {error.strerror}", file=sys.stderr)
        return 2


def report(data: mmap.mmap | bytes, compute_capability: tuple[int, int]) -> int:
    """Print one line a container and a summary; returns main()'s exit status."""
    total = usable = damaged = 0
    kinds: Counter[tuple[str, Target]] = Counter()
    for offset, container in containers(data):
        if container == ():
            continue  # nvcc leaves an empty container in files that it links
        total += 1
        if isinstance(container, ImageError):
            damaged += 1
            print(f"{offset:#x}: damaged: {container}")
            continue
        best = image.usable(container, compute_capability)
        usable += bool(best)
        kinds.update((entry.kind_name, entry.target) for entry in container)
        contents = "; ".join(map(_entry_text, container))
        print(f"{offset:#x}: {contents} -> {best[0].target if best else 'none'}")
        del best, container  # their views keep the file mapped
    device = f"compute capability {compute_capability[0]}.{compute_capability[1]}"
    if total:
        ordered = sorted(kinds.items(), key=lambda item: (item[0][0], item[0][1].preference))
        print("; ".join(f"{kind} {target} x{count}" for (kind, target), count in ordered))
        print(f"{usable} of {total} containers have PTX for {device}" + (f", {damaged} damaged" if damaged else ""))
        return 0 if usable == total else 1
    try:
        with memoryview(data) as view:
            if elf.is_elf(view) and elf.read(view).machine != elf.EM_CUDA:
                print("no device code")
                return 1
        print(image.load(bytes(data), compute_capability).origin)
    except ImageError as error:
        print(f"error {error.result}: {error}")
        return 1
    return 0


def _compute_capability(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,2})\.([0-9])", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 9.0")
    return int(found[1]), int(found[2])


def _entry_text(entry: Entry) -> str:
    size = f"{len(entry.stored)} bytes"
    if entry.compression is not Compression.NONE:
        size = f"{entry.compression.value}, {len(entry.stored)} of {entry.uncompressed_nbytes} bytes"
    return f"{entry.kind_name} {entry.target} ({size})"


def containers(data: mmap.mmap | bytes) -> Iterator[tuple[int, tuple[Entry, ...] | ImageError]]:
    """Offsets and entries of all containers: in nvcc's sections, or anywhere in a file that has none of them."""
    with memoryview(data) as view:
        regions = [(0, len(view))]
        if elf.is_elf(view):
            try:
                file = elf.read(view)
            except ImageError:
                pass  # the section table is damaged or cut off: search everywhere
            else:
                named = [(s.offset, s.offset + s.nbytes) for s in file.sections if s.name in FATBIN_SECTIONS]
                regions = named or regions
                del file
        for place, end in regions:
            while (place := data.find(fatbin.MAGIC, place, end)) >= 0:
                try:
                    container = fatbin.read_container(view[place:end])
                except ImageError as error:
                    if len(regions) == 1 and regions[0] == (0, len(view)):
                        place += 4  # a chance match or a damaged container: they cannot be distinguished
                        continue
                    yield place, error
                    place += 4
                else:
                    yield place, container.entries
                    place += container.nbytes
                    del container
