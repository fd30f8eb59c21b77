"""Images as clients load them: PTX text, fat binaries, cuLink's output. What comes out is PTX that the device can run.

`python -m vgpusim.image FILE` lists what a program, library or image carries.
"""

import re
from dataclasses import dataclass

from vgpusim.image.error import INVALID_IMAGE, INVALID_PTX, NO_BINARY_FOR_GPU, ImageError
from vgpusim.ptx.undefined import Rule

from . import elf, fatbin
from .compress import MAX_OUTPUT_NBYTES
from .fatbin import Entry, Target

LINKED_SECTION = ".vgpu.ptx"
"""Where link.link() puts its texts, each ended by a NUL."""

# CuPy brings machine code for its reductions, which the simulator cannot run: without the empty CUPY_ACCELERATORS,
# CuPy would still use it with CUPY_COMPILE_WITH_PTX=1, and the results of sums would never be written.
REMEDY = (
    "rebuild with -gencode arch=compute_75,code=compute_75; "
    "for CuPy set CUPY_COMPILE_WITH_PTX=1 and CUPY_ACCELERATORS= (empty); "
    "for numba, PyTorch, TensorFlow, Triton, JAX: vgpu run; for Warp: vgpu run --gpu forward-next"
)

INVALID_REMEDY = "pass PTX, a fatbin or a cubin, whole and as nvcc wrote it"

# Blanks and comments; possessive, so that hostile text costs one pass.
_BLANK = rb"(?:\s++|//[^\n]*+|/\*.*?\*/)*+"
_VERSION = re.compile(_BLANK + rb"\.version\s++[0-9]{1,4}\.[0-9]{1,4}" + _BLANK, re.DOTALL)
_TARGET = re.compile(rb"\.target\s++(\w++)")

# Architectures above 9.0 that PTX ISA 9.4 defines. A greater number that is neither here nor the device's own is a
# mistake, not a newer card. (LLVM accepts any number and writes the one of the device.)
_NEWER_ARCHITECTURES = frozenset({100, 101, 103, 110, 120, 121})


@dataclass(frozen=True)
class PtxImage:
    """PTX of one module. With several texts (linked, or one a translation unit) a symbol may be defined in any of them:
    the code that builds the module resolves .extern declarations across them."""

    texts: tuple[str, ...]
    origin: str  # what was found and picked, one line for the log
    rule: Rule = Rule.LINKED


def load(data: bytes, compute_capability: tuple[int, int]) -> PtxImage:
    """Find PTX for a device in an image.

    The `.version` of the PTX is not judged: what a later one adds is refused where it is used.

    Args:
        data: PTX text (ended by a NUL or not), fatbin containers back to back, or an ELF image made by link.link().
        compute_capability: Of the device, as (9, 0).
    Raises:
        ImageError: INVALID_IMAGE (neither of these, truncated, or sizes that lie), INVALID_PTX (text without a .target
            that this device can run), NO_BINARY_FOR_GPU (a fatbin or ELF file without PTX that this device can run; the
            message names what there is). These are the codes of the 580 driver on an H100.
    """
    try:
        return _load(data, compute_capability)
    except ImageError as error:
        if error.result != INVALID_IMAGE:
            raise
        raise ImageError(INVALID_IMAGE, f"{error}: {INVALID_REMEDY}") from error


def _load(data: bytes, compute_capability: tuple[int, int]) -> PtxImage:
    view = memoryview(data)
    if elf.is_elf(view):
        return _load_elf(view, compute_capability)
    if fatbin.is_fatbin(view):
        return _load_fatbin(view, compute_capability)
    if len(data) > MAX_OUTPUT_NBYTES:
        raise ImageError(INVALID_IMAGE, f"an image of {len(data)} bytes exceeds {MAX_OUTPUT_NBYTES}")
    text, target = _read_ptx(data, compute_capability)
    if not _runs(target, compute_capability):
        # Not NO_BINARY_FOR_GPU: the 580 driver answers INVALID_PTX for any text that it cannot assemble.
        major, minor = compute_capability
        raise ImageError(INVALID_PTX, f"PTX text for {target} does not run on sm_{major}{minor}: {REMEDY}")
    return PtxImage((text,), f"PTX text for {target}", Rule.WHOLE)


