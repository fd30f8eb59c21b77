"""Sessions of a VM in memory that it shares with the host, driven by a client without the guest library (`make build`
first)."""

import random
import re
import struct
from collections.abc import Iterator

import pytest
from vgpud.cli.client import Client
from vgpud.endpoint import parse_endpoint

from tests.daemon.ring_memory import HEADER_NBYTES, NBYTES, OPCODES
from tests.daemon.running import wait_until
from tests.daemon.vm.region_host import PAGE, WINDOW, GuestSession, RegionHost, region_host
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def host() -> Iterator[RegionHost]:
    with region_host() as host:
        yield host


@pytest.fixture(autouse=True)
def all_ranges_are_free(host: RegionHost):
    """A range is free once its session's worker is reaped: wait for that, so that all tests begin in the same state."""
    wait_until(lambda: not host.running.status()["sessions"])


def record(name: str, body: bytes = b"", length: int | None = None, flags: int = 0, sequence: int = 1) -> bytes:
    return struct.pack("<IHHII", 16 + len(body) if length is None else length, OPCODES[name], flags, sequence, 0) + body


def reason(host: RegionHost, session: GuestSession) -> str:
    said = host.running.wait_log(rf'worker ended session={session.number} worker=\d+ how="exit 1" reason="?([^"\n]+)')
    return said[1]


def test_the_header_is_where_welcome_says(host):
    with GuestSession(host) as session:
        region = session.welcome.region
        assert session.memory[:8] == b"VGPUREGN"
        assert session.memory[8:24] == region["cookie"]
        assert len(session.memory) == region["nbytes"]
        assert "pinned-fd" not in session.welcome.features


def test_two_sessions_have_disjoint_ranges_and_a_third_has_none(host):
    with GuestSession(host) as one, GuestSession(host) as two, GuestSession(host) as three:
        (a, an), (b, bn) = sorted([one.range, two.range])
        assert 4096 <= a < a + an <= b < b + bn <= len(one.memory)
        assert three.range is None
        assert three.ask("vgpuTakeOutput", struct.pack("<Q", 8)) == 0  # the session is served on the socket
    assert host.running.wait_log(rf'session attached .*session={three.number} .*memory="none left"')


def test_a_client_without_the_memory_is_not_told_of_it(host):
    with Client(parse_endpoint(host.url)) as client:
        welcome = client.hello()
        assert welcome.region is None
        assert set(welcome.features) <= {"images", "progress", "activity"}
        assert client.attach().region is None


def test_a_ring_is_served(host):
    with GuestSession(host) as session:
        ring = session.open_ring()
        for sequence in range(1, 200):
            ring.push(record("vgpuTakeOutput", struct.pack("<Q", 8), flags=1, sequence=sequence))
            session.ask("vgpuRingWait", struct.pack("<II", 0, sequence))
            assert struct.unpack_from("<I", ring.memory, 80)[0] == sequence  # `reply`
        ring.close()


def test_an_old_sessions_bytes_are_gone(host):
    with GuestSession(host) as one, GuestSession(host) as two:
        for session in (one, two):
            begin, nbytes = session.range
            session.memory[begin + 12345 : begin + 12351] = b"secret"
            session.memory[begin + nbytes - 6 : begin + nbytes] = b"secret"
    wait_until(lambda: not host.running.status()["sessions"])
    with GuestSession(host) as one, GuestSession(host) as two:
        for session in (one, two):
            begin, nbytes = session.range
            assert session.memory[begin : begin + nbytes].count(0) == nbytes


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("vgpuRingOpenAt", struct.pack("<QII", 1, 0, 0)),
        ("vgpuRingOpenAt", struct.pack("<QII", 2**64 - PAGE, 0, 0)),
        ("vgpuRingOpenAt", struct.pack("<QII", 32 << 20, 0, 0)),
        ("vgpuRingOpenAt", struct.pack("<QII", (32 << 20) - 2 * PAGE, 0, 0)),
        ("vgpuRingOpenAt", struct.pack("<QII", 0, 256, 0)),
        ("vgpuRingWake", struct.pack("<II", 0, 0)),
        ("vgpuRingWait", struct.pack("<II", 2**32 - 1, 0)),
        ("vgpuHostMapAt", struct.pack("<QQQ", WINDOW, PAGE, 2**64 - PAGE)),
        ("vgpuHostMapAt", struct.pack("<QQQ", WINDOW, PAGE, 40 << 20)),
        ("vgpuHostMapAt", struct.pack("<QQQ", WINDOW, 2**40, 0)),
        ("vgpuHostMapAt", struct.pack("<QQQ", WINDOW, PAGE, 8)),
        ("vgpuHostMapAt", struct.pack("<QQQ", WINDOW, 0, 0)),
        ("vgpuHostMapAt", struct.pack("<QQQ", 0x10000, PAGE, 0)),
    ],
)
def test_what_lies_outside_the_range_ends_the_session(host, name, body):
    with GuestSession(host) as hostile:
        assert hostile.ask("cuDevicePrimaryCtxRetain", struct.pack("<Ii", 1, 0)) == 0  # context 1, device 0
        hostile.send(name, body, wait=True, context=1)
        assert hostile.ended()
        assert "protocol violation" in reason(host, hostile)


