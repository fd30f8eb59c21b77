"""The sessions of this host that one guest may see: its own processes, by its own pids, and what they use."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vgpud.devices.selection import by_host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vgpud.tenancy.session import Session


@dataclass(frozen=True, slots=True)
class GuestProcess:
    """One process of the guest that has a worker."""

    pid: int  # in the guest's pid namespace
    worker_pid: int
    memory_nbytes: tuple[int, ...] | None  # used on each of the host's devices; None: the worker did not report it


async def guest_processes(asking: Session, sessions: Iterable[Session], device_count: int) -> list[GuestProcess]:
    """The attached sessions of the guest that `asking` belongs to, `asking` included.

    A guest is a peer (user, vsock CID or TCP address) with one token, in one pid namespace: containers of one user do
    not see each other.
    """
    namespace = _pid_namespace(asking.peer.pid)
    workers = {
        session: session.worker
        for session in sessions
        if session.worker is not None
        and session.peer.key == asking.peer.key
        and session.token_name == asking.token_name
        and _pid_namespace(session.peer.pid) == namespace
    }
    used = await asyncio.gather(*(worker.memory() for worker in workers.values()))
    return [
        GuestProcess(
            pid_in_guest(session),
            worker.pid,
            None if memory is None else by_host(memory, session.devices, device_count),
        )
        for (session, worker), memory in zip(workers.items(), used, strict=True)
    ]


def pid_in_guest(session: Session) -> int:
    """The client's pid in its own pid namespace: from the kernel if possible, else as the client states it."""
    if session.peer.pid is not None:
        try:
            lines = Path(f"/proc/{session.peer.pid}/status").read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return session.client.pid


def _pid_namespace(pid: int | None) -> int | None:
    """The inode of a process's pid namespace; None when vgpud may not read it."""
    if pid is None:
        return None
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None
