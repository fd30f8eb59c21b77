"""Compiled kernels on disk, one file each, named by a hash of everything that decides their contents."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

_MAX_NBYTES = 256 << 20  # of one object: larger files are not ours
_MAGIC = b"vgpusim1"


class DiskCache:
    """Objects by key under a directory, which is created private to its owner. Any I/O error is a miss."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.bin"

    def get(self, key: str) -> bytes | None:
        """The bytes stored under `key`; None when there are none or they are damaged."""
        try:
            path = self._path(key)
            if path.stat().st_size > _MAX_NBYTES:
                return None
            data = path.read_bytes()
        except OSError:
            return None
        digest, body = data[len(_MAGIC) : len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
        if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
            return None
        return body

    def put(self, key: str, data: bytes) -> None:
        """Store atomically: a reader sees the whole object or none."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=path.parent)
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(data).digest() + data)
            os.replace(name, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)


def key_of(*parts: str | bytes) -> str:
    """A hash of parts, each delimited by its length."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()
