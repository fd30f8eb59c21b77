"""The libraries that an installation copies: from beside this package, from a system package, or from a folder."""

from __future__ import annotations

from pathlib import Path

from .elf import ElfError, read_dynamic
from .layout import PROBE, PROFILERS, RELEASE, RUNTIMES, STEMS
from .libraries import LIBRARIES

_HERE = Path(__file__).resolve().parent.parent
# The folder of the libraries in the .deb and the .tar.gz; programs use only the copies made by `vgpu install`.
PACKAGED = _HERE / "payload"


class PayloadError(Exception):
    """vgpu's libraries are missing, or are not libraries."""


def find_payload(folder: Path | None = None) -> dict[str, Path]:
    """The libraries to install.

    Args:
        folder: their folder; None searches beside this package (a wheel, a checkout) and in the system's package.
    Returns:
        For each path below vgpu's library folder the file to copy: libcuda.so.RELEASE, cudart/12/libcudart.so.12, ...
        Runtimes, profilers and the doctor's probe may be missing.
    Raises:
        PayloadError: libcuda or libnvidia-ml is missing, or a file is not a 64-bit library.
    """
    folders = [folder] if folder else [LIBRARIES, PACKAGED]
    for candidate in folders:
        if _library(candidate, STEMS[0]) is not None:
            return _read(candidate)
    looked = ", ".join(map(str, folders))
    raise PayloadError(f"no libraries to install in {looked}: name their folder with --from")


def _library(folder: Path, stem: str) -> Path | None:
    # A wheel holds no links: its libraries have the names that programs open.
    names = (f"{stem}.so.{RELEASE}", f"{stem}.so.1")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for stem in STEMS:
        library = _library(folder, stem)
        if library is None:
            raise PayloadError(f"{folder} has no {stem}.so.{RELEASE}")
        files[f"{stem}.so.{RELEASE}"] = library
    for major, soname in RUNTIMES.items():
        runtime = folder / "cudart" / major / soname
        if runtime.is_file():
            files[f"cudart/{major}/{soname}"] = runtime
    for major, soname in PROFILERS.items():
        profiler = folder / "cupti" / major / soname
        if profiler.is_file():
            files[f"cupti/{major}/{soname}"] = profiler
    if (folder / PROBE).is_file():
        files[PROBE] = folder / PROBE
    for file in files.values():
        try:
            read_dynamic(file)
        except (ElfError, OSError) as error:
            raise PayloadError(str(error)) from error
    return files
