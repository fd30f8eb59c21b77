"""The virtio-vsock device: the guest's packets in one ring, the host's in the other, and the streams between them.

What one round may do is bounded, so that neither a stream nor a direction starves another; what the device holds is
bounded by STREAMS_MAX, stream.BUF_ALLOC and REPLIES_MAX.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .packet import (
    HEADER,
    HEADER_NBYTES,
    HOST_CID,
    PAYLOAD_NBYTES,
    RECEIVE,
    SEND,
    STREAM,
    TRANSPORT_RESET,
    Header,
    Op,
)
from .stream import BUF_ALLOC, Stream, StreamKey
from .violation import Violation
from .vring import Chain, Vring

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

STREAMS_MAX = 1024
REPLIES_MAX = 512  # packets without data that wait for a guest buffer; with more, the guest's packets wait
_CHAINS_A_ROUND = 128
_PACKETS_A_TURN = 32  # of one stream before the next one's turn


class Mux:
    """One VM's streams.

    Args:
        cid: the VM's.
        connect: connect(port) gives our end of a new stream to that port, non-blocking; None refuses it.
        watch: called with each new stream, to report its socket's readiness to `stream_ready`.
    """

    def __init__(
        self, cid: int, connect: Callable[[int], socket.socket | None], watch: Callable[[Stream], None]
    ) -> None:
        self.cid = cid
        self.to_guest = Vring(guest_reads=True)
        self.from_guest = Vring(guest_reads=False)
        self.events = Vring(guest_reads=True)
        self.streams: dict[StreamKey, Stream] = {}
        self.reset_due = False  # the guest still has streams that this process does not know
        self._connect, self._watch = connect, watch
        self._replies: deque[tuple[StreamKey, Op, int]] = deque()
        self._ready: dict[Stream, None] = {}  # streams that may have bytes for the guest, in turn

    @property
    def rings(self) -> tuple[Vring, Vring, Vring]:
        """The rings in the order of their numbers."""
        return (self.to_guest, self.from_guest, self.events)

    def drop_streams(self) -> None:
        """Close all streams, as the guest is gone or has forgotten them: their workers read end of file."""
        for stream in self.streams.values():
            stream.close()
        self.streams.clear()
        self._ready.clear()
        self._replies.clear()

    def stream_ready(self, stream: Stream, *, readable: bool, writable: bool, hung_up: bool) -> None:
        """The socket's state has changed."""
        if self.streams.get(stream.key) is not stream:
            return
        if readable or hung_up:
            stream.readable = not stream.guest_shut & RECEIVE
            self._ready[stream] = None
        if writable:
            stream.writable = True
            stream.flush()
            self._after_forwarding(stream)
        if hung_up:
            stream.finished = True

    def round(self) -> bool:
        """Move a bounded amount of data in both directions. Returns whether there may be more. Raises Violation."""
        more = self._take_packets()
        gave, even_more = self._give_packets()
        if gave:
            self.to_guest.notify()
        if self.reset_due:
            self._announce_reset()
        return more or even_more

    # From the guest

    def _take_packets(self) -> bool:
        ring = self.from_guest
        count = 0
        while count < _CHAINS_A_ROUND and len(self._replies) < REPLIES_MAX:
            chain = ring.take()
            if chain is None:
                break
            header, payload = _read(chain)
            if header.source_cid == self.cid and header.target_cid == HOST_CID:
                self._packet(header, payload)
            ring.complete(chain.head, 0)
            count += 1
        if count:
            ring.notify()
        return count == _CHAINS_A_ROUND

    def _packet(self, header: Header, payload: list[memoryview]) -> None:
        key = StreamKey(header.source_port, header.target_port)
        stream = self.streams.get(key)
        if header.op == Op.REQUEST and stream is None and header.type == STREAM:
            self._open(key, header)
            return
        if stream is None or header.type != STREAM:
            if header.op != Op.RST:
                self._replies.append((key, Op.RST, 0))
            return
        stream.peer_alloc, stream.peer_forwarded = header.buf_alloc, header.fwd_cnt
        if stream.credit:
            stream.credit_asked = False
        if stream.readable:
            self._ready[stream] = None
        match header.op:
            case Op.RW:
                if stream.finished or stream.guest_shut & SEND or not stream.accept(payload, header.nbytes):
                    self._reset(stream)
                else:
                    self._after_forwarding(stream)
            case Op.SHUTDOWN:
                stream.shut_by_guest(header.flags)
                self._after_forwarding(stream)
            case Op.CREDIT_REQUEST:
                self._replies.append((key, Op.CREDIT_UPDATE, 0))
            case Op.CREDIT_UPDATE:
                pass
            case Op.RST:
                self._forget(stream)
            case _:
                self._reset(stream)

    def _open(self, key: StreamKey, header: Header) -> None:
        if len(self.streams) >= STREAMS_MAX:
            self._forget_one_that_ended()
        sock = self._connect(key.host_port) if len(self.streams) < STREAMS_MAX else None
        if sock is None:
            self._replies.append((key, Op.RST, 0))
            return
        stream = self.streams[key] = Stream(key, sock)
        stream.peer_alloc, stream.peer_forwarded = header.buf_alloc, header.fwd_cnt
        self._replies.append((key, Op.RESPONSE, 0))
        self._watch(stream)

    def _forget_one_that_ended(self) -> None:
        """Drop one stream whose worker has closed it, although the guest's program has not noticed yet."""
        for stream in self.streams.values():
            if stream.finished:
                self._reset(stream)
                return

    def _after_forwarding(self, stream: Stream) -> None:
        both = RECEIVE | SEND
        if stream.guest_shut & both == both and not stream.backlog_nbytes:
            self._reset(stream)  # which is how the end of a stream is confirmed
        elif stream.owes_credit():
            stream.told_forwarded = stream.forwarded
            self._replies.append((stream.key, Op.CREDIT_UPDATE, 0))

    def _reset(self, stream: Stream) -> None:
        self._replies.append((stream.key, Op.RST, 0))
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        self._ready.pop(stream, None)
        del self.streams[stream.key]
        stream.close()

    # To the guest

    def _give_packets(self) -> tuple[int, bool]:
        """The number of packets that were sent to the guest, and whether more could be."""
        given = 0
        while self._replies:
            chain = self.to_guest.take()
            if chain is None:
                return given, False
            key, op, flags = self._replies.popleft()
            self._write(chain, key, op, flags)
            given += 1
        for stream in list(self._ready):
            count, out_of_buffers = self._give_data(stream)
            given += count
            if out_of_buffers:
                return given, False  # the guest's next kick resumes this
            if stream in self._ready:
                del self._ready[stream]
                if stream.readable and stream.credit:
                    self._ready[stream] = None  # to the end of the queue
        return given, bool(self._ready) or bool(self._replies)

    def _give_data(self, stream: Stream) -> tuple[int, bool]:
        for count in range(_PACKETS_A_TURN):
            if not stream.readable:
                return count, False
            credit = stream.credit
            if not credit:
                if not stream.credit_asked:
                    stream.credit_asked = True
                    self._replies.append((stream.key, Op.CREDIT_REQUEST, 0))
                return count, False
            chain = self.to_guest.take()
            if chain is None:
                return count, True
            parts = _payload(chain)
            if not parts:
                raise Violation("a buffer without room for data")
            got = stream.receive(parts, min(credit, PAYLOAD_NBYTES))
            if got is None:
                self.to_guest.put_back()
                return count, False
            if not got:  # end of file: the worker sends no more; with `finished` it accepts no more either
                flags = RECEIVE | SEND if stream.finished else SEND
                if flags == stream.told_shut:
                    self.to_guest.put_back()
                    return count, False
                stream.told_shut = flags
                self._write(chain, stream.key, Op.SHUTDOWN, flags)
                return count + 1, False
            self._write(chain, stream.key, Op.RW, 0, got)
        return _PACKETS_A_TURN, False

    def _write(self, chain: Chain, key: StreamKey, op: Op, flags: int, nbytes: int = 0) -> None:
        stream = self.streams.get(key)
        forwarded = 0
        if stream is not None:
            forwarded = stream.told_forwarded = stream.forwarded
        head = chain.parts[0]
        if len(head) < HEADER_NBYTES:
            raise Violation(f"a buffer whose first part has {len(head)} bytes")
        ports = (key.host_port, key.guest_port)
        HEADER.pack_into(head, 0, HOST_CID, self.cid, *ports, nbytes, STREAM, op, flags, BUF_ALLOC, forwarded)
        self.to_guest.complete(chain.head, HEADER_NBYTES + nbytes)

    def _announce_reset(self) -> None:
        chain = self.events.take()
        if chain is None:
            return
        if len(chain.parts[0]) < len(TRANSPORT_RESET):
            raise Violation(f"an event buffer of {len(chain.parts[0])} bytes")
        chain.parts[0][: len(TRANSPORT_RESET)] = TRANSPORT_RESET
        self.events.complete(chain.head, len(TRANSPORT_RESET))
        self.events.notify()
        self.reset_due = False


def _read(chain: Chain) -> tuple[Header, list[memoryview]]:
    """A copy of a packet's header, and the location of its payload. Raises Violation when the payload is shorter
    than the header says."""
    head = chain.parts[0]
    if len(head) < HEADER_NBYTES:
        raise Violation(f"a packet whose first part has {len(head)} bytes")
    header = Header._make(HEADER.unpack_from(head))
    payload = _payload(chain)
    there = sum(map(len, payload))
    if header.nbytes > min(there, PAYLOAD_NBYTES):
        raise Violation(f"a packet of {header.nbytes} bytes in buffers of {there}")
    return header, payload


def _payload(chain: Chain) -> list[memoryview]:
    head, *rest = chain.parts
    return [head[HEADER_NBYTES:], *rest] if len(head) > HEADER_NBYTES else rest
