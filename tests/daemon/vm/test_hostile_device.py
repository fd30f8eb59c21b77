"""A VM's device process that is compromised or hangs neither blocks vgpud's event loop nor floods its log."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from vgpud.config_tables import VmConfig
from vgpud.log import configure_log
from vgpud.proto.packing import pack_map
from vgpud.vm.control import control_path
from vgpud.vm.supervision import VmDevice

from tests.patience import PATIENCE_S


class Stranger:
    """A hostile listener in the place of the device of `vm`; a test accepts vgpud's connection as `peer`."""

    def __init__(self, tmp_path: Path, backlog: int = 8) -> None:
        self.vm = VmConfig(name="a", cid=3, vsock=f"{tmp_path}/vm.sock")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(control_path(f"{tmp_path}/vm.sock")))
        self.listener.listen(backlog)
        self.device = VmDevice(self.vm, lambda sock, _peer: sock.close())

    def close(self) -> None:
        self.device.stop()
        self.listener.close()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What vgpud would log."""
    out = io.StringIO()
    configure_log("info", "human", file=out)
    yield out
    structlog.reset_defaults()


@pytest.mark.asyncio
async def test_many_messages_are_taken_in_turn_with_everybody_elses(tmp_path, monkeypatch):
    taken: list[int] = []
    monkeypatch.setattr(VmDevice, "_take", lambda _self, _message, _fds: taken.append(turn))
    turn = 0

    stranger = Stranger(tmp_path)
    stranger.device.start()
    peer, _ = stranger.listener.accept()
    for _ in range(50):
        peer.send(pack_map({"type": "nothing"}))
    async with asyncio.timeout(PATIENCE_S):
        while len(taken) < 50:
            await asyncio.sleep(0)
            turn += 1
    stranger.close()
    peer.close()
    assert max(Counter(taken).values()) == 1


@pytest.mark.asyncio
async def test_what_it_says_of_itself_does_not_flood_the_log(tmp_path, log):
    stranger = Stranger(tmp_path)
    stranger.device.start()
    peer, _ = stranger.listener.accept()
    for number in range(200):
        peer.send(pack_map({"type": "vm", "connected": number % 2 == 0}))
        peer.send(pack_map({"type": "hello", "version": number}))
        peer.send(b"\xff")
        await asyncio.sleep(0.001)
    stranger.close()
    peer.close()
    assert 1 <= log.getvalue().count("\n") <= 60


@pytest.mark.asyncio
async def test_its_words_cannot_forge_a_line(tmp_path, log):
    stranger = Stranger(tmp_path)
    stranger.device.start()
    peer, _ = stranger.listener.accept()
    peer.send(pack_map({"type": "log", "level": "info", "event": "x\nforged", "reason": "y\nforged"}))
    peer.send(pack_map({"type": "log", "level": ["no", "text"], "event": "last"}))
    async with asyncio.timeout(PATIENCE_S):
        while "last" not in log.getvalue():
            await asyncio.sleep(0.001)
    stranger.close()
    peer.close()
    text = log.getvalue()
    assert "\nforged" not in text
    assert "last" in text


@pytest.mark.asyncio
async def test_one_that_accepts_nobody_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(VmDevice, "_spawn", lambda self: None)
    stranger = Stranger(tmp_path, backlog=0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
        first.connect(str(control_path(f"{tmp_path}/vm.sock")))
        watchdog = threading.Timer(PATIENCE_S, stranger.listener.close)
        watchdog.start()
        stranger.device.start()
        assert watchdog.is_alive()
        watchdog.cancel()
    stranger.close()
