"""One packet of a control socket, with the descriptors that came with it."""

from __future__ import annotations

import socket


def receive_packet(sock: socket.socket, nbytes: int) -> tuple[bytes, list[int]] | None:
    """The next packet of a non-blocking SOCK_SEQPACKET socket and its one descriptor, if there is one.

    None: no packet has arrived. Empty bytes: the peer has closed the socket. The caller closes the descriptor.
    """
    try:
        packet, fds, _flags, _address = socket.recv_fds(sock, nbytes, 1, socket.MSG_CMSG_CLOEXEC)
    except BlockingIOError:
        return None
    except OSError:
        return b"", []
    return packet, fds
