"""Finds files whose functions are called in place of libcuda's because they come before it and define its names.

The loader binds a name to the first file in the program's scope that defines it: the program, preloaded libraries, then
the needed libraries in order. A library that is opened later (dlopen) has its names bound to itself, unless its own
look-ups go through that scope; the probe detects this case (check_probe.py).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..elf import ElfError
from ..elf_symbol import read_symbols
from . import loader, mend
from .judge_library import unset_preload
from .library import describe
from .names import DRIVER, NVML
from .place import PlaceError, ask
from .report import shortened

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

_NAME = re.compile(r"(cu|nvml|cuda)[A-Z]\w*$")
_OWNERS = ("libcuda.so", "libnvidia-ml.so", "libcudart.so")
_NAMES_CAP = 4  # shown in one line
_FILES_CAP = 256


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Adds library-interposed for preloaded files, and a note for definitions in other files of the program."""
    try:
        preloaded = loader.preloaded(subject.place, subject.environment)
    except PlaceError as error:
        diagnosis.warnings.append(f"what is preloaded was not looked at: {error}")
        return
    closure = [file for file in (diagnosis.listing.libraries.values() if diagnosis.listing else ()) if file]
    own = [subject.program] if subject.program is not None else []
    files = list(dict.fromkeys([*own, *preloaded, *closure]))[:_FILES_CAP]
    found: dict[str, list[str]] = ask(subject.place.as_administrator(), _definitions, files)
    for file, names in found.items():
        if file in preloaded:
            defined = shortened(names, _NAMES_CAP)
            text = f"{file} is preloaded and defines {defined}: programs call it in place of CUDA's libraries"
            if subject.process is not None and subject.unit is None:
                value = mend.without_entry(subject.environment.get("LD_PRELOAD", ""), file)
                diagnosis.add("library-interposed", text, advice=mend.advice_for_process(subject, "LD_PRELOAD", value))
            else:
                diagnosis.add("library-interposed", text, unset_preload(subject, file))
        else:
            diagnosis.warnings.append(
                f"{file} defines {shortened(names, _NAMES_CAP)} itself, which counts before CUDA's libraries"
            )


def _definitions(files: list[str]) -> dict[str, list[str]]:
    """Runs in the program's place: file to the CUDA names that it defines; CUDA's own libraries are left out."""
    found: dict[str, list[str]] = {}
    for file in files:
        if os.path.basename(os.path.realpath(file)).startswith((*_OWNERS, "libvgpu-notice.so")):
            continue
        if _is_owner(describe(file)):
            continue
        try:
            names = sorted(name for name in read_symbols(Path(file)).defined if _NAME.match(name))
        except (ElfError, OSError):
            continue
        if any((name.startswith("cu") and not name.startswith("cuda")) or name.startswith("nvml") for name in names):
            found[file] = [name for name in names if not name.startswith("cuda")]
        elif names and not _imports_driver(file):
            found[file] = names
    return found


def _is_owner(facts: dict[str, Any]) -> bool:
    return facts["kind"] == "ours" or str(facts["soname"]).startswith((DRIVER, NVML, *_OWNERS))


def _imports_driver(file: str) -> bool:
    """Whether a file contains a static CUDA runtime; its runtime functions then concern only that file."""
    try:
        with open(file, "rb") as data:
            return b"cudaErrorCudartUnloading\0" in data.read(64 << 20)
    except OSError:
        return True
