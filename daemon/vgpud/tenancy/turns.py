"""How tenants share cards by weight: the file by which their workers take turns, and the policy that stands in it.

The layout is that of daemon/executor/vgx_turn.h, which also says how a turn is taken. The time that a tenant had turns
is written by workers, which act for clients.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEVICES, TENANTS, ROWS = 16, 64, 1024
_CAP = 2**53  # largest integer that JSON and Prometheus hold exactly
_WORD = struct.Struct("<Q")
_HEAD = struct.Struct("<8Q")
_TENANT = struct.Struct("<4Q")
_DEVICE_HEAD = struct.Struct("<8Q")
_WEIGHTS_AT = _HEAD.size
_ROWS_AT = _WEIGHTS_AT + TENANTS * _WORD.size
_DEVICES_AT = _ROWS_AT + ROWS * _WORD.size
_DEVICE_NBYTES = _DEVICE_HEAD.size + TENANTS * _TENANT.size
_WORK_AT = _DEVICES_AT + DEVICES * _DEVICE_NBYTES
_WORK_NBYTES = DEVICES * 2 * _WORD.size  # of a session
NBYTES = _WORK_AT + ROWS * _WORK_NBYTES
_TENANTS_USED_AT, _ROWS_USED_AT = 6 * _WORD.size, 7 * _WORD.size
_TENANT_MASK = 0xFFFF  # of a turn


@dataclass(frozen=True, slots=True)
class Policy:
    """When turns begin and end."""

    quantum_ns: int = 4_000_000  # time that the tenant with less weight gets in a turn; each change costs some 0.1 ms
    pause_ns: int = 60_000  # how long a tenant without work keeps its turn
    ahead_ns: int = 150_000  # most work that a session queues on the card, unless it is one kernel
    starving_ns: int = 500_000_000  # a tenant that has waited for so long goes next
    alone_ns: int = 60_000_000_000  # how long no other tenant has submitted when a tenant needs no turns


class Turns:
    """The file. All methods run on the event loop."""

    def __init__(
        self,
        policy: Policy | None = None,
        fd: int | None = None,
        rows: Mapping[int, str] | None = None,
        tenants: Mapping[str, int] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """A new file, or the previous vgpud's: `fd`, the tenant of each session, each tenant's number. Raises OSError.

        The numbers are not read from the file, as workers write it. `now_ns`: the workers' clock.
        """
        self._now_ns = now_ns
        is_new = fd is None
        if fd is None:
            fd = os.memfd_create("vgpu-turns", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, NBYTES)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._fd = fd
        self._memory = mmap.mmap(fd, NBYTES)
        self._tenants: dict[str, int] = dict(tenants or {})
        self._rows: dict[int, str] = dict(rows or {})
        if is_new:
            policy = policy or Policy()
            words = (policy.quantum_ns, policy.pause_ns, policy.ahead_ns, policy.starving_ns, policy.alone_ns)
            _HEAD.pack_into(self._memory, 0, 0, *words, 0, 0)

    def fileno(self) -> int:
        """What workers map."""
        return self._fd

    @property
    def rows(self) -> dict[int, str]:
        """The tenant of each session."""
        return dict(self._rows)

    def _word(self, at: int) -> int:
        (word,) = _WORD.unpack_from(self._memory, at)
        return int(word)

    def _set(self, at: int, word: int) -> None:
        _WORD.pack_into(self._memory, at, word)

    def take(self, row: int, tenant: str, weight: int) -> int | None:
        """Let a session take turns with the sessions of other tenants.

        Args:
            row: the session's number in the ledger.
            tenant: whose it is.
            weight: the tenant's, from now on.

        Returns:
            The tenant's number; None: there are too many tenants.
        """
        number = self._tenants.get(tenant)
        if number is None:
            taken = set(self._tenants.values())
            number = next((number for number in range(TENANTS) if number not in taken), None)
            if number is None:
                return None
            for device in range(DEVICES):
                # A tenant that arrives starts at the virtual time of the tenants that are at work: being idle earns
                # nothing.
                virtual_ns = self._word(_DEVICES_AT + device * _DEVICE_NBYTES + 2 * _WORD.size)
                _TENANT.pack_into(self._memory, self._tenant_at(device, number), 0, virtual_ns, 0, 0)
            self._tenants[tenant] = number
            self._end_being_alone()
        self._set(_WEIGHTS_AT + number * _WORD.size, weight)
        self._set(_TENANTS_USED_AT, max(self._word(_TENANTS_USED_AT), number + 1))
        self._set(_ROWS_USED_AT, max(self._word(_ROWS_USED_AT), row + 1))
        self._set(_ROWS_AT + row * _WORD.size, number + 1)
        self._rows[row] = tenant
        self._set(0, len(self._tenants))
        return number

    def _tenant_at(self, device: int, number: int) -> int:
        return _DEVICES_AT + device * _DEVICE_NBYTES + _DEVICE_HEAD.size + number * _TENANT.size

    def _end_being_alone(self) -> None:
        """Count every tenant as one that has just submitted, because submissions without turns are not recorded.

        So no tenant counts as alone before the others have submitted nothing for `alone_ns`.
        """
        for device in range(DEVICES):
            self._set(_DEVICES_AT + device * _DEVICE_NBYTES + 4 * _WORD.size, 0)
            for number in self._tenants.values():
                self._set(self._tenant_at(device, number) + 3 * _WORD.size, self._now_ns())

    def give_back(self, row: int) -> None:
        """The session's worker has ended. When the tenant has no further session, its turn ends, too."""
        tenant = self._rows.pop(row)
        start = _WORK_AT + row * _WORK_NBYTES
        self._memory[start : start + _WORK_NBYTES] = bytes(_WORK_NBYTES)
        self._set(_ROWS_AT + row * _WORD.size, 0)
        if tenant in self._rows.values():
            return
        number = self._tenants.pop(tenant)
        for device in range(DEVICES):
            at = _DEVICES_AT + device * _DEVICE_NBYTES
            turn = self._word(at)
            if turn & _TENANT_MASK == number + 1:
                self._set(at, turn & ~_TENANT_MASK)
        self._set(0, len(self._tenants))

    def used_ns(self) -> dict[tuple[str, int], int]:
        """How long each tenant has had the turn on each device, while others wanted it, too."""
        found = {}
        for tenant, number in self._tenants.items():
            for device in range(DEVICES):
                if used := self._word(self._tenant_at(device, number)):
                    found[tenant, device] = min(_CAP, used)
        return found

    def dump(self) -> dict[str, Any]:
        """For restore(), in the vgpud that follows; without the descriptor."""
        return {"nbytes": NBYTES, "rows": self._rows, "tenants": self._tenants}

    @classmethod
    def restore(cls, fd: int, fields: dict[str, Any]) -> Turns:
        """Continue with the file of dump(). If it has another layout, a new one is begun for new sessions."""
        if fields["nbytes"] == NBYTES and "tenants" in fields:
            rows = {int(row): tenant for row, tenant in fields["rows"].items()}
            return cls(fd=fd, rows=rows, tenants=fields["tenants"])
        os.close(fd)
        return cls()
