"""The files that open CUDA's libraries for a program: the program itself, and those of its libraries that have a search
path of their own.

A library that calls dlopen has its own RPATH or RUNPATH searched, not its program's (ld.so(8)); a program that hands
its plugins' folders to a child in LD_LIBRARY_PATH has them searched first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..elf import ElfError, read_dynamic
from ..preload import expand

_ASKERS_CAP = 16  # number of different paths; of a program with more, only the first ones are checked


@dataclass(frozen=True)
class Asker:
    """A file that may call dlopen, and the paths it has for that."""

    file: str
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def read_paths(files: list[str]) -> list[dict[str, Any]]:
    """In the program's place: the search paths that files name (RPATH, RUNPATH), each once."""
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
    """Whether a library is in a folder that every program searches: it has no path of its own."""
    folder = os.path.dirname(file)
    return folder in ("/lib", "/usr/lib", "/lib64", "/usr/lib64") or folder.endswith("/x86_64-linux-gnu")
