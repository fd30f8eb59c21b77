"""The resources that an idle vgpud holds: they must be the same after any failure."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from tests.daemon.running import Running, process_exists, wait_until

SETTLE_S = 60.0


def processes_of(pid: int) -> list[int]:
    """All living processes of a vgpud: those of the session that it leads, as orphans have lost their parents."""
    return sorted(each for each in _all_processes() if _session_of(each) == pid and process_exists(each))


def _all_processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def launchers_of(pid: int) -> dict[str, list[int]]:
    """The loaders and the launchers of a vgpud, by the name of the process."""
    found: dict[str, list[int]] = {"vgpu-loader": [], "vgpu-launcher": []}
    for each in processes_of(pid):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{each}/comm").read_text().strip()
            found.get(name, []).append(each)
    return found


@dataclass(frozen=True)
class Holdings:
    """Counts, not process ids: a spare worker that replaces another one has a new pid, but the count is equal."""

    sessions: int
    spares: int
    processes: int
    descriptors: int  # of vgpud itself
    launcher_descriptors: int  # and of the loader
    folders: int  # cache folders of tenants whose names may be reused
    groups: int  # control groups of vgpud's sessions

    @classmethod
    def of(cls, running: Running) -> Holdings:
        pid = running.process.pid
        status = running.status()
        launchers = [each for of_a_kind in launchers_of(pid).values() for each in of_a_kind]
        cache = running.config.parent
        return cls(
            sessions=len(status["sessions"]),
            spares=len(status["spare_workers"]),
            processes=len(processes_of(pid)) - 1,
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


def settled(running: Running, before: Holdings) -> None:
    """Wait until vgpud holds what it held before.

    Raises:
        AssertionError: something is left, or something is missing.
    """
    seen = before

    def same() -> bool:
        nonlocal seen
        seen = Holdings.of(running)
        return seen == before

    try:
        wait_until(same, SETTLE_S)
    except AssertionError:
        raise AssertionError(f"before: {before}\nafter:  {seen}\n{running.log[-3000:]}") from None


def all_gone(pids: list[int]) -> None:
    """Wait until none of these processes lives. Raises AssertionError."""
    wait_until(lambda: not [pid for pid in pids if process_exists(pid)], SETTLE_S)
