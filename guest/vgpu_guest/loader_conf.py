"""The loader's configuration: the folders in ld.so.conf and in the files that it includes, in ldconfig's order.

The caller passes the function that reads files, so that a tree under another root and the root of a running process are
read alike. Nothing here writes.
"""

from __future__ import annotations

import fnmatch
import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .layout import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAIN = "/etc/ld.so.conf"
_OURS = f"/{SYSTEM.loader}"
_DEPTH_CAP = 4
_LINES_CAP = 4096


@dataclass(frozen=True)
class Reader:
    """How to read a system: `text` returns a file's content or None, `names` the entries of a folder."""

    text: Callable[[str], str | None]
    names: Callable[[str], list[str]]


@dataclass(frozen=True)
class Obstacle:
    """Why vgpu's folder does not come first, and a command that puts it first; both "" if unknown."""

    why: str = ""
    mend: str = ""


def folders(reader: Reader, file: str = MAIN, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Each folder with the file that names it."""
    text = reader.text(file)
    if text is None or depth > _DEPTH_CAP:
        return
    for line in text.splitlines()[:_LINES_CAP]:
        words = line.partition("#")[0].split()
        if words[:1] == ["include"]:
            for pattern in words[1:]:
                for included in _matching(reader, os.path.join(os.path.dirname(file), pattern)):
                    yield from folders(reader, included, depth + 1)
        elif words and words[0] != "hwcap":
            for word in line.partition("#")[0].replace(",", " ").replace(":", " ").split():
                yield word.rstrip("/") or "/", file


def _matching(reader: Reader, pattern: str) -> list[str]:
    folder, name = os.path.split(pattern)
    return [f"{folder}/{entry}" for entry in sorted(reader.names(folder)) if fnmatch.fnmatchcase(entry, name)]


def obstacle(reader: Reader, winner: str) -> Obstacle:
    """Why /usr/lib/vgpu is not the first folder, although `vgpu install` has configured it.

    Args:
        winner: the file that is found instead, "" if none is.
    """
    if reader.text(_OURS) is None:
        return Obstacle()
    order = list(folders(reader))
    ours = next((index for index, (folder, _) in enumerate(order) if folder == f"/{SYSTEM.libraries}"), None)
    include = f"include {_OURS}"
    text = reader.text(MAIN)
    if text:
        mend = f"sudo sed -i {shlex.quote(f'1i {include}')} {MAIN} && sudo ldconfig"
    else:
        mend = f"echo {shlex.quote(include)} | sudo tee -a {MAIN} && sudo ldconfig"
    if ours is None:
        return Obstacle(f"{MAIN} does not include {_OURS}", mend)
    folder = os.path.dirname(winner)
    before = next((file for name, file in order[:ours] if name == folder), None)
    if before is not None:
        return Obstacle(f"{winner} comes first, for {before} is read before {_OURS}", mend)
    return Obstacle("the loader's cache is older than its configuration", "sudo ldconfig")
