"""Fat binaries as the simulator takes them: vgpu_guest's reader, with the driver's error code, and the payloads."""

from collections.abc import Iterator

from vgpu_guest import fatbin
from vgpu_guest.fatbin import (
    KIND_ELF,
    KIND_LTO,
    KIND_PTX,
    MAGIC,
    Container,
    Entry,
    FatbinError,
    Target,
    describe,
    is_fatbin,
)

from vgpusim.image.error import INVALID_IMAGE, ImageError

from .compress import MAX_OUTPUT_NBYTES, decompress

__all__ = [
    "KIND_ELF",
    "KIND_LTO",
    "KIND_PTX",
    "MAGIC",
    "Container",
    "Entry",
    "Target",
    "describe",
    "is_fatbin",
    "payload",
    "read_container",
    "read_containers",
]


def read_container(data: memoryview) -> Container:
    """The container at the start of `data`, which may go on after it; raises ImageError(INVALID_IMAGE)."""
    try:
        return fatbin.read_container(data)
    except FatbinError as error:
        raise ImageError(INVALID_IMAGE, str(error)) from error


def read_containers(data: memoryview) -> Iterator[Container]:
    """Containers back to back, with nothing but zero bytes between and after; raises ImageError(INVALID_IMAGE)."""
    try:
        yield from fatbin.read_containers(data)
    except FatbinError as error:
        raise ImageError(INVALID_IMAGE, str(error)) from error


def payload(entry: Entry, cap_nbytes: int = MAX_OUTPUT_NBYTES) -> bytes:
    """An entry's program, decompressed; raises ImageError(INVALID_IMAGE) where it is damaged or above the cap."""
    if len(entry.stored) > cap_nbytes:
        raise ImageError(INVALID_IMAGE, f"an image entry of {len(entry.stored)} bytes exceeds {cap_nbytes}")
    return decompress(entry.compression, bytes(entry.stored), entry.uncompressed_nbytes, cap_nbytes)
