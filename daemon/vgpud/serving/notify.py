"""sd_notify: tell systemd the service's state, by a datagram to NOTIFY_SOCKET; without that variable nothing is
sent.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_BARRIER_S = 5.0


class Notifier:
    """Sends state lines to the service manager. Failures are ignored, because the service must continue without it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self.watchdog_s: float | None = None
        usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        if usec.isdigit() and int(usec) > 0 and pid in ("", str(os.getpid())):
            self.watchdog_s = int(usec) / 1e6

    def send(self, *lines: str, fd: int | None = None) -> bool:
        """One datagram of state lines; whether it could be sent."""
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.settimeout(1.0)
                sock.connect(self._address)
                socket.send_fds(sock, ["\n".join(lines).encode()], [] if fd is None else [fd])
        except OSError:
            return False
        return True

    def store(self, name: str, fd: int) -> bool:
        """Ask the manager to store a descriptor for the next start, even when its other end is closed."""
        return self.send("FDSTORE=1", f"FDNAME={name}", "FDPOLL=0", fd=fd)

    def forget(self, name: str) -> None:
        """Ask the manager to close a stored descriptor."""
        self.send("FDSTOREREMOVE=1", f"FDNAME={name}")

    def barrier(self) -> None:
        """Wait until the manager has handled what was sent before (sd_notify_barrier(3)), or seems not to."""
        end, theirs = os.pipe()
        try:
            sent = self.send("BARRIER=1", fd=theirs)
        finally:
            os.close(theirs)
        poll = select.poll()
        poll.register(end, 0)  # poll for the end of file alone
        if sent:
            poll.poll(_BARRIER_S * 1000)
        os.close(end)

    def ready(self, status: str) -> None:
        """Clients can connect."""
        self.send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that the program is being replaced in place; ready() follows."""
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, timeout_s: float) -> None:
        """Report that stopping takes at most `timeout_s`: the manager waits that long, even if TimeoutStopSec is
        shorter.
        """
        self.send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={round(timeout_s * 1e6)}")

    def watchdog(self) -> None:
        """Report that vgpud is alive."""
        self.send("WATCHDOG=1")
