"""A simulated VM: the VMM's half of vhost-user, a guest's vsock driver over rings in a memfd, and vgpud's end of the
control socket, all against the real device process. Tests may send arbitrary invalid data."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpud.proto.packing import unpack_map
from vgpud.vm.packet import HEADER, HEADER_NBYTES, Header, Op

from tests.daemon.running import ENVIRONMENT
from tests.patience import PATIENCE_S

CID = 3
PORT = 7070
SIZE = 64  # descriptors in each ring
MEMORY_NBYTES = 4 << 20
GUEST_BASE = 0x1000_0000
VMM_BASE = 0x7F00_0000_0000
RING_NBYTES = 0x4000
DESCRIPTORS, AVAILABLE, USED = 0, 0x1000, 0x2000  # offsets within a ring's part of the memory
BUFFERS = 0x10_0000  # offset of the packets' buffers in the memory
RX_NBYTES = 4096
WRITE, NEXT, INDIRECT = 2, 1, 4


def receive_exactly(sock: socket.socket, nbytes: int) -> bytes:
    """Receive exactly `nbytes` bytes; MSG_WAITALL does not wait on a socket with a timeout."""
    data = bytearray()
    while len(data) < nbytes:
        more = sock.recv(nbytes - len(data))
        assert more, f"end of file after {len(data)} of {nbytes} bytes"
        data += more
    return bytes(data)


@dataclass(frozen=True)
class Packet:
    """A packet that the device has sent to the guest."""

    header: Header
    data: bytes

    @property
    def op(self) -> Op:
        return Op(self.header.op)

    @property
    def port(self) -> int:
        """The guest's port."""
        return self.header.target_port


