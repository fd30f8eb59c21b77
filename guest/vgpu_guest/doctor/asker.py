"""The files that open CUDA's libraries for a program: the program itself, and those of its libraries that have a search
path of their own.

When a library calls dlopen, the loader searches the RPATH or RUNPATH of that library, not of the program (ld.so(8)). If
a program passes its plugins' folders to a child in LD_LIBRARY_PATH, the loader searches those first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..elf import ElfError, read_dynamic
from ..preload import expand

_ASKERS_CAP = 16  # number of distinct search paths that are checked


@dataclass(frozen=True)
class Asker:
    """A file that may call dlopen, and its search paths."""

    file: str
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def read_paths(files: list[str]) -> list[dict[str, Any]]:
    """Runs in the program's place: the distinct search paths (RPATH, RUNPATH) of the files."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for file in files:
        try:
            dynamic = read_dynamic(Path(file))
        except (ElfError, OSError):
            continue
        real = Path(file).resolve()
        rpath = [str(path) for path in expand(dynamic.rpath, real)]
        runpath = [str(path) for path in expand(dynamic.runpath, real)]
        if (rpath or runpath) and len(found) < _ASKERS_CAP:
            found.setdefault((*rpath, None, *runpath), {"file": file, "rpath": rpath, "runpath": runpath})
    return list(found.values())


def from_json(entry: dict[str, Any]) -> Asker:
    """The answer of `read_paths` for one file."""
    return Asker(entry["file"], tuple(entry["rpath"]), tuple(entry["runpath"]))


def is_systems(file: str) -> bool:
    """Whether a library is in a system folder; such libraries are taken to have no RPATH or RUNPATH."""
    folder = os.path.dirname(file)
    return folder in ("/lib", "/usr/lib", "/lib64", "/usr/lib64") or folder.endswith("/x86_64-linux-gnu")
