"""The seccomp listener by which vgpud answers a worker's refused system calls."""

from __future__ import annotations

import asyncio
import fcntl
import os

import pytest
from vgpud.supervision.refused_calls import RefusedCalls


@pytest.mark.asyncio
async def test_a_listener_that_hangs_up_is_not_received_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 6.11 receiving from such a listener never returns, and systemd's watchdog ends vgpud."""
    asked: list[int] = []
    monkeypatch.setattr(fcntl, "ioctl", lambda fd, *_: asked.append(fd))
    reading, writing = os.pipe()
    calls = RefusedCalls(reading, lambda _: None)
    os.close(writing)
    while calls._listener >= 0:
        await asyncio.sleep(0)
    assert asked == []