def _load_elf(data: memoryview, compute_capability: tuple[int, int]) -> PtxImage:
    file = elf.read(data)
    section = file.section(LINKED_SECTION)
    if file.machine != elf.EM_CUDA:
        raise ImageError(INVALID_IMAGE, f"an ELF file for processors (machine {file.machine}), not for GPUs")
    if section is None:
        raise _no_binary(f"ELF sm_{file.sm}", compute_capability)
    if section.nbytes > MAX_OUTPUT_NBYTES:
        raise ImageError(INVALID_IMAGE, f"linked image of {section.nbytes} bytes exceeds {MAX_OUTPUT_NBYTES}")
    pieces = bytes(file.contents(section)).split(b"\0")
    if len(pieces) < 2 or pieces.pop() != b"":
        raise ImageError(INVALID_IMAGE, f"linked image: {LINKED_SECTION} is damaged")
    read = [_read_ptx(piece, compute_capability) for piece in pieces]
    for _, target in read:
        if not _runs(target, compute_capability):
            raise _no_binary(f"linked PTX {target}", compute_capability)
    return PtxImage(tuple(text for text, _ in read), f"linked image of {len(read)} PTX texts")


def _load_fatbin(data: memoryview, compute_capability: tuple[int, int]) -> PtxImage:
    """One text of each container that has one: containers back to back are the translation units of one module."""
    texts: list[str] = []
    picked: list[str] = []
    found: list[Entry] = []
    left_nbytes = MAX_OUTPUT_NBYTES
    for container in fatbin.read_containers(data):
        found += container.entries
        choice = _pick(container.entries, compute_capability, left_nbytes)
        if choice is not None:
            text, target, payload_nbytes = choice
            left_nbytes -= payload_nbytes
            texts.append(text)
            picked.append(str(target))
    summary = fatbin.describe(found)
    if not texts:
        raise _no_binary(summary, compute_capability)
    return PtxImage(tuple(texts), f"fatbin ({summary}): PTX for {', '.join(dict.fromkeys(picked))}")


def usable(entries: tuple[Entry, ...], compute_capability: tuple[int, int]) -> list[Entry]:
    """The PTX entries that a device can run, the best match first."""
    running = [e for e in entries if e.kind == fatbin.KIND_PTX and _runs(e.target, compute_capability)]
    return sorted(running, key=lambda e: (e.target.runs_on(compute_capability), e.target.preference), reverse=True)


def _runs(target: Target, compute_capability: tuple[int, int]) -> bool:
    """The driver's rule; a device newer than all others also belongs to every family: cuDNN has PTX for sm_120f."""
    newer = compute_capability > divmod(max(_NEWER_ARCHITECTURES), 10)
    return target.runs_on(compute_capability) or (newer and target.suffix == "f")


def _pick(
    entries: tuple[Entry, ...], compute_capability: tuple[int, int], cap_nbytes: int
) -> tuple[str, Target, int] | None:
    for entry in usable(entries, compute_capability):
        payload = fatbin.payload(entry, cap_nbytes)
        text, target = _read_ptx(payload, compute_capability)
        if _runs(target, compute_capability):  # the text takes precedence over the entry
            return text, target, len(payload)
    return None


def _read_ptx(data: bytes, compute_capability: tuple[int, int]) -> tuple[str, Target]:
    """The text up to its NUL, and its first target."""
    data = data.partition(b"\0")[0]
    version = _VERSION.match(data)
    if version is None:
        raise ImageError(INVALID_IMAGE, "neither PTX (no .version at the start), nor a fatbin, nor an ELF image")
    named = _TARGET.match(data, version.end())
    if named is None:
        raise ImageError(INVALID_PTX, "PTX without .target after .version")
    name = named[1][:32].decode("latin-1")
    target = Target.parse(name)
    known = {10 * compute_capability[0] + compute_capability[1], *_NEWER_ARCHITECTURES}
    if target is None or (target.number > 90 and target.number not in known):
        raise ImageError(INVALID_PTX, f"PTX for an unknown target {name}")
    return data.decode("utf-8", errors="replace"), target


def _no_binary(found: str, compute_capability: tuple[int, int]) -> ImageError:
    major, minor = compute_capability
    return ImageError(NO_BINARY_FOR_GPU, f"{found}; no PTX that runs on sm_{major}{minor}: {REMEDY}")
