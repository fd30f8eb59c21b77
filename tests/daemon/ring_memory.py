"""A ring written to directly, as a client without the guest library can do (protocol/c/vgw_wire.h)."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import time

from vgpud._gen.api import RECORDS

from tests.patience import PATIENCE_S

OPCODES = {record.name: record.opcode for record in RECORDS}
HEADER_NBYTES, RECORDS_NBYTES, REPLY_NBYTES = 4096, 8 << 20, 2 << 20
NBYTES = HEADER_NBYTES + RECORDS_NBYTES + REPLY_NBYTES
TAIL, DOORBELL, HEAD = 0, 8, 64
F_ADD_SEALS, SEAL_SHRINK_GROW = 1033, 2 | 4


def open_request(nbytes: int, seals: int, number: int = 0) -> tuple[bytes, int]:
    """The record that opens a ring, and the ring's memfd."""
    fd = os.memfd_create("ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return struct.pack("<IHHIIII", 24, OPCODES["vgpuRingOpen"], 1 | 2, 1, 0, number, 0), fd


class RingMemory:
    """The shared memory of an open ring."""

    def __init__(self, sock: socket.socket, number: int = 0) -> None:
        message, fd = open_request(NBYTES, SEAL_SHRINK_GROW, number)
        socket.send_fds(sock, [message], [fd])
        answer = sock.recv(16, socket.MSG_WAITALL)
        assert struct.unpack("<IHHIi", answer)[4] == 0
        self.memory = mmap.mmap(fd, NBYTES)
        os.close(fd)
        self.tail = 0

    def close(self) -> None:
        self.memory.close()

    def word(self, at: int) -> int:
        (value,) = struct.unpack_from("<Q", self.memory, at)
        return int(value)

    def publish(self, tail: int) -> None:
        """Move the tail, and ring the doorbell for a worker that sleeps."""
        self.tail = tail
        struct.pack_into("<Q", self.memory, TAIL, tail)
        struct.pack_into("<I", self.memory, DOORBELL, (self.word(DOORBELL) + 1) & 0xFFFFFFFF)

    def push(self, record: bytes, timeout_s: float = PATIENCE_S) -> None:
        """Append a record as a client does: pad the end of the ring, wait for space.

        Raises:
            TimeoutError: the worker has stopped reading.
        """
        place = self.tail % RECORDS_NBYTES
        padding = RECORDS_NBYTES - place if RECORDS_NBYTES - place < len(record) else 0
        deadline = time.monotonic() + timeout_s
        while self.tail + padding + len(record) - self.word(HEAD) > RECORDS_NBYTES:
            if time.monotonic() > deadline:
                raise TimeoutError("the worker does not read its ring")
            time.sleep(0.001)
        if padding >= 16:
            struct.pack_into("<IHHII", self.memory, HEADER_NBYTES + place, padding, 0, 0, 0, 0)
        place = (place + padding) % RECORDS_NBYTES
        self.memory[HEADER_NBYTES + place : HEADER_NBYTES + place + len(record)] = record
        self.publish(self.tail + padding + len(record))
