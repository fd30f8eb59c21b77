"""The pages that workers share with their launcher: see daemon/executor/vgx_template.h."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

_ARENA_NBYTES = 256 << 10  # Python's allocator of small objects maps so much at a time, or more
_RANGE_NBYTES = 64 << 20  # greater mappings are reserved addresses rather than data
# VmFlags of ordinary memory (Documentation/filesystems/proc.rst). Others change what a page means: `wf`, whose pages a
# child does not inherit (libc's random numbers), `gd`, a stack, `lo`, locked.
_ORDINARY = frozenset(["rd", "wr", "mr", "mw", "me", "ac", "nr", "sd"])


def make(executor: Any) -> None:
    """Called in the launcher when everything is loaded: prepares for workers to drop pages. If this fails, workers
    only use more memory.
    """
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as file:
        found = list(ranges(file))
    if error := executor.lib.vgx_template_make(executor.ffi.new("struct vgx_range[]", found), len(found)):
        os.write(2, f"<6>workers share fewer pages: {os.strerror(error)}\n".encode())


def ranges(smaps: Iterable[str]) -> Iterable[tuple[int, int, bool]]:
    """The private, writable, ordinary mappings in the lines of an smaps file: address, bytes, and whether Python may
    have its objects there: not in a file's and not in a small one."""
    address = nbytes = 0
    folds = False
    for line in smaps:
        words = line.split()
        if words[0] == "VmFlags:":
            if nbytes and _ORDINARY.issuperset(words[1:]):
                yield address, nbytes, folds
        elif not words[0].endswith(":"):
            address, end = (int(word, 16) for word in words[0].split("-"))
            nbytes = end - address if words[1] == "rw-p" and end - address <= _RANGE_NBYTES else 0
            folds = len(words) == 5 and nbytes >= _ARENA_NBYTES
