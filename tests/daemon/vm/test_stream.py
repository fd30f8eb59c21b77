"""The memory that one stream holds, whatever the guest sends and however slowly the worker reads."""

from __future__ import annotations

import socket

from vgpud.vm.stream import BUF_ALLOC, Stream, StreamKey

from tests.patience import PATIENCE_S

PACKET = memoryview(bytes(64 * 1024))


def test_a_stream_that_is_never_drained_holds_no_more_than_the_credit_it_gives():
    """A large copy to a worker that reads more slowly than the guest sends."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stream = Stream(StreamKey(1, 7070), ours)
    sent = read = 0
    with theirs:
        for _ in range(200):
            while stream.backlog_nbytes + len(PACKET) <= BUF_ALLOC:
                assert stream.accept([PACKET], len(PACKET))
                sent += len(PACKET)
            read += len(theirs.recv(100_000))
            stream.writable = True
            stream.flush()
            assert stream.backlog_nbytes > 0
            assert len(stream._backlog) <= 2 * BUF_ALLOC
        theirs.settimeout(PATIENCE_S)
        while read < sent:
            read += len(theirs.recv(1 << 20))
            stream.writable = True
            stream.flush()
        stream.close()
    assert sent > 10 * BUF_ALLOC
