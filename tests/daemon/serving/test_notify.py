"""sd_notify."""

from __future__ import annotations

import os
import socket

from vgpud.serving.notify import Notifier

from tests.patience import PATIENCE_S


def test_without_a_manager_nothing_happens():
    Notifier({}).ready("fine")
    Notifier({"NOTIFY_SOCKET": "/nonexistent/socket"}).ready("fine")


def test_messages(tmp_path):
    for address, name in ((str(tmp_path / "n"), str(tmp_path / "n")), (f"\0vgpu-test-{os.getpid()}",) * 2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(address)
            manager.settimeout(PATIENCE_S)
            notifier = Notifier({"NOTIFY_SOCKET": name.replace("\0", "@")})
            notifier.ready("1 device")
            notifier.watchdog()
            notifier.stopping(1.5)
            assert [manager.recv(100) for _ in range(3)] == [
                b"READY=1\nSTATUS=1 device",
                b"WATCHDOG=1",
                b"STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000",
            ]


def test_watchdog_interval():
    assert Notifier({"WATCHDOG_USEC": "30000000"}).watchdog_s == 30
    assert Notifier({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}).watchdog_s == 30
    assert Notifier({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}).watchdog_s is None
    assert Notifier({"WATCHDOG_USEC": "x"}).watchdog_s is None
