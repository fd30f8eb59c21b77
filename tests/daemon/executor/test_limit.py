"""The bound of a card's memory, over a driver that keeps memory in pools, fails, and is asked by others meanwhile."""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from vgpud.devices.ledger import Ledger

from tests.daemon.executor.limited import Limited, build
from tests.daemon.running import wait_until

MIB = 1 << 20
BLOCK = 32 * MIB  # a pool reserves as many bytes at once
OUT_OF_MEMORY = 2
HALF, FLOAT, LAYERED, SPARSE = 0x10, 0x20, 1, 0x40
Begin = Callable[..., Limited]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("limit"))


@pytest.fixture
def begin(library: Path, tmp_path: Path) -> Begin:
    return lambda mib, has_pools=True: Limited(library, tmp_path, mib * MIB, has_pools)


def test_what_a_pool_keeps_counts_until_it_is_wanted(begin: Begin) -> None:
    limited = begin(128)
    first = limited.ok("pool_alloc", 0, MIB)
    assert limited.used == BLOCK, "as the driver says"
    limited.ok("free_async", first)
    assert limited.used == BLOCK
    limited.ok("pool_alloc", 0, 20 * MIB)
    assert limited.used == BLOCK
    assert limited("pool_alloc", 0, 120 * MIB) == OUT_OF_MEMORY
    linear = limited.ok("alloc", 96 * MIB)
    assert limited.room == 0
    limited.ok("pool_alloc", 0, 12 * MIB)  # the pool has it
    assert limited("pool_alloc", 0, MIB) == OUT_OF_MEMORY
    limited.ok("free", linear)
    mine = limited.ok("pool")
    kept = limited.ok("pool_alloc", mine, 60 * MIB)
    limited.ok("free_async", kept)
    assert limited.used == 3 * BLOCK
    limited.ok("alloc", 96 * MIB)
    assert limited.used == 128 * MIB == 96 * MIB + limited.reserved


def test_what_is_freed_in_a_stream_counts_until_the_stream_comes_to_it(begin: Begin) -> None:
    """A driver sees that only when it is waited for, which the client's waits do not do."""
    limited = begin(128)
    key = limited.ok("pool_alloc", 0, 100 * MIB)
    limited.set("busy", 1)
    limited.ok("free_async", key)
    assert limited("alloc", 100 * MIB) == OUT_OF_MEMORY
    assert limited.used == 4 * BLOCK
    limited.set("busy", 0)
    limited.ok("pool_trim", 0)
    assert limited.used == limited.reserved == 0
    limited.ok("alloc", 128 * MIB)


def test_a_wait_for_a_stream_stops_no_other_thread(begin: Begin) -> None:
    """The stream was idle when it was asked about; then another thread has submitted work to it."""
    limited = begin(128)
    limited.ok("free_async", limited.ok("pool_alloc", 0, MIB))
    limited.set("holds", 1)
    waits = ctypes.c_int.in_dll(limited.library, "vgt_waits")
    with ThreadPoolExecutor() as pool:
        trimming = pool.submit(limited, "pool_trim", 0)
        try:
            wait_until(lambda: waits.value == 1)
            assert pool.submit(limited, "pool_alloc", 0, MIB).result(60) == 0
            assert pool.submit(limited, "free_async", 2).result(60) == 0
            destroying = pool.submit(limited, "stream_destroy")
            assert not trimming.done()
            assert not destroying.done(), "a stream that is waited for does not end"
        finally:
            limited.set("holds", 0)
        assert trimming.result(60) == destroying.result(60) == 0


def test_a_pool_that_takes_more_than_it_was_asked_for(begin: Begin) -> None:
    limited = begin(64)
    limited.ok("alloc", 40 * MIB)
    assert limited("pool_alloc", 0, 20 * MIB) == OUT_OF_MEMORY
    assert limited.used == 40 * MIB
    assert limited.reserved == 0, "it is freed again"


def test_a_pool_is_asked_until_what_it_has_given_out_is_freed(begin: Begin) -> None:
    limited = begin(128)
    mine = limited.ok("pool")
    key = limited.ok("pool_alloc", mine, 40 * MIB)
    limited.ok("pool_destroy", mine)
    assert limited.used == limited.reserved == 2 * BLOCK
    limited.ok("free_async", key)
    limited.ok("alloc", 128 * MIB)
    assert limited.reserved == 0
    assert limited("pool_destroy", 0) == 1, "the device's own"