class Ring:
    """The driver's side of one ring, at `start` of the memory."""

    def __init__(self, memory: mmap.mmap, index: int) -> None:
        self.memory, self.index, self.start = memory, index, index * RING_NBYTES
        self.kick, self.call = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)
        # An index is loaded or stored at once: struct would access single bytes, and the device may read at any time.
        self.indices = memoryview(memory)[self.start : self.start + RING_NBYTES].cast("H")
        self.added = self.seen = 0
        self.free = deque(range(SIZE))

    def describe(self, index: int, address: int, nbytes: int, flags: int = 0, following: int = 0) -> None:
        """Fill one descriptor; `address` is an address of the guest."""
        where = self.start + DESCRIPTORS + 16 * index
        struct.pack_into("<QIHH", self.memory, where, address & (2**64 - 1), nbytes, flags, following)

    def add(self, head: int) -> None:
        """Make a chain available; set_available() tells the device."""
        struct.pack_into("<H", self.memory, self.start + AVAILABLE + 4 + 2 * (self.added % SIZE), head & 0xFFFF)
        self.added += 1
        self.set_available(self.added)

    def set_available(self, index: int) -> None:
        self.indices[AVAILABLE // 2 + 1] = index & 0xFFFF

    def notify(self) -> None:
        os.eventfd_write(self.kick, 1)

    def used(self) -> list[tuple[int, int]]:
        """(head, nbytes) of the chains that the device has returned since the last call."""
        index = self.indices[USED // 2 + 1]
        came = []
        while self.seen & 0xFFFF != index:
            came.append(struct.unpack_from("<II", self.memory, self.start + USED + 4 + 8 * (self.seen % SIZE)))
            self.seen += 1
        return came


class Driver:
    """A device process and all its peers. Start with `connect`, `set_up`; `close` returns the process's exit status."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "vm.sock"
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.log_path = directory / "device.log"
        with theirs, self.log_path.open("wb") as log:
            command = [sys.executable, "-P", "-m", "vgpud.vm.device", "--name", "test", "--cid", str(CID)]
            command += ["--socket", str(self.path), "--control-fd", str(theirs.fileno())]
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stderr=log
            )
        self.control.settimeout(PATIENCE_S)
        self.messages: list[dict[str, Any]] = []
        self.streams: deque[socket.socket] = deque()  # streams that no test has taken yet
        self._all: list[socket.socket] = []
        self.wait_message("hello")
        self.wait_message("vm", connected=False)
        self.fd = os.memfd_create("guest")
        os.ftruncate(self.fd, MEMORY_NBYTES)
        self.memory = mmap.mmap(self.fd, MEMORY_NBYTES)
        self.rings = [Ring(self.memory, index) for index in range(3)]
        self.packets: deque[Packet] = deque()
        self.vmm: socket.socket | None = None
        self.next_buffer = BUFFERS

    # vgpud's part

    def receive_control(self) -> dict[str, Any]:
        packet, fds, _, _ = socket.recv_fds(self.control, 4096, 1)
        message = unpack_map(packet) if packet else {"type": "gone"}
        self.messages.append(message)
        for fd in fds:
            sock = socket.socket(fileno=fd)
            sock.settimeout(PATIENCE_S)
            self.streams.append(sock)
            self._all.append(sock)
        return message

    def wait_message(self, kind: str, **fields: object) -> dict[str, Any]:
        """The next message of that kind with those values."""
        while True:
            message = self.receive_control()
            assert message["type"] != "gone", self.log_path.read_text()
            if message["type"] == kind and all(message.get(key) == value for key, value in fields.items()):
                return message

    def take_stream(self) -> socket.socket:
        """The host's end of the stream that the guest has opened."""
        while not self.streams:
            self.receive_control()
        return self.streams.popleft()

    def reason(self) -> str:
        """Why the VM has lost its device."""
        return str(self.wait_message("log", event="device ended")["reason"])

    # The VMM's part

    def connect(self) -> None:
        self.vmm = socket.socket(socket.AF_UNIX)
        self.vmm.settimeout(PATIENCE_S)
        self.vmm.connect(str(self.path))

    def message(self, request: int, payload: bytes = b"", fds: tuple[int, ...] = (), flags: int = 1) -> None:
        assert self.vmm is not None
        socket.send_fds(self.vmm, [struct.pack("<III", request, flags, len(payload)) + payload], list(fds))

    def ask(self, request: int, payload: bytes = b"", fds: tuple[int, ...] = (), flags: int = 1) -> bytes:
        self.message(request, payload, fds, flags)
        assert self.vmm is not None
        number, answer_flags, nbytes = struct.unpack("<III", receive_exactly(self.vmm, 12))
        assert (number, answer_flags) == (request, 5)
        return receive_exactly(self.vmm, nbytes)

    def set_memory(self) -> None:
        row = struct.pack("<QQQQ", GUEST_BASE, MEMORY_NBYTES, VMM_BASE, 0)
        assert self.ask(5, struct.pack("<II", 1, 0) + row, (self.fd,), 9) == bytes(8)

    def set_up_ring(self, ring: Ring, base: int = 0) -> None:
        at = VMM_BASE + ring.start
        self.message(8, struct.pack("<II", ring.index, SIZE))
        self.message(10, struct.pack("<II", ring.index, base))
        addresses = (at + DESCRIPTORS, at + USED, at + AVAILABLE)
        self.message(9, struct.pack("<IIQQQQ", ring.index, 0, *addresses, 0))
        self.message(12, struct.pack("<Q", ring.index), (ring.kick,))
        self.message(13, struct.pack("<Q", ring.index), (ring.call,))

    def set_up(self, *, rings: int = 2, base: int = 0, rx_buffers: int = SIZE // 2) -> Driver:
        """All that QEMU does at a guest's start."""
        if self.vmm is None:
            self.connect()
        (features,) = struct.unpack("<Q", self.ask(1))
        self.message(3)
        (protocol,) = struct.unpack("<Q", self.ask(15))
        self.message(16, struct.pack("<Q", protocol))
        self.message(2, struct.pack("<Q", features))
        self.set_memory()
        for ring in self.rings[:rings]:
            ring.added = ring.seen = base
            ring.free = deque(range(SIZE))
            self.memory[ring.start : ring.start + RING_NBYTES] = bytes(RING_NBYTES)
            ring.set_available(base)
            struct.pack_into("<H", self.memory, ring.start + USED + 2, base)
            self.set_up_ring(ring, base)
        for ring in self.rings[:rings]:
            assert self.ask(18, struct.pack("<II", ring.index, 1), flags=9) == bytes(8)
        self.next_buffer = BUFFERS
        self.give_rx(rx_buffers)
        return self

    # The guest's part

    def give_rx(self, count: int) -> None:
        """Make buffers for packets available: a header and a page each, as Linux does."""
        ring = self.rings[0]
        for _ in range(count):
            head, body = ring.free.popleft(), ring.free.popleft()
            address = GUEST_BASE + self.next_buffer
            self.next_buffer += HEADER_NBYTES + RX_NBYTES
            ring.describe(head, address, HEADER_NBYTES, WRITE | NEXT, body)
            ring.describe(body, address + HEADER_NBYTES, RX_NBYTES, WRITE)
            ring.add(head)
        ring.notify()

    def poll(self, timeout_s: float) -> bool:
        """Receive the packets that have arrived, and return their buffers. False: none arrived in time."""
        ring = self.rings[0]
        deadline = time.monotonic() + timeout_s
        while not (came := ring.used()):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            select.select([ring.call], [], [], left_s)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(ring.call)
        for head, nbytes in came:
            where = struct.unpack_from("<Q", self.memory, ring.start + DESCRIPTORS + 16 * head)[0] - GUEST_BASE
            header = Header._make(HEADER.unpack_from(self.memory, where))
            data = self.memory[where + HEADER_NBYTES : where + nbytes]
            assert nbytes == HEADER_NBYTES + header.nbytes
            assert (header.source_cid, header.target_cid, header.type) == (2, CID, 1)
            self.packets.append(Packet(header, bytes(data)))
            ring.add(head)
        ring.notify()
        return True

    def packet(self, *ops: Op) -> Packet:
        """The next packet that is one of `ops` (or any); other packets are dropped."""
        while True:
            while self.packets:
                packet = self.packets.popleft()
                if not ops or packet.op in ops:
                    return packet
            assert self.poll(PATIENCE_S), f"no packet came; {self.log_path.read_text()}"

    def send(
        self,
        op: int,
        port: int = 1024,
        data: bytes = b"",
        *,
        flags: int = 0,
        alloc: int = 1 << 18,
        forwarded: int = 0,
        **wrong: int,
    ) -> None:
        """Send a packet and wait until the device has taken it. `wrong` overrides fields of the header."""
        ring = self.rings[1]
        header = Header(CID, 2, port, PORT, len(data), 1, op, flags, alloc, forwarded)._replace(**wrong)
        where = MEMORY_NBYTES - 0x2_0000
        self.memory[where : where + HEADER_NBYTES + len(data)] = HEADER.pack(*header) + data
        ring.describe(0, GUEST_BASE + where, HEADER_NBYTES, NEXT if data else 0, 1)
        ring.describe(1, GUEST_BASE + where + HEADER_NBYTES, len(data))
        self.add_and_wait(0)

    def add_and_wait(self, head: int) -> None:
        ring = self.rings[1]
        ring.add(head)
        ring.notify()
        deadline = time.monotonic() + PATIENCE_S
        while not ring.used():
            assert time.monotonic() < deadline, f"the packet was not taken; {self.log_path.read_text()}"
            time.sleep(0.001)

    def open(self, port: int = 1024, **header: int) -> socket.socket:
        """Open a stream from the guest's port; return the host's end."""
        self.send(Op.REQUEST, port, **header)
        assert self.packet(Op.RESPONSE, Op.RST).op == Op.RESPONSE
        return self.take_stream()

    def close(self) -> int:
        """Close all connections, after which the process ends by itself; return its exit status."""
        if self.vmm is not None:
            self.vmm.close()
        self.control.close()
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            for sock in self._all:
                sock.close()
            for ring in self.rings:
                ring.indices.release()
                os.close(ring.kick)
                os.close(ring.call)
            self.memory.close()
            os.close(self.fd)
