"""The stub's socket: QEMU's messages, other valid messages, and invalid ones."""

import array
import os
import random
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from vgpud.vm.pci_config import ConfigSpace, PciIdentity
from vgpud.vm.pci_stub import Command, PciStubError, serve

from tests.daemon.running import ENVIRONMENT
from tests.descriptors import open_descriptors
from tests.patience import PATIENCE_S

H100 = PciIdentity(0x10DE, 0x2331, 0x10DE, 0x1626)


def message(command: int, payload: bytes = b"", nbytes: int | None = None) -> bytes:
    return struct.pack("<i4xQ", command, len(payload) if nbytes is None else nbytes) + payload


def config(command: Command, at: int, value: int = 0, nbytes: int = 4) -> bytes:
    return message(command, struct.pack("<IIi", at, value, nbytes))


def bar(command: Command, at: int, value: int = 0, nbytes: int = 4) -> bytes:
    return message(command, struct.pack("<QQIB3x", at, value, nbytes, 1))


class Stub:
    """A served socket; `outcome` is the result of serve()."""

    def __init__(self) -> None:
        self.sock, self._served = socket.socketpair()
        self.sock.settimeout(PATIENCE_S)
        self.outcome: Exception | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._served:
            try:
                serve(self._served, ConfigSpace(H100))
            except Exception as error:
                self.outcome = error

    def ask(self, data: bytes) -> int:
        self.sock.sendall(data)
        command, nbytes, value = struct.unpack("<i4xQQ", self.sock.recv(24, socket.MSG_WAITALL))
        assert (command, nbytes) == (Command.RET, 8)
        return int(value)

    def ended(self) -> None:
        """Wait until the other end is closed."""
        with suppress(ConnectionResetError):  # the stub has not read all bytes of this process
            assert self.sock.recv(1) == b""

    def end(self) -> Exception | None:
        self.sock.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.outcome


@contextmanager
def stub() -> Iterator[Stub]:
    made = Stub()
    try:
        yield made
    finally:
        made.end()


def test_what_qemu_asks_at_its_start():
    with stub() as device:
        assert device.ask(config(Command.PCI_CFGREAD, 0)) == 0x233110DE
        assert device.ask(config(Command.PCI_CFGREAD, 0x2E, nbytes=2)) == 0x1626
        assert device.ask(config(Command.PCI_CFGWRITE, 0x10, 0xFFFFFFFF)) == 0
        assert device.ask(config(Command.PCI_CFGREAD, 0x10)) == 0xFF000000
        assert device.ask(bar(Command.BAR_WRITE, 0xFC000000, 1)) == 0
        assert device.ask(bar(Command.BAR_READ, 0xFC000000)) == 0
        assert device.ask(message(Command.DEVICE_RESET)) == 0
        assert device.end() is None


def test_bytes_may_come_one_by_one():
    with stub() as device:
        for byte in config(Command.PCI_CFGREAD, 0)[:-1]:
            device.sock.send(bytes([byte]))
        assert device.ask(config(Command.PCI_CFGREAD, 0)[-1:]) == 0x233110DE


def test_memory_and_interrupts_are_taken_and_closed():
    with stub() as device:
        before = len(open_descriptors())
        for _ in range(20):
            fds = [os.memfd_create("ram") for _ in range(8)]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            device.sock.sendmsg([message(Command.SYNC_SYSMEM, bytes(192))], rights)
            device.sock.sendmsg([message(Command.SET_IRQFD)], [(*rights[0][:2], array.array("i", fds[:2]))])
            for fd in fds:
                os.close(fd)
        assert device.ask(config(Command.PCI_CFGREAD, 0)) == 0x233110DE
        assert len(open_descriptors()) == before


@pytest.mark.parametrize(
    "data",
    [
        message(8),
        message(-1),
        message(Command.RET, bytes(8)),
        message(Command.PCI_CFGREAD, bytes(8)),
        message(Command.PCI_CFGREAD, nbytes=2**64 - 1),
        message(Command.SYNC_SYSMEM, nbytes=2**40),
        config(Command.PCI_CFGREAD, 256),
        config(Command.PCI_CFGREAD, 253),
        config(Command.PCI_CFGREAD, 2**32 - 1),
        config(Command.PCI_CFGREAD, 0, nbytes=3),
        config(Command.PCI_CFGREAD, 0, nbytes=-4),
        config(Command.PCI_CFGWRITE, 0, nbytes=2**31 - 1),
        bar(Command.BAR_READ, 0, nbytes=0),
        bar(Command.BAR_WRITE, 0, nbytes=2**31),
    ],
)
def test_what_does_not_fit_ends_the_device_with_a_reason(data):
    with stub() as device:
        device.sock.sendall(data)
        device.ended()
        assert isinstance(device.end(), PciStubError)


@pytest.mark.parametrize("nbytes", [1, 15, 16, 20])
def test_a_message_that_breaks_off(nbytes):
    with stub() as device:
        device.sock.sendall(config(Command.PCI_CFGREAD, 0)[:nbytes])
        device.sock.shutdown(socket.SHUT_WR)
        assert isinstance(device.end(), PciStubError)


@pytest.mark.parametrize("seed", range(60))
def test_noise_ends_in_one_way_only(seed):
    """Valid messages with random fields, then invalid bytes."""
    rng = random.Random(seed)
    with stub() as device:
        answers = 0
        for _ in range(50):
            command = rng.choice([Command.PCI_CFGREAD, Command.PCI_CFGWRITE])
            at, nbytes = rng.randrange(64) * 4, rng.choice([1, 2, 4])
            answers += device.ask(config(command, at, rng.getrandbits(32), nbytes)) < 2**32
        assert answers == 50
        assert device.ask(config(Command.PCI_CFGREAD, 0)) == 0x233110DE
        noise = bytearray(config(Command.PCI_CFGREAD, 0) + rng.randbytes(64))
        noise[rng.randrange(4)] ^= 1 << rng.randrange(8)
        with suppress(ConnectionError):
            device.sock.sendall(noise)
            device.sock.shutdown(socket.SHUT_WR)
        assert isinstance(device.end(), PciStubError)


def test_the_helper_process_ends_with_its_vm():
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "vgpud.vm.pci_stub", "--fd", str(theirs.fileno()), "--id", "10de:2331"]
    helper = subprocess.Popen(
        [*command, "--subsystem", "10de:1626", "--link", "5:10"],
        env=ENVIRONMENT,
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
        text=True,
    )
    theirs.close()
    with ours:
        ours.settimeout(PATIENCE_S)
        ours.sendall(config(Command.PCI_CFGREAD, 0x6C))
        assert struct.unpack("<i4xQQ", ours.recv(24, socket.MSG_WAITALL))[2] == 16 << 4 | 5
        status = Path(f"/proc/{helper.pid}/status").read_text()  # confined, as QEMU may be compromised
        assert "NoNewPrivs:\t1\n" in status
        assert "Seccomp:\t2\n" in status
        assert re.search(r"Max core file size +0 +0 ", Path(f"/proc/{helper.pid}/limits").read_text())
    assert helper.communicate(timeout=PATIENCE_S)[1] == ""
    assert helper.returncode == 0
