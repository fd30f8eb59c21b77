"""Which CUDA runtime will a program find: NVIDIA's, or must vgpu's be put on its path? NVIDIA's runtime works with
vgpu's driver and stays the first choice. vgpu's is for programs without one; in LD_LIBRARY_PATH it precedes RUNPATH and
the system's directories (ld.so(8)), so only the versions that the program would not find otherwise are put there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from .elf import ElfError, read_dynamic
from .preload import closure, expand, resolve_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Below this folder, beside libcuda.so.1, each runtime has its own folder, so that a path can name one of them alone.
FOLDER = "cudart"
FOLDERS = {"libcudart.so.11.0": "11", "libcudart.so.12": "12", "libcudart.so.13": "13"}
_LDCONFIG = "/sbin/ldconfig"
_LDCONFIG_TIMEOUT_S = 5.0
# An interpreter's package folders, relative to its prefix; the last two are Debian's and Ubuntu's.
_SITES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages")


def find_runtimes(program: str, environment: Mapping[str, str]) -> dict[str, Path | None]:
    """The CUDA runtimes that `program` would find without vgpu's."""
    return find_libraries(program, environment, FOLDERS)


_FOLDERS_OF_PYPI = "nvidia/*/lib"


def find_libraries(
    program: str, environment: Mapping[str, str], sonames: Iterable[str], *, cached: bool = True
) -> dict[str, Path | None]:
    """Which of NVIDIA's libraries with these names `program` would find.

    Args:
        program: The name or path of the command, as typed in a shell.
        environment: The program's environment, before vgpu adds to it.
        cached: Search the loader's cache as well, which all programs of the machine share.
    Returns:
        For each name the file that the loader or the interpreter's Python packages would provide, or None.
    """
    path = environment.get("PATH", os.defpath)
    binary = resolve_program(program, path)
    searched = _library_path(environment)
    if binary is not None:
        for file, dynamic in closure(binary):
            searched += [*expand(dynamic.rpath, file), *expand(dynamic.runpath, file)]
    searched += _python_packages([shutil.which(program, path=path), binary], environment)
    names = list(sonames)
    known = _loader_cache(names) if cached else {}
    return {soname: _first(soname, searched) or known.get(soname) for soname in names}


def _library_path(environment: Mapping[str, str]) -> list[Path]:
    return [Path(entry) for entry in environment.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if entry]


def library_folders_beside(program: str, environment: Mapping[str, str], package: str) -> list[Path]:
    """Library folders of NVIDIA's PyPI packages that are installed where the Python package is; empty if it is not."""
    path = environment.get("PATH", os.defpath)
    sites = _sites([shutil.which(program, path=path), resolve_program(program, path)], environment)
    return [folder for site in sites if (site / package).is_dir() for folder in sorted(site.glob(_FOLDERS_OF_PYPI))]


def _python_packages(programs: Iterable[str | Path | None], environment: Mapping[str, str]) -> Iterator[Path]:
    """Library folders of NVIDIA's PyPI packages: Python extensions find them by a RUNPATH or load them explicitly."""
    for site in _sites(programs, environment):
        yield from sorted(site.glob(_FOLDERS_OF_PYPI))


def _sites(programs: Iterable[str | Path | None], environment: Mapping[str, str]) -> list[Path]:
    prefixes = dict.fromkeys(Path(program).parent.parent for program in programs if program is not None)
    sites = [site for prefix in prefixes for pattern in _SITES for site in prefix.glob(pattern)]
    if "HOME" in environment:
        sites += Path(environment["HOME"]).glob(".local/lib/python3*/site-packages")
    sites += [Path(entry) for entry in environment.get("PYTHONPATH", "").split(":") if entry]
    return sites


def _first(soname: str, directories: Iterable[Path]) -> Path | None:
    return next((d / soname for d in directories if (d / soname).is_file() and _is_64_bit(d / soname)), None)


def _is_64_bit(file: Path) -> bool:
    try:
        read_dynamic(file)
    except (ElfError, OSError):
        return False
    return True


def _loader_cache(sonames: list[str]) -> dict[str, Path]:
    """The files that the loader's cache has for these names; empty without ldconfig."""
    try:
        listing = subprocess.run(
            [_LDCONFIG, "-p"], capture_output=True, text=True, timeout=_LDCONFIG_TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, Path] = {}
    for line in listing.splitlines():
        name, arrow, file = line.strip().partition(" => ")
        if arrow and name.split()[0] in sonames and "x86-64" in name and Path(file).is_file():
            found.setdefault(name.split()[0], Path(file))
    return found
