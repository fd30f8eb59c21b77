"""How much of each simulated device's memory every session uses: a file that all workers map, with a row for each
(daemon/vgpusim/device/vgx_sim_ledger.h)."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections import deque

ROWS = 1024
_DEVICES = 16
_WORD = struct.Struct("<Q")
_ROW_NBYTES = _DEVICES * _WORD.size


class Ledger:
    """The file. A session past the last row is not counted. All methods run on the event loop."""

    def __init__(self) -> None:
        """Raises OSError."""
        nbytes = (1 + ROWS) * _ROW_NBYTES  # the first row holds how many were ever given out
        self._fd = os.memfd_create("vgpu-ledger", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, nbytes)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._memory = mmap.mmap(self._fd, nbytes)
        self._count = 0
        self._free: deque[int] = deque()

    def fileno(self) -> int:
        """What workers map."""
        return self._fd

    def take(self) -> int | None:
        """A row of zeros; None when all are taken."""
        if self._free:
            return self._free.popleft()
        if self._count == ROWS:
            return None
        self._count += 1
        _WORD.pack_into(self._memory, 0, self._count)
        return self._count - 1

    def give_back(self, row: int) -> None:
        """Its worker has ended: what it used is free."""
        start = (1 + row) * _ROW_NBYTES
        self._memory[start : start + _ROW_NBYTES] = bytes(_ROW_NBYTES)
        self._free.append(row)

    def used(self, device: int) -> int:
        """Bytes of a device that all sessions use."""
        rows = range(1, 1 + self._count)
        words = (_WORD.unpack_from(self._memory, row * _ROW_NBYTES + device * _WORD.size) for row in rows)
        return sum(word for (word,) in words)
