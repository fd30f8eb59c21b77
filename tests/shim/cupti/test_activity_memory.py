"""CUPTI's records of memory: what is allocated and freed, and by which call. The program is activity_memory.py."""

import json
import struct
import sys
from pathlib import Path

import pytest

from tests.conftest import Run

PROGRAM = Path(__file__).with_name("activity_memory.py")
MIB = 1 << 20
ALLOCATED, RELEASED = 1, 2
PINNED, DEVICE, MANAGED = 2, 3, 5
NONE = 0xFFFFFFFF
ALLOCATE_MANAGED, ALLOCATE_HOST, HOST_ALLOCATE, ALLOCATE, ALLOCATE_PITCH = 371, 294, 39, 243, 244
FREE, FREE_HOST = 245, 38


def profile(run: Run, scenario: str, major: int) -> dict[str, list[dict]]:
    """The records by their kind, and what else the program found."""
    result = run([sys.executable, PROGRAM, major, scenario])
    assert result.returncode == 0, result.stderr
    found: dict[str, list[dict]] = {"Memory": [], "MemoryOperation": [], "MemoryPool": [], "API": [], "facts": []}
    for row in json.loads(result.stdout):
        found[row["record"]].append(row)
    return found


def pool_of(row: dict) -> dict[str, int]:
    kind, address, threshold, size, used = struct.unpack("<I4x4Q", row["memoryPoolConfig"].to_bytes(40, "little"))
    return {"type": kind, "address": address, "threshold": threshold, "size": size, "used": used}


@pytest.mark.parametrize("major", [12, 13])
def test_allocations(h100_run: Run, major: int) -> None:
    found = profile(h100_run, "allocations", major)
    (facts,) = found["facts"]
    at, (no_memory, wrong, not_host) = facts["at"], facts["failed"]
    assert (no_memory, wrong, not_host) == (2, 1, 1)
    made = [row for row in found["MemoryOperation"] if row["memoryOperationType"] == ALLOCATED]
    ended = [row for row in found["MemoryOperation"] if row["memoryOperationType"] == RELEASED]
    expected = [
        (at["device"], MIB, DEVICE, ALLOCATE),
        (at["rows"], facts["pitch"] * 7, DEVICE, ALLOCATE_PITCH),
        (at["managed"], 2 * MIB, MANAGED, ALLOCATE_MANAGED),
        (at["pinned"], 4096, PINNED, ALLOCATE_HOST),
        (at["pinned too"], 8192, PINNED, HOST_ALLOCATE),
        (at["kept"], 5 * MIB, DEVICE, ALLOCATE),
    ]
    calls = {row["correlationId"]: row for row in found["API"]}

    def shown(rows: list[dict]) -> list[tuple[int, int, int, int]]:
        return [(r["address"], r["bytes"], r["memoryKind"], calls[r["correlationId"]]["cbid"]) for r in rows]

    assert shown(made) == expected
    device, rows, managed, pinned, pinned_too, kept = expected
    assert shown(ended) == [
        (at["before"], 3 * MIB, DEVICE, FREE),
        *((*each[:3], FREE) for each in (device, rows, managed)),
        *((*each[:3], FREE_HOST) for each in (pinned, pinned_too)),
        (*kept[:3], FREE),
    ]
    for row in found["MemoryOperation"]:
        assert row["timestamp"] == calls[row["correlationId"]]["start"]
        assert (row["streamId"], row["isAsync"], pool_of(row)["type"]) == (NONE, 0, 0)
        assert row["PC"]
        assert row["contextId"] == made[0]["contextId"] != 0
    # A record for both: what is freed, in that order, and what is still allocated when the kind is disabled.
    both = found["Memory"]
    assert [row["address"] for row in both] == [row["address"] for row in ended]
    assert [row["bytes"] for row in both] == [row["bytes"] for row in ended]
    starts = {row["address"]: row["timestamp"] for row in made}
    assert [row["start"] for row in both] == [starts.get(row["address"], 0) for row in both]
    assert all(row["end"] > row["start"] and row["freePC"] for row in both[:-1])
    assert (both[-1]["end"], both[-1]["freePC"]) == (0, 0)


@pytest.mark.parametrize("major", [12, 13])
def test_pools(h100_run: Run, major: int) -> None:
    found = profile(h100_run, "pools", major)
    (facts,) = found["facts"]
    rows = found["MemoryOperation"]
    assert [(r["address"], r["memoryOperationType"], r["bytes"]) for r in rows] == [
        (facts["own"], ALLOCATED, MIB),
        (facts["other"], ALLOCATED, 2 * MIB),
        (facts["own"], RELEASED, MIB),
        (facts["other"], RELEASED, 2 * MIB),
    ]  # and nothing of the captured calls
    assert all(row["isAsync"] == 1 and row["streamId"] != NONE for row in rows)
    pools = [pool_of(row) for row in rows]
    assert [pool["type"] for pool in pools] == [1] * 4  # of this process
    assert pools[1]["address"] == pools[3]["address"] == facts["pool"]
    assert pools[0]["address"] == pools[2]["address"] != facts["pool"]
    assert (pools[1]["threshold"], pools[1]["used"]) == (7 * MIB, 2 * MIB)
    changes = found["MemoryPool"]
    assert [(r["memoryPoolOperationType"], r["address"], r["memoryPoolType"]) for r in changes] == [
        (operation, facts["pool"], 1) for operation in (1, 3, 2)
    ]  # created, trimmed, destroyed
    assert [row["minBytesToKeep"] for row in changes] == [0, MIB, 0]
    assert [row["releaseThreshold"] for row in changes] == [0, 7 * MIB, 7 * MIB]


def test_each_release_is_of_its_allocation(h100_run: Run) -> None:
    rows = profile(h100_run, "many", 13)["MemoryOperation"]
    sizes = {row["address"]: row["bytes"] for row in rows[:1000]}
    assert sorted(sizes.values()) == list(range(1, 1001))
    assert {row["address"]: row["bytes"] for row in rows[1000:]} == sizes
    assert len(rows) == 2000
