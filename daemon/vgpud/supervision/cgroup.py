"""A control group for each worker, below one for its tenant (cgroup v2): weights, bounds, and a kill of the group.

The kernel enforces what is written here, whatever a worker does: `cpu.weight` divides the processors, that is a
simulated device's time, between tenants; `pids.max` and `memory.max` bound a worker. It needs a delegated subtree
(systemd's Delegate=); without one, nice values approximate weights (balance.py), and bounds are not enforced.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from vgpud.config import WEIGHT_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable

_OURS = "vgpud"  # the group of vgpud itself
_CONTROLLERS = ("cpu", "memory", "pids")
_PIDS_MAX = 4096  # threads: a pool has 256 at most, the driver and each of the client's threads some more
NICE_STEP = 1.25  # factor of processor time for each step of nice (sched-nice-design in Linux' documentation)
NICE_MAX = 19


class CgroupError(Exception):
    """vgpud has no delegated subtree; the text is one line."""


class Cgroups:
    """The subtree of a vgpud. Only open() raises: later failures to write leave a value unchanged."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._workers: set[Path] = set()  # the groups of running workers
        self._left: set[Path] = set()  # groups of ended workers that could not be removed yet

    @classmethod
    def open(cls, mount: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")) -> Cgroups:
        """Turn vgpud's own group into a subtree. Raises CgroupError."""
        try:
            lines = process.read_text().splitlines()
            own = next(line[3:] for line in lines if line.startswith("0::"))
            root = mount / own.lstrip("/")
            root = root.parent if root.name == _OURS else root  # the previous vgpud in this process has set it up
            offered = (root / "cgroup.controllers").read_text().split()
            if missing := [name for name in _CONTROLLERS if name not in offered]:
                raise CgroupError(f"no control of {', '.join(missing)} in {root} (systemd: Delegate=)")
            if not _is_delegated(root):
                raise CgroupError(f"{root} is not delegated to vgpud (systemd: Delegate=)")
            # A group with processes of its own cannot divide anything among its children.
            ours = root / _OURS
            ours.mkdir(exist_ok=True)
            (ours / "cgroup.procs").write_text(str(os.getpid()))
            _enable(root)
        except StopIteration:
            raise CgroupError("no cgroup v2 that vgpud may divide: none is mounted") from None
        except OSError as error:
            raise CgroupError(f"no cgroup v2 that vgpud may divide: {error}") from error
        return cls(root)

    def enter(self, pid: int, session: int, tenant: str, weight: int | None, memory_nbytes: int | None) -> Path | None:
        """Put a worker in its own group below its tenant's. Returns the group for leave(); None on failure."""
        name = hashlib.sha256(tenant.encode()).hexdigest()[:16]
        parent = self._root / f"tenant-{name}"
        group = parent / f"session-{session}"
        try:
            parent.mkdir(exist_ok=True)
            group.mkdir(exist_ok=True)
            _bound(group, weight, memory_nbytes)
            (group / "cgroup.procs").write_text(str(pid))
        except OSError:
            _remove([group, parent])
            return None
        self._workers.add(group)
        return group

    def adopt(self, group: Path, weight: int | None, memory_nbytes: int | None) -> None:
        """Record that a worker of the previous vgpud is in this group. After a crash the bounds are to be written
        again: the unit takes the controllers away, so that systemd can start the next vgpud in the group above.
        """
        self._workers.add(group)
        with contextlib.suppress(OSError):
            _bound(group, weight, memory_nbytes)

    def end_others(self) -> None:
        """End what is in groups of workers that were not adopted."""
        for group in self._root.glob("tenant-*/session-*"):
            if group not in self._workers:
                self.leave(group)

    def leave(self, group: Path) -> None:
        """The worker has ended: end whatever else is in its group, and remove it."""
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        self._workers.discard(group)
        self._left.add(group)
        self._left -= {each for each in self._left if _remove([each])}
        if not any(each.parent == group.parent for each in self._workers | self._left):
            _remove([group.parent])


def nice_of(weight: int | None, weights: Iterable[int]) -> int:
    """The nice value for `weight` relative to the greatest of `weights`, accurate to about a tenth."""
    greatest = max([WEIGHT_DEFAULT, *weights])
    return min(NICE_MAX, round(math.log(greatest / (weight or WEIGHT_DEFAULT), NICE_STEP)))


def set_nice(pid: int, nice: int) -> None:
    """Set the nice value of every thread of a process; new threads inherit it. Raises OSError."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(task.name), nice)


def _is_delegated(group: Path) -> bool:
    """systemd marks what it delegates; anything else may be managed by another program already."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            return os.getxattr(group, name) == b"1" and os.access(group / "cgroup.procs", os.W_OK)
    return False


def _bound(group: Path, weight: int | None, memory_nbytes: int | None) -> None:
    """Write a worker's bounds, and the weight of its tenant. Raises OSError."""
    (group.parent / "cpu.weight").write_text(str(weight or WEIGHT_DEFAULT))
    _enable(group.parent)
    (group / "pids.max").write_text(str(_PIDS_MAX))
    if memory_nbytes is not None:
        (group / "memory.max").write_text(str(memory_nbytes))


def _enable(group: Path) -> None:
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))


def _remove(groups: list[Path]) -> bool:
    """Remove the groups. False: one of them is in use."""
    try:
        for group in groups:
            group.rmdir()
    except OSError:
        return not groups[0].exists()
    return True
