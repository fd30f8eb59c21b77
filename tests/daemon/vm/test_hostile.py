"""A VMM or guest that lies: the VM loses its device, the reason is logged, and the process serves the next VM."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from vgpud.vm.packet import HEADER, Header, Op

from tests.daemon.vm.driver import (
    AVAILABLE,
    BUFFERS,
    CID,
    GUEST_BASE,
    INDIRECT,
    MEMORY_NBYTES,
    NEXT,
    PORT,
    RING_NBYTES,
    SIZE,
    USED,
    VMM_BASE,
    WRITE,
    Driver,
)
from tests.patience import PATIENCE_S

AT = GUEST_BASE + BUFFERS


def chain(*descriptors: tuple[int, int, int, int], head: int = 0, ring: int = 1) -> Callable[[Driver], None]:
    """Offer a chain of (address, nbytes, flags, next) in the ring."""

    def offer(driver: Driver) -> None:
        for index, descriptor in enumerate(descriptors):
            driver.rings[ring].describe(index, *descriptor)
        driver.rings[ring].add(head)
        driver.rings[ring].notify()

    return offer


def packet(nbytes: int, described: int) -> Callable[[Driver], None]:
    """A packet whose header says `nbytes`, in descriptors that hold `described` bytes."""

    def send(driver: Driver) -> None:
        driver.open()
        where = 0x20_0000
        header = Header(CID, 2, 1024, PORT, nbytes, 1, Op.RW, 0, 1 << 18, 0)
        driver.memory[where : where + 44] = HEADER.pack(*header)
        chain((GUEST_BASE + where, 44, NEXT, 1), (GUEST_BASE + where + 44, described, 0, 0))(driver)

    return send


def available(index: int, ring: int = 1) -> Callable[[Driver], None]:
    def announce(driver: Driver) -> None:
        driver.rings[ring].set_available(driver.rings[ring].added + index)
        driver.rings[ring].notify()

    return announce


RINGS: dict[str, tuple[Callable[[Driver], None], str]] = {
    "head beyond the ring": (chain(head=SIZE), f"descriptor {SIZE} in a ring of {SIZE}"),
    "next beyond the ring": (chain((AT, 44, NEXT, 0xFFFF)), "descriptor 65535 in a ring"),
    "a loop": (chain((AT, 44, NEXT, 1), (AT, 44, NEXT, 0)), "without an end"),
    "a descriptor that is its own next": (chain((AT, 44, NEXT, 0)), "without an end"),
    "indirect": (chain((AT, 64, INDIRECT, 0)), "indirect descriptor"),
    "a packet in a buffer to write to": (chain((AT, 44, WRITE, 0)), "wrong direction"),
    "a buffer not to be written to": (chain((AT, 4096, 0, 0), ring=0), ""),
    "empty": (chain((AT, 0, 0, 0)), "an empty descriptor"),
    "below the memory": (chain((GUEST_BASE - 1, 44, 0, 0)), "are not memory"),
    "over the memory's end": (chain((GUEST_BASE + MEMORY_NBYTES - 43, 44, 0, 0)), "are not memory"),
    "at the end of the address space": (chain((2**64 - 1, 44, 0, 0)), "are not memory"),
    "4 GiB long": (chain((AT, 2**32 - 1, 0, 0)), "are not memory"),
    "shorter than a header": (chain((AT, 43, 0, 0)), "whose first part has 43 bytes"),
    "more than there is": (packet(100, 99), "a packet of 100 bytes in buffers of 99"),
    "more than a packet may hold": (packet(70_000, 70_000), "a packet of 70000 bytes"),
    "2**32 - 1 bytes": (packet(2**32 - 1, 64), "a packet of 4294967295 bytes"),
    "more available than the ring holds": (available(SIZE + 1), f"{SIZE + 1} buffers available"),
    "available going back": (available(-1), "65535 buffers available"),
}


@pytest.mark.parametrize("name", [name for name, (_, reason) in RINGS.items() if reason])
def test_rings(driver: Driver, name: str) -> None:
    lie, reason = RINGS[name]
    lie(driver)
    assert reason in driver.reason()
    assert driver.vmm.recv(1) == b""
    assert_serves_the_next(driver)


@pytest.mark.parametrize(
    ("descriptors", "reason"),
    [
        ([(AT, 4096, 0, 0)], "wrong direction"),
        ([(AT, 40, WRITE, 0)], "whose first part has 40 bytes"),
        ([(AT, 44, WRITE | NEXT, 1), (AT + 44, 4096, 0, 0)], "wrong direction"),
        ([(GUEST_BASE + MEMORY_NBYTES, 4096, WRITE, 0)], "are not memory"),
    ],
)
def test_buffers_for_our_packets(bare: Driver, descriptors: list[tuple[int, int, int, int]], reason: str) -> None:
    bare.set_up(rx_buffers=0)
    bare.send(Op.REQUEST, target_port=1)  # the device will answer this request
    chain(*descriptors, ring=0)(bare)
    assert reason in bare.reason()
    assert_serves_the_next(bare)


def test_a_buffer_without_room_for_data(bare: Driver) -> None:
    bare.set_up(rx_buffers=0)
    bare.send(Op.REQUEST)
    bare.take_stream().sendall(b"something")
    for index in range(2):
        bare.rings[0].describe(index, AT, 44, WRITE)
        bare.rings[0].add(index)
    bare.rings[0].notify()
    assert "without room for data" in bare.reason()


def table(*rows: tuple[int, int, int, int], count: int | None = None) -> bytes:
    packed = b"".join(struct.pack("<QQQQ", *row) for row in rows)
    return struct.pack("<II", len(rows) if count is None else count, 0) + packed


GOOD = (GUEST_BASE, MEMORY_NBYTES, VMM_BASE, 0)


@pytest.mark.parametrize(
    ("payload", "fds", "reason"),
    [
        (table(), 0, "a memory table of 0 regions"),
        (b"", 0, "a memory table without a head"),
        (table(GOOD, count=9), 1, "a memory table of 9 regions"),
        (table(GOOD, count=2), 2, "a memory table of 2 regions"),
        (table(GOOD), 0, "0 descriptors for 1 memory regions"),
        (table(GOOD), 2, "2 descriptors for 1 memory regions"),
        (table((GUEST_BASE, MEMORY_NBYTES + 1, VMM_BASE, 0)), 1, "in a file of"),
        (table((GUEST_BASE, MEMORY_NBYTES, VMM_BASE, 1)), 1, "in a file of"),
        (table((GUEST_BASE, 2**64 - 1, VMM_BASE, 2)), 1, "a memory region of"),
        (table((2**64 - 1, MEMORY_NBYTES, VMM_BASE, 0)), 1, "a memory region of"),
        (table((GUEST_BASE, 0, VMM_BASE, 0)), 1, "a memory region of 0 bytes"),
        (table(GOOD, (GUEST_BASE + 4096, 4096, VMM_BASE * 2, 0)), 2, "overlap"),
    ],
)
def test_memory(bare: Driver, payload: bytes, fds: int, reason: str) -> None:
    bare.connect()
    bare.message(5, payload, (bare.fd,) * fds)
    assert reason in bare.reason()
    assert_serves_the_next(bare)


def test_memory_that_is_no_file(bare: Driver) -> None:
    bare.connect()
    reading, writing = os.pipe()
    bare.message(5, table(GOOD), (reading,))
    os.close(reading)
    os.close(writing)
    assert "in a file of 0" in bare.reason()


def ring_address(index: int = 0, flags: int = 0, **parts: int) -> bytes:
    at = {"descriptors": VMM_BASE, "used": VMM_BASE + USED, "available": VMM_BASE + AVAILABLE} | parts
    return struct.pack("<IIQQQQ", index, flags, at["descriptors"], at["used"], at["available"], 0)


@pytest.mark.parametrize(
    ("request_number", "payload", "reason"),
    [
        (1, b"x" * 600, "a vhost-user message of 600 bytes"),
        (2, struct.pack("<Q", 1 << 28), "features 0x10000000, which were not offered"),
        (16, struct.pack("<Q", 1), "features 0x1, which were not offered"),
        (2, b"", "SET_FEATURES of 0 bytes"),
        (6, bytes(16), "request 6, which was not offered"),
        (0, b"", "request 0"),
        (0xFFFFFFFF, b"", "request 4294967295"),
        (8, struct.pack("<II", 3, 64), "ring 3 of a vsock device"),
        (8, struct.pack("<II", 0, 0), "a ring of 0 descriptors"),
        (8, struct.pack("<II", 0, 65), "a ring of 65 descriptors"),
        (8, struct.pack("<II", 0, 1 << 16), "a ring of 65536 descriptors"),
        (10, struct.pack("<II", 0, 1 << 16), "goes on at 65536"),
        (9, ring_address(flags=1), "a log of writes"),
        (12, struct.pack("<Q", 0), "0 descriptors for an event"),
        (12, struct.pack("<Q", 1 << 8), "to be polled"),
        (13, struct.pack("<Q", 200), "ring 200"),
        (24, b"x", "GET_CONFIG without a head"),
    ],
)
def test_messages(bare: Driver, request_number: int, payload: bytes, reason: str) -> None:
    bare.connect()
    bare.message(request_number, payload)
    assert reason in bare.reason()
    assert_serves_the_next(bare)


@pytest.mark.parametrize("flags", [0, 2, 3, 5])
def test_message_flags(bare: Driver, flags: int) -> None:
    bare.connect()
    bare.message(1, flags=flags)
    assert "a vhost-user message with flags" in bare.reason()


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"descriptors": VMM_BASE + 8}, "a ring lies askew"),
        ({"used": VMM_BASE + USED + 2}, "a ring lies askew"),
        ({"available": VMM_BASE + AVAILABLE + 1}, "a ring lies askew"),
        ({"descriptors": VMM_BASE + MEMORY_NBYTES - 16 * SIZE + 16}, "are not memory"),
        ({"used": VMM_BASE + MEMORY_NBYTES - 8 * SIZE}, "are not memory"),
        ({"available": VMM_BASE - 2}, "are not memory"),
        ({"available": 2**64 - 2}, "are not memory"),
    ],
)
def test_ring_addresses(bare: Driver, parts: dict[str, int], reason: str) -> None:
    bare.connect()
    bare.set_memory()
    bare.message(8, struct.pack("<II", 0, SIZE))
    bare.message(9, ring_address(**parts))
    assert reason in bare.reason()


def test_addresses_before_a_size(bare: Driver) -> None:
    bare.connect()
    bare.set_memory()
    bare.message(9, ring_address())
    assert "addresses before its size" in bare.reason()


@pytest.mark.parametrize(("number", "value"), [(8, 128), (10, 5)])
def test_a_running_ring_stays_as_it_is(driver: Driver, number: int, value: int) -> None:
    driver.message(number, struct.pack("<II", 1, value))
    assert "a running ring" in driver.reason()


def test_an_event_that_is_no_eventfd(bare: Driver) -> None:
    """Writing to a full pipe would block the device for ever."""
    bare.connect()
    reading, writing = os.pipe()
    bare.message(13, struct.pack("<Q", 0), (writing,))
    os.close(reading)
    os.close(writing)
    assert "not an eventfd" in bare.reason()


def test_too_many_descriptors(bare: Driver) -> None:
    bare.connect()
    bare.message(1, fds=(bare.fd,) * 9)
    assert "too many descriptors" in bare.reason()
    assert_serves_the_next(bare)


def test_a_vmm_that_does_not_read_its_answers(bare: Driver) -> None:
    bare.connect()
    bare.vmm.settimeout(PATIENCE_S)
    with contextlib.suppress(ConnectionError):
        while True:
            bare.message(1)
    assert "does not read its answers" in bare.reason()


def test_half_a_message_holds_nobody_up(bare: Driver) -> None:
    bare.connect()
    bare.vmm.sendall(b"\x01\x00")
    bare.vmm.close()
    bare.wait_message("vm", connected=False)
    assert_serves_the_next(bare)


def test_memory_that_shrinks_costs_the_process(tmp_path: Path) -> None:
    """Access to memory that has been truncated raises SIGBUS, which ends the process: vgpud starts another one."""
    driver = Driver(tmp_path).set_up()
    os.ftruncate(driver.fd, 4096)
    driver.rings[1].notify()
    assert driver.process.wait(PATIENCE_S) == -signal.SIGBUS
    os.ftruncate(driver.fd, MEMORY_NBYTES)
    assert driver.close() == -signal.SIGBUS


def assert_serves_the_next(driver: Driver) -> None:
    driver.vmm.close()
    driver.vmm = None
    driver.streams.clear()
    driver.packets.clear()
    host = driver.set_up().open()
    driver.send(Op.RW, data=b"the next guest")
    assert host.recv(100) == b"the next guest"
    host.close()


@pytest.mark.parametrize("seed", range(8))
def test_random_guests(driver: Driver, seed: int) -> None:
    """Random rings, descriptors and packets, most of them nearly valid: the device ends with a reason, or goes on."""
    chance = random.Random(seed)
    for _ in range(40):
        try:
            for _ in range(50):
                one_random_step(driver, chance)
        except (AssertionError, OSError):
            pass
        assert driver.process.poll() is None, driver.log_path.read_text()
        driver.vmm.close()
        driver.vmm = None
        while driver.streams:
            driver.streams.popleft().close()
        driver.packets.clear()
        driver.wait_message("vm", connected=False)
        driver.set_up()
    assert all("Violation" not in str(m.get("reason")) for m in driver.messages)  # a reason never names the exception
    assert_serves_the_next(driver)


def one_random_step(driver: Driver, chance: random.Random) -> None:
    ring = driver.rings[chance.randrange(2)]
    kind = chance.randrange(10)
    if kind < 5:
        where = 0x20_0000 + chance.randrange(0x1000)
        header = Header(
            chance.choice([CID, CID, CID, 2, chance.getrandbits(64)]),
            chance.choice([2, 2, 2, CID]),
            chance.randrange(4),
            chance.choice([PORT, PORT, 1]),
            chance.choice([0, 0, 10, 4096, chance.getrandbits(32)]),
            chance.choice([1, 1, 1, 1, 2, chance.getrandbits(16)]),
            chance.choice([*range(9), Op.REQUEST, Op.RW, chance.getrandbits(16)]),
            chance.getrandbits(2),
            chance.choice([0, 1, 1 << 18, chance.getrandbits(32)]),
            chance.choice([0, 10, chance.getrandbits(32)]),
        )
        driver.memory[where : where + 44] = HEADER.pack(*header)
        nbytes = chance.choice([44, 54, 4140, 4140, 43, chance.getrandbits(32)])
        driver.rings[1].describe(0, GUEST_BASE + where, nbytes)
        driver.rings[1].add(0)
    elif kind < 7:
        count = chance.randrange(1, 4)
        for index in range(count):
            address = GUEST_BASE + chance.randrange(MEMORY_NBYTES + 8)
            flags = (WRITE if ring.index == 0 else 0) | (NEXT if index < count - 1 else 0)
            if not chance.randrange(20):
                flags = chance.getrandbits(16)
            ring.describe(index, address, chance.choice([44, 60, 4096, 0, 10**9]), flags, index + 1)
        ring.add(0)
    elif kind == 7:
        driver.memory[ring.start + chance.randrange(RING_NBYTES)] = chance.getrandbits(8)
    elif kind == 8 and driver.streams:
        stream = driver.streams.popleft()
        stream.setblocking(False)
        stream.send(b"z" * chance.randrange(1, 20_000))
        stream.shutdown(socket.SHUT_WR)
        stream.close()
    else:
        driver.message(chance.randrange(26), chance.randbytes(chance.choice([0, 8, 8, 40])))
    ring.notify()


def test_streams_beyond_the_descriptors_there_are_get_refused(driver: Driver) -> None:
    """Any user of a guest may open streams: too many are refused, and the VM keeps its device."""
    in_use = len(os.listdir(f"/proc/{driver.process.pid}/fd"))
    resource.prlimit(driver.process.pid, resource.RLIMIT_NOFILE, (in_use + 6, in_use + 6))
    first = driver.open(1)
    for port in range(2, 12):
        driver.send(Op.REQUEST, port)
    ops = [driver.packet(Op.RESPONSE, Op.RST).op for _ in range(2, 12)]
    assert Op.RST in ops
    driver.send(Op.RW, 1, b"still here")
    assert first.recv(100) == b"still here"
