"""The resources that an idle vgpud holds: they must be the same after any failure."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.daemon.running import Running, children, process_exists, wait_until

SETTLE_S = 60.0


def descendants(pid: int) -> list[int]:
    """All living descendants of a process."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


@dataclass(frozen=True)
class Holdings:
    """Counts, not process ids: a spare worker that replaces another one has a new pid, but the count is equal."""

    sessions: int
    processes: int
    descriptors: int  # of vgpud itself
    launcher_descriptors: int
    folders: int  # cache folders of tenants whose names may be reused
    groups: int  # control groups of vgpud's sessions

    @classmethod
    def of(cls, running: Running) -> Holdings:
        pid = running.process.pid
        status = running.status()
        launchers = children(pid)
        cache = running.config.parent
        return cls(
            sessions=len(status["sessions"]),
            processes=len(descendants(pid)),
            descriptors=_descriptors(pid),
            launcher_descriptors=sum(_descriptors(each) for each in launchers),
            folders=len(list(cache.glob("passing-*"))),
            groups=len(list(_group(pid).parent.glob("tenant-*/session-*"))),
        )


def _group(pid: int) -> Path:
    """The control group of a process; vgpud's own group is a sibling of its tenants' groups."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return Path("/sys/fs/cgroup") / next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "none")


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def settled(running: Running, before: Holdings) -> float:
    """Wait until vgpud holds what it held before; return how long that took, in seconds.

    Raises:
        AssertionError: something is left, or something is missing.
    """
    begun = time.monotonic()
    seen = before

    def same() -> bool:
        nonlocal seen
        seen = Holdings.of(running)
        return seen == before

    try:
        wait_until(same, SETTLE_S)
    except AssertionError:
        raise AssertionError(f"before: {before}\nafter:  {seen}\n{running.log[-3000:]}") from None
    return time.monotonic() - begun


def all_gone(pids: list[int]) -> None:
    """Check that none of these processes outlives the vgpud that it belonged to. Raises AssertionError."""
    wait_until(lambda: not [pid for pid in pids if process_exists(pid)], SETTLE_S)
