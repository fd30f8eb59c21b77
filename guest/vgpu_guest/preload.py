"""Will a program find vgpu's libcuda through LD_LIBRARY_PATH?

ld.so(8): DT_RPATH, of the program or of what loads the library, is searched before LD_LIBRARY_PATH, DT_RUNPATH after
it. If such a path holds another libcuda, vgpu's must be preloaded.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from .elf import Dynamic, ElfError, read_dynamic

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARY = "libcuda.so.1"
_FILES_CAP = 256  # at most so many files of a dependency graph are examined
_SHEBANG_NBYTES = 256


def resolve_program(name: str, path: str) -> Path | None:
    """The binary that execvp(name) runs in the end, after following `#!` lines; None if there is none."""
    found = shutil.which(name, path=path)
    for _ in range(4):
        if found is None:
            return None
        with open(found, "rb") as file:
            head = file.read(_SHEBANG_NBYTES)
        if not head.startswith(b"#!"):
            return Path(found)
        words = head[2:].split(b"\n", 1)[0].decode(errors="replace").split()
        if words and os.path.basename(words[0]) == "env":
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        found = shutil.which(words[0], path=path) if words else None
    return None


def winning_rpath(program: Path) -> Path | None:
    """A libcuda.so.1 that the loader finds by an RPATH, before LD_LIBRARY_PATH, or None. Skips unreadable files."""
    for file, dynamic in closure(program):
        for directory in expand(dynamic.rpath, file):
            candidate = directory / _LIBRARY
            if candidate.exists():
                return candidate
    return None


def closure(program: Path) -> Iterator[tuple[Path, Dynamic]]:
    """The program and the libraries it needs, as far as RPATH and RUNPATH lead to them.

    Libraries of the system's directories are left out: none of them has an RPATH to a libcuda.
    """
    waiting, seen = [program.resolve()], set[Path]()
    while waiting and len(seen) < _FILES_CAP:
        file = waiting.pop(0)
        if file in seen:
            continue
        seen.add(file)
        try:
            dynamic = read_dynamic(file)
        except (ElfError, OSError):
            continue
        yield file, dynamic
        directories = [*expand(dynamic.rpath, file), *expand(dynamic.runpath, file)]
        for name in dynamic.needed:
            candidates = [Path(name)] if "/" in name else [directory / name for directory in directories]
            waiting += [candidate.resolve() for candidate in candidates if candidate.is_file()][:1]


def expand(paths: tuple[str, ...], file: Path) -> list[Path]:
    tokens = {"ORIGIN": str(file.parent), "LIB": "lib/x86_64-linux-gnu", "PLATFORM": "x86_64"}
    directories = []
    for path in paths:
        for token, value in tokens.items():
            path = path.replace(f"${{{token}}}", value).replace(f"${token}", value)
        directories.append(Path(path))
    return directories
