"""The contents of a directory tree, byte for byte, to be compared before and after a change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

# ldconfig's cache of all libraries' inodes and times, in the order of a hash table: it differs after every run.
AUXILIARY_CACHE = "var/cache/ldconfig/aux-cache"
LOADER_CACHES = ("etc/ld.so.cache", AUXILIARY_CACHE)  # ldconfig rewrites both, ld.so.cache with the same content


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Kind, mode, owner and content of each path, and mtime of files; a folder's mtime changes with its entries."""
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
