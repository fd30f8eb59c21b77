"""Compiled kernels on disk, one file each, named by a hash of everything that decides their contents.

Several workers of a tenant share a directory. They never wait for each other: a file appears complete, and may be
deleted at any time. The space in use is the length of a further file, `blocks`, to which a worker appends a byte for
each block that it stores, so that no worker needs to list the directory until it is full. Then the least recently used
files are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

DEFAULT_CAP_NBYTES = 1 << 30  # as NVIDIA's driver bounds its own cache
_MAX_NBYTES = 256 << 20  # of one object: larger files are refused
_MAGIC = b"vgpusim1"
_BLOCK_NBYTES = 4096
_KEPT = 7 / 8  # of the cap: what remains after files are deleted


class DiskCache:
    """Objects by key under a directory, which is created private to its owner. Any I/O error is a miss.

    Who may open the directory may open what it holds: workers of one tenant have different user ids.
    """

    def __init__(self, directory: str | os.PathLike[str], *, cap_nbytes: int = DEFAULT_CAP_NBYTES) -> None:
        """`cap_nbytes`: limit of the total file size; workers that store at the same moment may exceed it together."""
        self.directory = Path(directory)
        self._cap_blocks = cap_nbytes // _BLOCK_NBYTES

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.bin"

    def get(self, key: str) -> bytes | None:
        """The bytes stored under `key`, marked as used now; None when there are none or they are damaged."""
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
        with contextlib.suppress(OSError):
            os.utime(path)
        return body

    def put(self, key: str, data: bytes) -> None:
        """Store atomically: a reader sees the whole object or none. An object larger than the cap is not stored."""
        stored = _MAGIC + hashlib.sha256(data).digest() + data
        if _blocks(len(stored)) > self._cap_blocks:
            return
        path = self._path(key)
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            mode = self.directory.stat().st_mode & 0o777
            path.parent.mkdir(exist_ok=True, mode=mode)
            handle, name = tempfile.mkstemp(dir=path.parent)
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, mode & 0o666)
                file.write(stored)
            os.replace(name, path)
            self._count(_blocks(len(stored)), mode & 0o666)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)

    def _count(self, blocks: int, mode: int) -> None:
        fd = os.open(self.directory / "blocks", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            known = os.fstat(fd).st_size
            os.write(fd, b"." * blocks)  # appending is atomic
            if known == 0 or os.fstat(fd).st_size > self._cap_blocks:
                os.truncate(fd, self._make_room())
        finally:
            os.close(fd)

    def _make_room(self) -> int:
        """Remove the least recently used files if the total is over the cap. Returns the blocks left, at least 1."""
        found = []
        for path in self.directory.glob("[0-9a-f][0-9a-f]/*"):
            with contextlib.suppress(OSError):  # another worker was faster
                status = path.stat()
                found.append((status.st_mtime_ns, _blocks(status.st_size), path))
        left = sum(blocks for _, blocks, _ in found)
        if left > self._cap_blocks:
            for _, blocks, path in sorted(found):
                if left <= self._cap_blocks * _KEPT:
                    break
                with contextlib.suppress(OSError):
                    path.unlink()
                left -= blocks
        return max(1, left)


def _blocks(nbytes: int) -> int:
    return -(-nbytes // _BLOCK_NBYTES)


def key_of(*parts: str | bytes) -> str:
    """A hash of parts, each delimited by its length."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()