def test_another_session_of_the_tenant_is_first(begin: Begin) -> None:
    limited = begin(128)
    other, stranger = limited.ledger.take("uid:1"), limited.ledger.take("uid:2")
    assert (other, stranger) == (1, 2)
    limited.write(stranger, 1000 * MIB)
    limited.write(other, 100 * MIB)
    assert limited("alloc", 32 * MIB) == OUT_OF_MEMORY
    assert limited.used == 0
    limited.ok("alloc", 28 * MIB)
    limited.write(other, 64 * MIB)
    limited.set("taken", 32 * MIB)  # while the driver allocates
    assert limited("pool_alloc", 0, MIB) == OUT_OF_MEMORY
    assert limited.used == 28 * MIB


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("alloc", (MIB,)),
        ("pitch", (1000, 16)),
        ("create", (2 * MIB,)),
        ("pool_alloc", (0, MIB)),
        ("array", (64, 64, 0, FLOAT, 4, 0)),
        ("graph", (MIB,)),
    ],
)
def test_what_the_driver_refuses_does_not_count(begin: Begin, name: str, arguments: tuple[int, ...]) -> None:
    limited = begin(128)
    limited.set("fails", 1)
    assert limited(name, *arguments) == OUT_OF_MEMORY
    assert limited.used == 0
    limited.set("fails", 0)
    limited.ok(name, *arguments)
    assert limited.used > 0


def test_an_address_that_another_thread_gets_at_once(begin: Begin) -> None:
    limited = begin(128)
    key = limited.ok("alloc", 64 * MIB)
    limited.set("reuses", 1)
    limited.ok("free", key)
    limited.set("reuses", 0)
    assert limited.used == MIB
    limited.ok("free", key)
    assert limited.used == 0


def test_rows_that_the_driver_pads_more(begin: Begin) -> None:
    limited = begin(1)
    limited.ok("pitch", 1500, 256)
    assert limited.used == 2048 * 256
    assert limited("pitch", 1500, 300) == OUT_OF_MEMORY, "300 rows of 1536 bytes would fit"
    assert limited.used == 2048 * 256


@pytest.mark.parametrize(
    ("shape", "nbytes"),
    [
        ((1000, 0, 0, FLOAT, 1, 0), 4096),
        ((100, 100, 0, FLOAT, 1, 0), 448 * 104),
        ((64, 64, 8, HALF, 4, 0), 512 * 64 * 8),
        ((64, 64, 6, HALF, 4, LAYERED), 512 * 64 * 6),
        ((1 << 40, 1 << 40, 0, FLOAT, 1, 0), None),
        ((4096, 4096, 0, FLOAT, 4, SPARSE), 0),
    ],
)
def test_bytes_of_an_array(begin: Begin, shape: tuple[int, ...], nbytes: int | None) -> None:
    limited = begin(128)
    if nbytes is None:
        assert limited("array", *shape) == OUT_OF_MEMORY
        return
    key = limited.ok("array", *shape)
    assert limited.used == nbytes
    limited.ok("array_destroy", key)
    assert limited.used == 0


def test_physical_memory_and_its_mappings(begin: Begin) -> None:
    limited = begin(128)
    key = limited.ok("create", 64 * MIB)
    for place in range(4):
        limited.ok("map", (1 << 40) + place * 64 * MIB, 64 * MIB, key)
    limited.ok("map", 1 << 50, 64 * MIB, 4000)  # imported: another session's
    limited.ok("release", key)
    limited.ok("unmap", 1 << 40, 64 * MIB)
    assert limited.used == 64 * MIB
    limited.ok("unmap", (1 << 40) + 64 * MIB, 3 * 64 * MIB)
    assert limited.used == 0
    limited.ok("unmap", 1 << 50, 64 * MIB)


def test_memory_of_graphs(begin: Begin) -> None:
    limited = begin(128)
    one = limited.ok("graph", 100 * MIB)
    assert limited.used == 100 * MIB
    assert limited("graph", 50 * MIB) == OUT_OF_MEMORY
    limited.set("graph_kept", 64 * MIB)  # a launch
    limited.ok("graph_destroy", one)
    assert limited.used == 64 * MIB, "the driver keeps it for other graphs"
    two = limited.ok("graph", 50 * MIB)
    assert limited.used == 114 * MIB
    limited.ok("alloc", 60 * MIB)  # what is kept is freed for it
    assert limited.used == 110 * MIB
    limited.ok("graph_destroy", two)
    limited.ok("graph_trim")
    assert limited.used == 60 * MIB


def test_contexts_and_heaps(begin: Begin) -> None:
    limited = begin(128)
    limited.ok("alloc", MIB)
    limited.ok("heap", 16 * MIB)
    limited.ok("own_context", 1)
    limited.ok("alloc", 2 * MIB)
    limited.ok("array", 1000, 0, 0, FLOAT, 1, 0)
    limited.ok("heap", 32 * MIB)
    limited.ok("heap", 40 * MIB)
    assert limited("heap", 1000 * MIB) == OUT_OF_MEMORY
    assert limited.used == (1 + 8 + 2 + 32) * MIB + 4096
    limited.ok("own_context", 0)
    assert limited.used == 9 * MIB
    limited.ok("heap", 4 * MIB)
    assert limited.used == MIB


def test_what_cannot_be_counted_is_not_offered(begin: Begin) -> None:
    limited = begin(128)
    assert limited.library.vgt_offers_pools()
    assert not limited.library.vgt_maps_arrays()


