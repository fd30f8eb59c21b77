"""Prepares compiled files for shipping: strips debug information, and checks which glibc they need."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# glibc versions: Ubuntu 22.04 has 2.35, Debian 12 2.36, Ubuntu 24.04 2.39, Debian 13 2.41.
OLDEST_GLIBC = (2, 35)  # for the bundle, because of its Python
OLDEST_GUEST_GLIBC = (2, 34)  # for a guest's files: the version of RHEL 9
_ELF = b"\x7fELF"
_TOOL_TIMEOUT_S = 120


class TooNewError(ValueError):
    """A file needs a newer glibc than the packages declare; the text names it."""


def stripped(file: Path) -> bytes:
    """The content of a file without debug information and without symbols that are not needed at run time."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / file.name
        subprocess.run(["strip", "--strip-unneeded", "-o", str(target), str(file)], check=True, timeout=_TOOL_TIMEOUT_S)
        return target.read_bytes()


def is_elf(file: Path) -> bool:
    """Whether a file is a regular ELF file; False for a link."""
    if file.is_symlink() or not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(_ELF)) == _ELF


def glibc_needed(files: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """For each file the newest glibc version that its symbols require, (0, 0) if none."""
    needed = {}
    for file in files:
        listing = subprocess.run(
            ["readelf", "--version-info", "--wide", str(file)],
            capture_output=True,
            text=True,
            check=True,
            timeout=_TOOL_TIMEOUT_S,
        ).stdout
        versions = [(int(major), int(minor)) for major, minor in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", listing)]
        needed[file] = max(versions, default=(0, 0))
    return needed


def newest_glibc(folder: Path) -> tuple[int, int]:
    """The oldest glibc with which all compiled files below `folder` work.

    Raises:
        TooNewError: that version is newer than OLDEST_GLIBC.
    """
    needed = glibc_needed(file for file in sorted(folder.rglob("*")) if is_elf(file))
    for file, version in needed.items():
        if version > OLDEST_GLIBC:
            wanted, promised = (".".join(map(str, number)) for number in (version, OLDEST_GLIBC))
            raise TooNewError(f"{file.relative_to(folder)} needs glibc {wanted}, and {promised} is promised")
    return max(needed.values())
