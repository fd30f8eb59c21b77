"""Weights without control groups: nice values divide the processors roughly, so each tenant's processor time is
measured, and the nice value of its workers is corrected.

One step of nice is a quarter more or less processor time. A level between two values is kept by alternating them.
Levels change only while the machine has no idle time and two tenants or more are busy: otherwise no tenant takes time
from another.
"""

from __future__ import annotations

import asyncio
import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vgpud.log import get_logger

from .cgroup import NICE_MAX, NICE_STEP, set_nice

if TYPE_CHECKING:
    from collections.abc import Iterable

PERIOD_S = 1.0  # a hundred of the ticks in which the kernel counts a process's time
_GAIN = 0.4  # part of an error that one step corrects
_REACH = 6.0  # greatest distance of a level from the one that its weight alone gives
_ENOUGH_S = 1.0  # of processor time of all tenants: less has too few ticks for a comparison
_BUSY = 0.02  # of that time: a tenant that uses less takes nothing from others
_IDLE = 0.05  # of all processors' time: with less idle time the machine is full
_NS_A_TICK = 10**9 // os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Tenant:
    """One tenant's workers; `base` is the nice value that its weight alone gives."""

    weight: int
    base: float
    workers: dict[int, int] = field(default_factory=dict)  # by pid, the processor time at the last look, in ns
    got_s: float = 0.0  # of processor time, since levels were corrected last
    level: float = 0.0
    left: float = 0.0  # rounding error of the level, carried to the next period
    nice: int = 0

    def next_nice(self) -> int:
        """The whole value for the next period."""
        whole = math.floor(self.level + self.left)
        self.left += self.level - whole
        return whole


def correct(tenants: Iterable[tuple[Tenant, float]]) -> None:
    """Move the levels of busy tenants towards their weights. Each tenant comes with the processor time that it used."""
    busy = list(tenants)
    weights, used = sum(tenant.weight for tenant, _ in busy), sum(time for _, time in busy)
    for tenant, time in busy:
        lacks = math.log(tenant.weight / weights * used / time, NICE_STEP)  # steps; more than 0: it got too little
        tenant.level = min(max(tenant.level - _GAIN * lacks, tenant.base - _REACH), tenant.base + _REACH)
    least = min(tenant.level for tenant, _ in busy)
    for tenant, _ in busy:  # only differences matter, and no level may be below 0
        tenant.level = min(tenant.level - min(least, 0.0), float(NICE_MAX))


class Balance:
    """Owns the nice values of workers that have no control group. All methods run on the event loop."""

    def __init__(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        self._task: asyncio.Task[None] | None = None
        self._idle_ticks = _idle_ticks()
        self._may_lower = True

    def add(self, pid: int, tenant: str, weight: int, base: int) -> None:
        """Begin to balance a worker. Raises OSError: its nice value could not be set."""
        known = self._tenants.setdefault(tenant, Tenant(weight, float(base), level=float(base), nice=base))
        known.weight, known.base = weight, float(base)
        known.workers[pid] = _cpu_ns(pid)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        if known.nice > 0:
            set_nice(pid, known.nice)

    def remove(self, pid: int) -> None:
        """Stop balancing a worker that has ended."""
        for name, tenant in list(self._tenants.items()):
            if tenant.workers.pop(pid, None) is not None and not tenant.workers:
                del self._tenants[name]
        if not self._tenants and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while self._may_lower:
            await asyncio.sleep(PERIOD_S)
            self.step()

    def step(self) -> None:
        """Measure the processor time of all tenants in this period, and set nice values for the next one."""
        tenants = list(self._tenants.values())
        for tenant in tenants:
            before = sum(tenant.workers.values())
            tenant.workers = {pid: _cpu_ns(pid) for pid in tenant.workers}
            tenant.got_s += max(0, sum(tenant.workers.values()) - before) / 1e9
        ticks, self._idle_ticks = _idle_ticks() - self._idle_ticks, _idle_ticks()
        is_full = ticks * _NS_A_TICK / 1e9 < _IDLE * PERIOD_S * (os.cpu_count() or 1)
        total_s = sum(tenant.got_s for tenant in tenants)
        busy = [(tenant, tenant.got_s) for tenant in tenants if tenant.got_s > _BUSY * total_s]
        if is_full and total_s >= _ENOUGH_S and len(busy) > 1:
            correct(busy)
        if not is_full or total_s >= _ENOUGH_S:
            for tenant in tenants:
                tenant.got_s = 0.0
        for tenant in tenants:
            self._apply(tenant)

    def _apply(self, tenant: Tenant) -> None:
        nice = tenant.next_nice()
        if nice == tenant.nice:
            return
        tenant.nice = nice
        for pid in tenant.workers:
            try:
                set_nice(pid, nice)
            except PermissionError:  # raising a nice value needs no privilege, lowering one does
                get_logger().info("weights are kept by fixed nice values: this user may not lower one")
                self._may_lower = False
                return
            except OSError:
                continue  # the process has just ended


def _cpu_ns(pid: int) -> int:
    """A process's processor time, in steps of a tick (10 ms); 0: it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b") ")[2].split()
        return (int(words[11]) + int(words[12])) * _NS_A_TICK
    except (OSError, ValueError, IndexError):
        return 0


def _idle_ticks() -> int:
    """The idle time of all processors since boot, in ticks."""
    try:
        with open("/proc/stat") as file:
            return int(file.readline().split()[4])
    except (OSError, ValueError, IndexError):
        return 0
