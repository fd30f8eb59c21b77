"""The cost of calls: each session's worker counts in its own file, which vgpud reads, and sums when the session ends.

The layout is that of daemon/executor/vgx_meter.h. A worker acts for a client, so a file can hold any numbers: they are
bounded, and wrong ones affect only their tenant, except for the times of functions, which are summed over all sessions.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vgpud._gen.api import GROUPS, QUOTAS, RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

_BUCKETS = 24
_OPS = 1024
_QUOTAS = 16
_GROUPS = 8
_HEAD = struct.Struct(f"<QQQQ{_GROUPS}I{_QUOTAS}Q")
_OP = struct.Struct(f"<QQQQ{_BUCKETS}I")
NBYTES = _HEAD.size + _OPS * _OP.size
_CAP = 2**53  # what Prometheus can hold exactly
_TENANTS_CAP = 4096  # tenants whose sums are kept separately
_OTHERS = "others"
_NAMES = {record.opcode: record.name for record in RECORDS}
BOUNDS_S = tuple(2.0**i / 1e6 for i in range(_BUCKETS - 1))  # upper bounds of the buckets; the last bucket has none


@dataclass(slots=True)
class Function:
    """All calls of one function."""

    calls: int = 0
    nbytes: int = 0
    timed: int = 0
    timed_ns: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * _BUCKETS)

    def add(self, other: Function) -> None:
        """Add another session's sums."""
        self.calls += other.calls
        self.nbytes += other.nbytes
        self.timed += other.timed
        self.timed_ns += other.timed_ns
        self.buckets = [one + two for one, two in zip(self.buckets, other.buckets, strict=True)]


@dataclass(slots=True)
class Usage:
    """The usage of one tenant's ended sessions, or of one session so far."""

    calls: int = 0
    nbytes: int = 0
    faults: int = 0
    cpu_ns: int = 0
    held_ns: int = 0  # time for which calls were delayed
    refused: dict[str, int] = field(default_factory=dict)  # by quota, the number of calls that it refused
    denied: dict[str, int] = field(default_factory=dict)  # by group of functions, calls that the share denied

    def add(self, other: Usage) -> None:
        """Add another usage."""
        self.calls += other.calls
        self.nbytes += other.nbytes
        self.faults += other.faults
        self.cpu_ns += other.cpu_ns
        self.held_ns += other.held_ns
        for mine, others in ((self.refused, other.refused), (self.denied, other.denied)):
            for name, count in others.items():
                mine[name] = mine.get(name, 0) + count


class Meter:
    """One session's file."""

    def __init__(self, fd: int | None = None) -> None:
        """A new file, or that of a session of the previous vgpud. Raises OSError."""
        if fd is None:
            fd = os.memfd_create("vgpu-meter", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, NBYTES)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._fd = fd
        self._memory = mmap.mmap(fd, NBYTES, prot=mmap.PROT_READ)

    def fileno(self) -> int:
        """The descriptor that the worker maps."""
        return self._fd

    def close(self) -> None:
        """Unmap and close the file."""
        self._memory.close()
        os.close(self._fd)

    def functions(self) -> dict[str, Function]:
        """The functions that were called, by name."""
        found = {}
        for opcode, name in _NAMES.items():
            calls, nbytes, timed, timed_ns, *buckets = _OP.unpack_from(self._memory, _HEAD.size + opcode * _OP.size)
            if calls:
                calls, nbytes, timed, timed_ns = (min(_CAP, number) for number in (calls, nbytes, timed, timed_ns))
                found[name] = Function(calls, nbytes, timed, timed_ns, buckets)
        return found

    def devices(self) -> int:
        """A bit for each device on which the session has made a context."""
        mask: int = _HEAD.unpack_from(self._memory, 0)[2]
        return mask

    def usage(self) -> Usage:
        """The sums over all functions of the session."""
        faults, cpu_ns, _devices, held_ns, *counts = (min(_CAP, word) for word in _HEAD.unpack_from(self._memory, 0))
        functions = self.functions().values()
        nbytes = sum(each.nbytes for each in functions)
        denied, refused = _named(GROUPS, counts[:_GROUPS]), _named(("host_nbytes", *QUOTAS), counts[_GROUPS:])
        return Usage(sum(each.calls for each in functions), nbytes, faults, cpu_ns, held_ns, refused, denied)


class Meters:
    """All sessions' files, and the sums of those that have ended. All methods run on the event loop."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[str, Meter]] = {}  # by session, with its tenant
        self._functions: dict[str, Function] = {}
        self._tenants: dict[str, Usage] = {}

    def begin(self, session: int, tenant: str, fd: int | None = None) -> Meter:
        """Begin a session with a new file, or continue one with its file `fd`. Raises OSError."""
        meter = Meter(fd)
        self._open[session] = tenant, meter
        return meter

    def fileno(self, session: int) -> int:
        """The descriptor of a session's file."""
        return self._open[session][1].fileno()

    def devices(self, session: int) -> int:
        """A bit for each device that a session has used."""
        return self._open[session][1].devices() if session in self._open else 0

    def denied(self, session: int) -> dict[str, int]:
        """How many calls a session was denied, by group."""
        return self._open[session][1].usage().denied if session in self._open else {}

    def end(self, session: int) -> None:
        """A session has ended: add its counters to the sums."""
        tenant, meter = self._open.pop(session)
        _add_all(self._functions, meter.functions())
        if tenant not in self._tenants and len(self._tenants) >= _TENANTS_CAP:
            tenant = _OTHERS
        self._tenants.setdefault(tenant, Usage()).add(meter.usage())
        meter.close()

    def functions(self) -> dict[str, Function]:
        """All functions by name, summed over open and ended sessions."""
        found: dict[str, Function] = {}
        _add_all(found, self._functions)
        for _tenant, meter in self._open.values():
            _add_all(found, meter.functions())
        return found

    def tenants(self) -> dict[str, Usage]:
        """The usage of each tenant over all its sessions; processor time counts only ended sessions."""
        found: dict[str, Usage] = {}
        for tenant, usage in [
            *self._tenants.items(),
            *((tenant, meter.usage()) for tenant, meter in self._open.values()),
        ]:
            found.setdefault(tenant, Usage()).add(usage)
        return found

    def dump(self) -> dict[str, Any]:
        """The sums, for restore() in the vgpud that follows."""
        functions = {
            name: [each.calls, each.nbytes, each.timed, each.timed_ns, each.buckets]
            for name, each in self._functions.items()
        }
        tenants = {
            name: [each.calls, each.nbytes, each.faults, each.cpu_ns, each.held_ns, each.refused, each.denied]
            for name, each in self._tenants.items()
        }
        return {"functions": functions, "tenants": tenants}

    def restore(self, fields: dict[str, Any]) -> None:
        """Continue with the sums of dump()."""
        self._functions = {name: Function(*each) for name, each in fields["functions"].items()}
        self._tenants = {name: Usage(*each) for name, each in fields["tenants"].items()}


def _named(names: Iterable[str], counts: list[int]) -> dict[str, int]:
    """The counters that are not 0, by name."""
    return {name: count for name, count in zip(names, counts, strict=False) if count}


def _add_all(sums: dict[str, Function], more: dict[str, Function]) -> None:
    for name, function in more.items():
        sums.setdefault(name, Function()).add(function)
