"""One vsock stream of a VM: a guest's socket on one side, our end of a socket pair on the other, credit both ways.

Towards the guest nothing is kept here: bytes go from the socket into the guest's buffer once there is credit for them.
From the guest at most BUF_ALLOC bytes wait, which is all the credit it is given.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from .packet import RECEIVE, SEND, U32

BUF_ALLOC = 256 * 1024  # Linux guests use no more unless told to: it is their own default


class StreamKey(NamedTuple):
    """The two ports; both CIDs are given by the device."""

    guest_port: int
    host_port: int


class Stream:
    """State only; the mux decides when to call."""

    __slots__ = (
        "_backlog",
        "_backlog_start",
        "credit_asked",
        "finished",
        "forwarded",
        "guest_shut",
        "key",
        "peer_alloc",
        "peer_forwarded",
        "readable",
        "sent",
        "sock",
        "told_forwarded",
        "told_shut",
        "writable",
    )

    def __init__(self, key: StreamKey, sock: socket.socket) -> None:
        self.key = key
        self.sock = sock
        # Free-running counters of bytes, modulo 2**32, as the packets carry them.
        self.sent = 0  # to the guest
        self.peer_alloc = 0  # how much the guest buffers
        self.peer_forwarded = 0  # of `sent`, what has left the guest's buffer
        self.forwarded = 0  # bytes from the guest that have left vgpud's buffer
        self.told_forwarded = 0  # the last value of `forwarded` that was sent to the guest
        self.credit_asked = False
        self.readable = True  # not yet seen to block
        self.writable = True
        self.guest_shut = 0  # RECEIVE and SEND, as the guest said
        self.told_shut = 0  # likewise, as sent to the guest
        self.finished = False  # the other end of `sock` is closed
        self._backlog = bytearray()
        self._backlog_start = 0

    @property
    def credit(self) -> int:
        """How many bytes the guest can take now."""
        return max(0, self.peer_alloc - ((self.sent - self.peer_forwarded) & U32))

    @property
    def backlog_nbytes(self) -> int:
        """Bytes that the guest sent and the socket has not accepted yet."""
        return len(self._backlog) - self._backlog_start

    def owes_credit(self) -> bool:
        """Whether the guest should be told how much was forwarded.

        Linux caps its credit at the smaller of both sides' buffers, so a quarter of BUF_ALLOC may never become due.
        """
        return (self.forwarded - self.told_forwarded) & U32 > min(BUF_ALLOC, self.peer_alloc) // 4

    def accept(self, parts: list[memoryview], nbytes: int) -> bool:
        """Take `nbytes` that the guest sent, which lie at the start of `parts`. False: it had no credit for them."""
        if self.backlog_nbytes + nbytes > BUF_ALLOC:
            return False
        if self._backlog_start >= BUF_ALLOC:  # with a worker slower than its guest the backlog never becomes empty
            del self._backlog[: self._backlog_start]
            self._backlog_start = 0
        for whole in parts:
            part = whole[:nbytes]
            nbytes -= len(part)
            if not self.backlog_nbytes:
                part = part[self._send(part) :]
            self._backlog += part
            if not nbytes:
                break
        return True

    def flush(self) -> None:
        """Send the backlog as far as the socket accepts it; then shut down writing if the guest sends no more."""
        if self.backlog_nbytes and self.writable:
            with memoryview(self._backlog) as view, view[self._backlog_start :] as waiting:
                self._backlog_start += self._send(waiting)
            if self._backlog_start == len(self._backlog):
                self._backlog, self._backlog_start = bytearray(), 0
        if not self.backlog_nbytes and self.guest_shut & SEND and not self.finished:
            self._shut(socket.SHUT_WR)

    def shut_by_guest(self, flags: int) -> None:
        """The guest will not send, or receive, any more."""
        self.guest_shut |= flags & (RECEIVE | SEND)
        if self.guest_shut & RECEIVE:
            self.readable = False
            self._shut(socket.SHUT_RD)
        self.flush()

    def receive(self, parts: list[memoryview], nbytes: int) -> int | None:
        """Read up to `nbytes` for the guest into `parts`: how many, 0 at the end of file, None if none are
        available."""
        try:
            if len(parts) == 1:
                got = self.sock.recv_into(parts[0], min(nbytes, len(parts[0])))
            else:
                got = self.sock.recvmsg_into(_first(parts, nbytes))[0]
        except BlockingIOError:
            self.readable = False
            return None
        except OSError:
            got = 0
        if not got:
            self.readable = False
        self.sent = (self.sent + got) & U32
        return got

    def close(self) -> None:
        """Close the socket: the worker reads end of file."""
        self.sock.close()
        self._backlog, self._backlog_start = bytearray(), 0

    def _send(self, data: memoryview) -> int:
        """Send data. Returns how much was sent, or dropped if the worker has hung up: the guest is told separately."""
        try:
            sent = self.sock.send(data)
            self.writable = sent == len(data)
        except BlockingIOError:
            self.writable = False
            return 0
        except OSError:
            self.finished = True
            sent = len(data)
        self.forwarded = (self.forwarded + sent) & U32
        return sent

    def _shut(self, how: int) -> None:
        try:
            self.sock.shutdown(how)
        except OSError:
            self.finished = True


def _first(parts: list[memoryview], nbytes: int) -> list[memoryview]:
    """Views of the first `nbytes` of `parts`, or of all."""
    taken = []
    for part in parts:
        if nbytes <= 0:
            break
        taken.append(part[:nbytes])
        nbytes -= len(taken[-1])
    return taken
