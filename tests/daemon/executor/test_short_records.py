"""Short records and replies, which lie on the lines of a ring's words (protocol/wire.md, "Rings")."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest

from tests.daemon.hostile_session import CONTEXT, HostileSession
from tests.daemon.ring_memory import HEADER_NBYTES, OPCODES, RECORDS_NBYTES, RingMemory
from tests.daemon.running import Running, vgpud_with_real_workers
from tests.patience import PATIENCE_S

SHORT_AT, SHORT_RECORD, REPLY, SHORT_REPLY, REPLIES = 16, 24, 80, 88, HEADER_NBYTES + RECORDS_NBYTES
HEADER = struct.Struct("<IHHIi")
WANT_REPLY, SHORT = 1, 8
CALL = OPCODES["cuMemGetInfo_v2"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("short"))


def asked(sequence: int, flags: int) -> bytes:
    return HEADER.pack(HEADER.size, CALL, WANT_REPLY | flags, sequence, CONTEXT)


def wait_reply(ring: RingMemory, sequence: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while ring.word(REPLY) & 0xFFFFFFFF != sequence:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def sequence_at(ring: RingMemory, at: int) -> int:
    return int(HEADER.unpack_from(ring.memory, at)[3])


def test_a_short_reply_lies_beside_its_word_if_the_client_says_so(running: Running) -> None:
    with HostileSession(running) as session:
        ring = RingMemory(session.sock)
        for sequence, flags in ((1, 0), (2, SHORT), (3, SHORT), (4, 0)):
            ring.push(asked(sequence, flags))
            wait_reply(ring, sequence)
            there = SHORT_REPLY if flags else REPLIES
            length, opcode, _, answered, result = HEADER.unpack_from(ring.memory, there)
            free_nbytes, total_nbytes = struct.unpack_from("<QQ", ring.memory, there + HEADER.size)
            assert (length, opcode, answered, result) == (32, CALL, sequence, 0)
            assert 0 < free_nbytes <= total_nbytes
            assert sequence_at(ring, SHORT_REPLY) == (sequence if flags else 0)
            assert sequence_at(ring, REPLIES) == (sequence if sequence in (1, 4) else 1)
        ring.close()


def test_a_short_record_is_taken_from_beside_the_tail_for_its_position_alone(running: Running) -> None:
    with HostileSession(running) as session:
        ring = RingMemory(session.sock)
        for position, answered in ((0, 12), (0, 21), (32, 32)):  # the second one's copy is of an earlier position
            at = ring.tail
            ring.memory[SHORT_RECORD : SHORT_RECORD + HEADER.size] = asked(10 * (at // 16 + 1) + 2, 0)
            struct.pack_into("<Q", ring.memory, SHORT_AT, position + 1)
            ring.push(asked(10 * (at // 16 + 1) + 1, 0))
            wait_reply(ring, answered)
        ring.close()
