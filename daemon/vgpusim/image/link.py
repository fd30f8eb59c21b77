"""cuLink: PTX inputs in, one image out that cuModuleLoadData takes back.

Nothing is linked here, and names are not resolved (vgpusim.ptx.undefined). The image is an ELF file, as clients expect
of a cubin, that carries the PTX texts unchanged and in order in the section .vgpu.ptx; the module made of it resolves
.extern symbols across its texts.
"""

from collections.abc import Sequence

from vgpusim.image.error import INVALID_IMAGE, INVALID_VALUE, NOT_SUPPORTED, ImageError

from . import elf, fatbin, image
from .compress import MAX_OUTPUT_NBYTES

FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
"""Where nvcc puts fatbins in objects, libraries and programs: whole ones, and those of relocatable device code."""

_LTO_MAGICS = (
    b"BC\xc0\xde",
    b"\xde\xc0\x17\x0b",
    b"\xed\x43\x4e\x7f",
)  # LLVM bitcode, wrapped bitcode, NVVM's container
_ARCHIVE_MAGIC = b"!<arch>\n"


def link(inputs: Sequence[bytes], compute_capability: tuple[int, int]) -> bytes:
    """Combine inputs into one image.

    Args:
        inputs: PTX texts, fatbins with PTX, host objects that carry such fatbins, or earlier results of this function.
        compute_capability: Of the device, as (9, 0).
    Raises:
        ImageError: INVALID_VALUE (no input), NOT_SUPPORTED (LTO-IR, archives), else as image.load(): foreign cubins are
            NO_BINARY_FOR_GPU.
    """
    if not inputs:
        raise ImageError(INVALID_VALUE, "nothing to link")
    return combine([text for data in inputs for text in texts_of(data, compute_capability)], compute_capability)


def combine(texts: Sequence[str], compute_capability: tuple[int, int]) -> bytes:
    """The image that carries `texts`. Raises ImageError (INVALID_IMAGE) if it is too large."""
    section = b"".join(text.encode() + b"\0" for text in texts)
    if len(section) > MAX_OUTPUT_NBYTES:
        raise ImageError(INVALID_IMAGE, f"linked image of {len(section)} bytes exceeds {MAX_OUTPUT_NBYTES}")
    major, minor = compute_capability
    return elf.write_cubin(10 * major + minor, {image.LINKED_SECTION: section})


def texts_of(data: bytes, compute_capability: tuple[int, int]) -> tuple[str, ...]:
    """The PTX texts of one input; raises ImageError as link()."""
    if data.startswith(_LTO_MAGICS):
        raise ImageError(NOT_SUPPORTED, "LTO-IR cannot be linked by the simulator: pass PTX")
    if data.startswith(_ARCHIVE_MAGIC):
        raise ImageError(NOT_SUPPORTED, "archives cannot be linked by the simulator: pass PTX")
    view = memoryview(data)
    if elf.is_elf(view):
        file = elf.read(view)
        if file.machine != elf.EM_CUDA:
            fatbins = [file.contents(section) for section in file.sections if section.name in FATBIN_SECTIONS]
            if not fatbins:
                raise ImageError(INVALID_IMAGE, "host object without device code")
            return tuple(text for part in fatbins for text in image.load(bytes(part), compute_capability).texts)
    elif fatbin.is_fatbin(view):
        entries = [entry for container in fatbin.read_containers(view) for entry in container.entries]
        if entries and all(entry.kind == fatbin.KIND_LTO for entry in entries):
            raise ImageError(NOT_SUPPORTED, "LTO-IR cannot be linked by the simulator: pass PTX")
    return image.load(data, compute_capability).texts
