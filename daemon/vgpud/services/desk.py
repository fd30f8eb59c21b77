"""vgpud's end of a socket on which a worker asks questions: one SOCK_SEQPACKET packet a message, at most one descriptor
with each (daemon/executor/vgx_desk.c is the other end).

A worker acts for a tenant, and is trusted no more than the tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

# The send buffer holds some eight answers: more descriptors in flight would count against vgpud's own limit.
_UNREAD_NBYTES = 4096


class Desk:
    """One session's socket. `theirs` is the worker's end; the caller closes it after passing it on."""

    def __init__(self, question_nbytes: int, ours: socket.socket | None = None) -> None:
        """`ours`: vgpud's end of an existing socket, whose other end the session's worker already has."""
        self.is_open = True
        self._question_nbytes = question_nbytes
        if ours is None:
            self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        else:
            self._ours, self.theirs = ours, ours.dup()
            self.theirs.close()
        self._ours.setblocking(False)
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD_NBYTES)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ours.fileno(), self._read)

    def fileno(self) -> int:
        """vgpud's end."""
        return self._ours.fileno()

    def take(self, packet: bytes, fd: int | None) -> None:
        """Handle one request; takes ownership of `fd`."""
        raise NotImplementedError

    def closed(self) -> None:
        """Called once, when there will be no further questions."""

    def close(self) -> None:
        """The session is over. Closing again does nothing."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._ours.fileno())
        self._ours.close()
        self.theirs.close()
        self.closed()

    def answer(self, packet: bytes, fd: int | None) -> None:
        """Answer a question; `fd` stays the caller's."""
        with contextlib.suppress(OSError):  # the worker does not read its socket, and gets no answer
            socket.send_fds(self._ours, [packet], [] if fd is None else [fd])

    def _read(self) -> None:
        """Handle one message; the event loop calls again while more are queued."""
        try:
            packet, fds, _flags, _address = socket.recv_fds(
                self._ours, self._question_nbytes, 4, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            packet, fds = b"", []
        fd = fds[0] if len(fds) == 1 else None
        for other in fds if fd is None else []:
            os.close(other)
        if len(packet) == self._question_nbytes:
            self.take(packet, fd)
            return
        if fd is not None:
            os.close(fd)
        self.close()  # end of file, or the worker no longer belongs to this session
