"""Leftovers of earlier attempts that obstruct a service: files with CUDA's names in the program's own folders, and a
preloaded file.

A drop-in cannot override them: a program that searches its own folder first finds them before anything else.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from .elf import ElfError
from .elf_symbol import read_symbols

if TYPE_CHECKING:
    from .service import Service
    from .tree import Tree

DRIVER_FILE = re.compile(r"lib(cuda|nvidia-ml)\.so(\.[0-9.]+)?")
_FOLDERS_CAP = 64
_FILE_CAP = 1 << 20
_NAME = re.compile(r"(cu|nvml)[A-Z]\w*$")
_OURS = "usr/lib/vgpu/"


def own_folders(program: str) -> list[str]:
    """The folders of a program's own libraries: ../lib/NAME relative to the program's folder, and that folder itself
    unless it is a bin or sbin."""
    folder, name = os.path.split(program)
    return [os.path.join(os.path.dirname(folder), "lib", name), *([] if _is_shared(folder) else [folder])]


def _is_shared(folder: str) -> bool:
    return os.path.basename(folder) in ("bin", "sbin")


def warnings(tree: Tree, service: Service) -> list[str]:
    """One line for each leftover, with the command that removes it."""
    found = []
    program = service.program()
    for folder in own_folders(program) if program.startswith("/") else []:
        for path in _files(tree, folder.lstrip("/")):
            found.append(
                f"{service.name}: {tree.show(path)} is not part of the program and is found before vgpu's: "
                f"sudo rm {shlex.quote(str(tree.show(path)))}"
            )
    for entry in re.split(r"[: ]+", service.variable("LD_PRELOAD")):
        names = _cuda_names(tree, entry) if entry.startswith("/") else []
        if names:
            where = ", ".join(f"/{path}" for path in [service.file, *service.drop_ins] if _mentions(tree, path, entry))
            found.append(
                f"{service.name}: LD_PRELOAD={entry} defines {names[0]} and is called in libcuda's place: take it out "
                f"of {where}"
            )
    return found


def _mentions(tree: Tree, path: str, text: str) -> bool:
    try:
        return text.encode() in tree.read(tree.follow(path), _FILE_CAP)
    except (OSError, ValueError):
        return False


def _files(tree: Tree, folder: str) -> list[str]:
    try:
        names = sorted(tree.names(folder))[:_FOLDERS_CAP]
    except OSError:
        return []
    found = []
    for name in names:
        path = f"{folder}/{name}"
        status = tree.status(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            found += [f"{path}/{below}" for below in tree.names_if_any(path) if DRIVER_FILE.fullmatch(below)]
        elif DRIVER_FILE.fullmatch(name):
            found.append(path)
    return [path for path in found if not _leads_to_ours(tree, path)]


def _leads_to_ours(tree: Tree, path: str) -> bool:
    try:
        return tree.follow(path).startswith(_OURS)
    except OSError:
        return False


def _cuda_names(tree: Tree, file: str) -> list[str]:
    """Driver functions that a file defines; none for vgpu's own files, which are not leftovers."""
    try:
        path = tree.follow(file.lstrip("/"))
        if path.startswith(_OURS):
            return []
        defined = read_symbols(Path(tree.root, path)).defined
    except (ElfError, OSError):
        return []
    return sorted(name for name in defined if _NAME.match(name) and not name.startswith("cuda"))
