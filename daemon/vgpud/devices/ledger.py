"""What each session uses: memory of each simulated device, memory of the host, and what else its tenant has quotas
for. A file that all workers map, with a row for each session.

A row names its tenant, so that a tenant's sessions can be counted together. The layout is that of
protocol/c/vgw_ledger.h.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import struct
from collections import deque

from vgpud._gen.api import QUOTAS

ROWS = 1024
_CAP = 2**53  # workers write the rows: limit values to what JSON and Prometheus hold exactly
_HOST = 16  # after the columns of simulated devices: client memory that workers map
_QUOTAS = _HOST + 1  # then a column that is not read here, and the quotas in the order of QUOTAS
_COLUMNS = 48
_WORD = struct.Struct("<Q")
_ROW_NBYTES = _COLUMNS * _WORD.size
_TENANTS_AT = (1 + ROWS) * _ROW_NBYTES
NBYTES = _TENANTS_AT + ROWS * _WORD.size


class Ledger:
    """The file. A session past the last row is not counted. All methods run on the event loop."""

    def __init__(self, fd: int | None = None, owners: dict[int, str] | None = None) -> None:
        """A new file, or the previous vgpud's: `fd`, and `owners`, the tenant of each row. Raises OSError."""
        if fd is None:
            fd = os.memfd_create("vgpu-ledger", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, NBYTES)  # the first row holds how many rows have ever been assigned
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._fd = fd
        self._memory = mmap.mmap(self._fd, NBYTES)
        self._owners: dict[int, str] = dict(owners or {})  # by row
        (self._count,) = _WORD.unpack_from(self._memory, 0)
        self._free = deque(row for row in range(self._count) if row not in self._owners)
        self._tenants: dict[str, tuple[int, int]] = {}  # by name: the tenant's number, the count of its rows
        for row, tenant in self._owners.items():
            (number,) = _WORD.unpack_from(self._memory, _TENANTS_AT + row * _WORD.size)
            self._tenants[tenant] = number, self._tenants.get(tenant, (number, 0))[1] + 1
        self._numbers = itertools.count(1 + max((number for number, _ in self._tenants.values()), default=0))

    @property
    def owners(self) -> dict[int, str]:
        """The tenant of each row that a session has."""
        return dict(self._owners)

    def fileno(self) -> int:
        """What workers map."""
        return self._fd

    def set_absent(self, mask: int) -> None:
        """Tell all workers which devices are out of service."""
        _WORD.pack_into(self._memory, _WORD.size, mask)

    def take(self, tenant: str) -> int | None:
        """A row of zeros for a session of this tenant; None when all are taken."""
        if self._free:
            row = self._free.popleft()
        elif self._count == ROWS:
            return None
        else:
            row = self._count
            self._count += 1
            _WORD.pack_into(self._memory, 0, self._count)
        number, rows = self._tenants.get(tenant, (next(self._numbers), 0))
        self._tenants[tenant] = number, rows + 1
        self._owners[row] = tenant
        _WORD.pack_into(self._memory, _TENANTS_AT + row * _WORD.size, number)
        return row

    def give_back(self, row: int) -> None:
        """Clear and free the row of a worker that has ended."""
        start = (1 + row) * _ROW_NBYTES
        self._memory[start : start + _ROW_NBYTES] = bytes(_ROW_NBYTES)
        _WORD.pack_into(self._memory, _TENANTS_AT + row * _WORD.size, 0)
        tenant = self._owners.pop(row)
        number, rows = self._tenants.pop(tenant)
        if rows > 1:
            self._tenants[tenant] = number, rows - 1
        self._free.append(row)

    def quotas(self, row: int) -> dict[str, int]:
        """What a session uses of each of QUOTAS, and `host_nbytes`."""
        start = (1 + row) * _ROW_NBYTES
        words = struct.unpack_from(f"<{_COLUMNS}Q", self._memory, start)
        found = {name: min(_CAP, words[_QUOTAS + number]) for number, name in enumerate(QUOTAS, 1)}
        return {"host_nbytes": min(_CAP, words[_HOST])} | found

    def used(self, device: int, row: int | None = None) -> int:
        """Bytes of a device that all sessions use, or only the session of `row`."""
        rows = range(1, 1 + self._count) if row is None else [1 + row]
        words = (_WORD.unpack_from(self._memory, row * _ROW_NBYTES + device * _WORD.size) for row in rows)
        return sum(word for (word,) in words)

    def used_by_tenant(self, device: int, tenant: str) -> int:
        """Bytes of a device that all sessions of a tenant use."""
        return sum(self.used(device, row) for row, owner in self._owners.items() if owner == tenant)