def test_nobody_else_notices(host):
    with GuestSession(host) as other, GuestSession(host) as hostile:
        other_ring, ring = other.open_ring(), hostile.open_ring()
        ring.publish(12)
        assert hostile.ended()
        other_ring.push(record("vgpuTakeOutput", struct.pack("<Q", 8), flags=1))
        assert other.ask("vgpuRingWait", struct.pack("<II", 0, 1)) == 0
        other_ring.close()
        ring.close()


def test_a_range_is_a_sessions_own_even_by_number(host):
    """The worker's file contains the other session's range, but offsets outside the session's own range are refused."""
    with GuestSession(host) as one, GuestSession(host) as two:
        first, second = sorted([one, two], key=lambda session: session.range[0])
        beyond = second.range[0] - first.range[0]
        first.send("vgpuRingOpenAt", struct.pack("<QII", beyond, 0, 0), wait=True)
        assert first.ended()
        assert "outside the session's memory" in reason(host, first)


@pytest.mark.parametrize(
    ("data", "tail"),
    [
        (record("vgpuTakeOutput", length=2**32 - 8), None),
        (record("vgpuTakeOutput", bytes(8), length=17), None),
        (record("vgpuRingOpenAt", bytes(16)), None),
        (record("vgpuRingWait", bytes(8), flags=1), None),
        (record("vgpuRingWake", bytes(8)), None),
        (record("vgpuNextCallback", flags=1), None),
        (record("vgpuTakeOutput", bytes(8), flags=2), None),
        (record("vgpuRingFence", struct.pack("<QII", 1, 7, 0)), None),
        (b"", 2**63),
        (b"", 12),
        (random.Random(5).randbytes(4096), None),
    ],
)
def test_a_violation_in_a_ring_ends_one_session_with_a_reason(host, data, tail):
    with GuestSession(host) as hostile:
        ring = hostile.open_ring()
        ring.memory[HEADER_NBYTES : HEADER_NBYTES + len(data)] = data
        ring.publish(len(data) if tail is None else tail)
        assert hostile.ended()
        assert "protocol violation" in reason(host, hostile)
        ring.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_client_that_scribbles_over_everything_it_has(host, seed):
    """Random bytes in the whole range, mostly in rings' headers and records, while records are served."""
    rng = random.Random(seed)
    with GuestSession(host) as session:
        begin, nbytes = session.range
        session.sock.settimeout(PATIENCE_S)
        rings = [session.open_ring(number * (NBYTES + PAGE), number) for number in range(2)]
        try:
            for sequence in range(1, 300):
                rings[sequence % 2].push(record("vgpuTakeOutput", struct.pack("<Q", 8), flags=1, sequence=sequence), 2)
                at = rng.choice([rng.randrange(128), rng.randrange(4096, 8192), rng.randrange(nbytes)])
                session.memory[begin + at] = rng.randrange(256)
        except (ConnectionError, TimeoutError):
            pass
        for ring in rings:
            ring.close()
    found = host.running.wait_log(rf"worker ended session={session.number} worker=\d+ how=\"?([^\"\n]+?)\"? reason")
    assert re.fullmatch("exit [01]", found[1]), found[0]
