"""How vgpud handles the messages of workers: a compromised worker is as untrusted as a client."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter

import pytest
from vgpud.proto.packing import pack_map
from vgpud.supervision.spawner import CommandSpawner
from vgpud.supervision.worker_process import Worker


@pytest.mark.asyncio
async def test_many_messages_are_taken_in_turn_with_everybody_elses(monkeypatch):
    taken: list[int] = []
    monkeypatch.setattr(Worker, "_take", lambda _self, _packet, _fds: taken.append(turn))
    turn = 0

    async def scenario() -> None:
        nonlocal turn
        ended = asyncio.Event()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        stderr_fd, theirs_fd = os.pipe()
        process = CommandSpawner(["sh", "-c", "sleep 60"], dict(os.environ)).spawn(0, theirs_fd, {}, warm=False)
        os.close(theirs_fd)
        worker = Worker(process, ours, stderr_fd, lambda _: None, lambda _: ended.set(), None)
        for _ in range(50):
            theirs.send(pack_map({"type": "nothing"}))
        while len(taken) < 50:
            await asyncio.sleep(0)
            turn += 1
        theirs.send(pack_map({"type": "ended", "reason": "its last word"}))
        worker.kill()
        await ended.wait()
        theirs.close()

    await scenario()
    assert max(Counter(taken).values()) == 1
    assert len(taken) == 51


@pytest.mark.asyncio
async def test_what_it_wrote_before_its_end_is_logged_to_the_last_line(monkeypatch):
    """A pipe holds more than one read takes: a worker's last reports are the ones that explain its end."""
    said: list[bytes] = []
    monkeypatch.setattr(Worker, "_say", lambda _self, line: said.append(line))
    lines = [b"line %d" % number for number in range(6000)]

    async def scenario() -> None:
        ended = asyncio.Event()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        stderr_fd, theirs_fd = os.pipe()
        process = CommandSpawner(["true"], dict(os.environ)).spawn(0, theirs_fd, {}, warm=False)
        assert os.write(theirs_fd, b"\n".join(lines)) > 3 * 16 * 1024
        os.close(theirs_fd)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        Worker(process, ours, stderr_fd, lambda _: None, lambda _: ended.set(), None)
        await ended.wait()
        theirs.close()

    await scenario()
    assert said == lines
