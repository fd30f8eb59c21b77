"""Is a tree a system that vgpu's libraries can run in? This is checked before anything is written to it."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from .elf import MAGIC
from .installer import InstallError

if TYPE_CHECKING:
    from .tree import Tree

_LOADER = "lib64/ld-linux-x86-64.so.2"
_PROGRAMS = ("bin/sh", "usr/bin/env", "sbin/ldconfig", "usr/sbin/ldconfig", "bin/busybox", "usr/bin/dpkg")
_X86_64 = 62
_MACHINES = {3: "x86 of 32 bits", 40: "arm", 62: "x86-64", 183: "aarch64", 21: "ppc64", 22: "s390x", 243: "riscv"}
_HEAD_NBYTES = 64


def check_system(tree: Tree) -> None:
    """Raise InstallError for a tree whose programs are of another architecture, or that has no glibc loader.

    A tree without any program is accepted.
    """
    heads = [head for path in _PROGRAMS if (head := _head(tree, path))[:4] == MAGIC and len(head) >= 20]
    if not heads:
        return
    machines = {struct.unpack_from("<H", head, 18)[0] for head in heads}
    if _X86_64 not in machines:
        names = ", ".join(_MACHINES.get(machine, f"machine {machine}") for machine in sorted(machines))
        raise InstallError(f"{tree.root} is a system for {names}, and the libraries are for x86-64")
    if not _head(tree, _LOADER):
        raise InstallError(
            f"{tree.root} has no /{_LOADER}: its C library is not glibc (musl?), which the libraries need"
        )


def _head(tree: Tree, path: str) -> bytes:
    try:
        with tree.open(tree.follow(path)) as fd:
            return os.read(fd, _HEAD_NBYTES)
    except OSError:
        return b""


def user_writable(program: str) -> str:
    """The first folder or file on the path to a program (links followed) that users other than root may write; ""."""
    real = os.path.realpath(program)
    parts = [real]
    while parts[-1] != "/":
        parts.append(os.path.dirname(parts[-1]))
    for part in reversed(parts):
        try:
            status = os.stat(part)
        except OSError:
            return part
        sticky = bool(status.st_mode & 0o1000) and part != real
        if status.st_uid != 0 or (status.st_mode & 0o022 and not sticky):
            return part
    return ""