def test_a_driver_that_says_nothing_of_pools(begin: Begin) -> None:
    assert not begin(128, has_pools=False).library.vgt_offers_pools()


def test_any_order_of_calls(begin: Begin) -> None:
    """What counts is the sum of what there is, after each of 4,000 calls, and is never over the limit."""
    limited, draw = begin(256), random.Random(7)
    live: dict[int, tuple[str, int]] = {}
    linear, refused = 0, 0
    pools = [0, limited.ok("pool"), limited.ok("pool")]
    for _ in range(4000):
        if live and (draw.random() < 0.45 or len(live) > 3000):
            key = draw.choice([*live])
            kind, nbytes = live.pop(key)
            limited.ok("free" if kind == "linear" else draw.choice(["free", "free_async"]), key)
            linear -= nbytes
        elif draw.random() < 0.5:
            nbytes, found = draw.randrange(1, 8 * MIB), ctypes.c_uint64()
            if limited("alloc", nbytes, found=found) == 0:
                live[found.value] = "linear", (nbytes + 511) // 512 * 512
                linear += live[found.value][1]
            else:
                refused += 1
        elif draw.random() < 0.9:
            found = ctypes.c_uint64()
            if limited("pool_alloc", draw.choice(pools), draw.randrange(1, 16 * MIB), found=found) == 0:
                live[found.value] = "pool", 0
            else:
                refused += 1
        else:
            limited.ok("pool_trim", draw.choice(pools))
        assert limited.used == linear + limited.reserved <= 256 * MIB
    assert 100 < refused < 3000


def test_rows_of_a_tenant_are_summed() -> None:
    ledger = Ledger()
    rows = [ledger.take(tenant) for tenant in ("a", "b", "a")]
    for row, nbytes in zip(rows, (1, 2, 4), strict=True):
        assert row is not None
        place = (1 + row) * 48 * 8
        ledger._memory[place : place + 8] = nbytes.to_bytes(8, "little")
    assert (ledger.used_by_tenant(0, "a"), ledger.used_by_tenant(0, "b"), ledger.used_by_tenant(0, "c")) == (5, 2, 0)


@pytest.fixture
def told(begin: Begin) -> Limited:
    """A session whose driver tells what this process has."""
    limited = begin(1024)
    limited.set("silent", 0)
    return limited


def test_a_context_counts_and_one_too_many_is_undone(told: Limited) -> None:
    told.ok("alloc", 100 * MIB)
    assert told("own_context", 1) == 0
    assert told.used == 400 * MIB
    assert told("own_context", 0) == 0
    assert told.used == 100 * MIB
    told.ok("alloc", 700 * MIB)
    assert told("own_context", 1) == OUT_OF_MEMORY
    assert told.used == 800 * MIB


def test_a_module_counts_and_one_too_many_is_undone(told: Limited) -> None:
    told.set("module", 700 * MIB)
    module = told.ok("module_load")
    assert told.used == 700 * MIB
    assert told("alloc", 400 * MIB) == OUT_OF_MEMORY
    assert told("module_load") == OUT_OF_MEMORY
    assert told.used == 700 * MIB
    told.ok("module_unload", module)
    assert told.used == 0


def test_stacks_count_and_too_large_ones_are_as_before(told: Limited) -> None:
    assert told("stack", 1024) == 0
    assert told.used == MIB
    assert told("stack", 800 << 10) == 0
    assert told.used == 800 * MIB
    assert told("stack", 1100 << 10) == OUT_OF_MEMORY
    assert told.used == 800 * MIB
    assert told("stack", 1024) == 0
    assert told.used == MIB


def test_what_a_graph_will_have_hides_nothing(told: Limited) -> None:
    """Its nodes count from instantiation on, and the driver has the memory from the first launch on."""
    told.set("module", 300 * MIB)
    told.ok("graph", 500 * MIB)
    told.ok("module_load")
    assert told.used == 800 * MIB
    told.set("graph_kept", 500 * MIB)
    told.set("module", MIB)
    told.ok("module_load")
    assert told.used == 801 * MIB


def test_what_a_kernel_takes_is_found_within_a_second(told: Limited) -> None:
    told.ok("module_load")
    told.set("own", 600 * MIB)
    wait_until(lambda: told.used == 600 * MIB)
    assert told("alloc", 500 * MIB) == OUT_OF_MEMORY
    told.set("own", 0)
    wait_until(lambda: told.used == 0)
    told.set("own", 64 * MIB)  # not much: blocks of which a part is unused
    time.sleep(2)  # it is asked once a second
    assert told.used == 0


def test_a_driver_that_does_not_tell_has_what_programs_allocate_counted(begin: Begin) -> None:
    limited = begin(128)
    assert limited("own_context", 1) == 0
    limited.set("module", 500 * MIB)
    limited.ok("module_load")
    assert limited.used == 0
    limited.ok("alloc", 128 * MIB)
