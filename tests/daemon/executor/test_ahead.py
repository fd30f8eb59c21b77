"""A socket on which one thread reads ahead (daemon/executor/vgx_ahead.h), and host memory that it does not share: what
a client may send behind a call that waits for a host function."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from vgpud._gen.api import HAS_FD

from tests.daemon.hostile_session import PINNED, SECOND_STREAM, STREAM, HostileSession
from tests.daemon.running import Running, vgpud_with_real_workers

INVALID_VALUE, OUT_OF_MEMORY, NOT_READY = 1, 2, 600
PAGE, MIB = 4096, 1 << 20
FAR = PINNED + (1 << 40)
FILES = 100


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("ahead"))


def block(session: HostileSession) -> None:
    """Have the thread that executes records wait for a host function."""
    session.send("vgpuHostCallback", callback=1, hStream=STREAM)
    session.send_queued("cuStreamSynchronize", hStream=STREAM)


def take_callback(session: HostileSession) -> None:
    """Receive the host function that is due; what was sent before the question has been read then."""
    while (answer := session.call("vgpuNextCallback", context=0))[0] == NOT_READY:
        pass
    assert struct.unpack("<Ii", answer[1]) == (1, 0)


def unblock(session: HostileSession) -> None:
    take_callback(session)
    session.send("vgpuCallbackDone", context=0, callback=1)


def test_the_end_of_a_host_function_is_read_behind_much_data(running: Running) -> None:
    with HostileSession(running) as session:
        memory = struct.unpack("<Q", session.ok("cuMemAlloc_v2", bytesize=MIB))[0]
        block(session)
        for number in range(96):
            session.send(
                "cuMemcpyHtoDAsync_v2", bytes([number]) * MIB, dstDevice=memory, ByteCount=MIB, hStream=SECOND_STREAM
            )
        unblock(session)
        last = session.ok("cuMemcpyDtoHAsync_v2", srcDevice=memory + MIB - 8, ByteCount=8, hStream=SECOND_STREAM)
        assert last == bytes([95]) * 8


def test_what_is_read_ahead_counts_for_the_tenant(tmp_path: Path) -> None:
    """Some of it is kept even if the tenant may have no more: the end of a host function must be read."""
    half = 20
    for running in vgpud_with_real_workers(tmp_path, "[limits]\nhost_memory_mib = 40\n"):
        with HostileSession(running) as ahead, HostileSession(running) as other:

            def offered(address: int, mib: int) -> int:
                fd, result = other.offer_pinned(address, mib * MIB)
                os.close(fd)
                return result

            memory = struct.unpack("<Q", ahead.ok("cuMemAlloc_v2", bytesize=MIB))[0]
            assert offered(PINNED, half) == 0
            block(ahead)
            for _ in range(half + 4):
                ahead.send("cuMemcpyHtoDAsync_v2", bytes(MIB), dstDevice=memory, ByteCount=MIB, hStream=SECOND_STREAM)
            take_callback(ahead)
            assert offered(FAR, 1) == OUT_OF_MEMORY
            ahead.send("vgpuCallbackDone", context=0, callback=1)
            ahead.ok("cuStreamSynchronize", hStream=SECOND_STREAM)
            assert offered(FAR, half) == 0


def test_descriptors_are_read_ahead(running: Running) -> None:
    """As where each of many threads registers memory."""
    with HostileSession(running) as session:
        block(session)
        for number in range(FILES):
            fd = os.memfd_create("pinned", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, PAGE)
            address = PINNED + number * 2 * MIB
            record = bytearray(session.record("vgpuHostMapFile", address=address, nbytes=PAGE, offset=0, read_only=0))
            record[6] |= HAS_FD
            socket.send_fds(session.sock, [bytes(record)], [fd])
            os.close(fd)
        unblock(session)
        assert [session.reply()[0] for _ in range(FILES)] == [0] * FILES
        assert session.is_served()


def changes(session: HostileSession, begin: int, *pages: int) -> tuple[int, bytes, int]:
    """The result, the runs of pages, and where to go on."""
    asked = b"".join(struct.pack("<QQ", page, PAGE) for page in pages)
    result, body = session.call(
        "vgpuHostChanges", asked, context=0, begin=begin, pages_nbytes=len(asked), capacity=16 * PAGE
    )
    filled, following = struct.unpack_from("<QQ", body) if result == 0 else (0, 0)
    return result, body[16 : 16 + filled], following


def test_pages_before_one_that_cannot_be_read_are_sent(running: Running) -> None:
    """An error would leave the digest of what was not sent, and the page would never be sent."""
    with HostileSession(running) as session:
        session.ok("vgpuHostReserve", address=PINNED, nbytes=2 * MIB)
        session.launch("store", PINNED)
        session.ok("cuStreamSynchronize", hStream=STREAM)
        for other in (PINNED + 64 * MIB, PAGE):  # no such mapping, and outside the window
            assert changes(session, 0, other) == (INVALID_VALUE, b"", 0)
        for number, other in enumerate((PINNED + 64 * MIB, PAGE)):
            page = PINNED + number * PAGE
            session.launch("store", page)
            session.ok("cuStreamSynchronize", hStream=STREAM)
            result, runs, following = changes(session, 0, page, other)
            assert (result, following) == (0, 1)
            assert runs == struct.pack("<QQI", page, PAGE, 42) + bytes(PAGE - 4)
            assert changes(session, 1, page, other) == (INVALID_VALUE, b"", 0)
            assert changes(session, 0, page) == (0, b"", 0)
