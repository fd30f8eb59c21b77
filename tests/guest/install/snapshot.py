"""A tree byte for byte, to compare before and after."""

from __future__ import annotations

import os
import stat
from pathlib import Path

# Inodes and times of all libraries, in the order of a hash table: ldconfig's own memory, never twice the same.
AUXILIARY_CACHE = "var/cache/ldconfig/aux-cache"
LOADER_CACHES = ("etc/ld.so.cache", AUXILIARY_CACHE)  # rewritten; the first with the same content


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Of each path below `root` its kind, mode, owner and content; folders' times change with what is put in them."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder, name)
            status = path.lstat()
            kind = stat.S_IFMT(status.st_mode)
            content: object = None
            if kind == stat.S_IFLNK:
                content = os.readlink(path)
            elif kind == stat.S_IFREG:
                where = str(path.relative_to(root))
                content = (
                    b"" if where == AUXILIARY_CACHE else path.read_bytes(),
                    0 if where in LOADER_CACHES else status.st_mtime_ns,
                )
            found[str(path.relative_to(root))] = (
                kind,
                stat.S_IMODE(status.st_mode),
                status.st_uid,
                status.st_gid,
                content,
            )
    return found
