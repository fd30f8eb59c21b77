"""Unified addressing: device memory never overlaps memory that the program maps before or after the allocation.

With all memory of an H200 allocated, device memory overlapped the heap of one process in six: the worker's driver
chooses addresses near those at which every process loads its libraries.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.daemon.running import vgpud_with_real_workers
from tests.shim import client
from tests.shim.claim_programs import AROUND, REGION, TOOLS
from tests.shim.client import PRELUDE

Run = Callable[..., CompletedProcess[str]]
ROOT = Path(__file__).resolve().parents[2]
GIB = 1024  # MiB


@pytest.fixture
def simulate(vgpu_run: Run) -> Callable[[str], str]:
    def run(program: str) -> str:
        done = vgpu_run([sys.executable, "-c", PRELUDE + TOOLS + textwrap.dedent(program)])
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stderr

    return run


Simulate = Callable[[str], str]


@pytest.mark.parametrize("make", ["linear", "pitched", "stream_ordered"])
def test_what_lies_over_the_programs_memory_is_allocated_elsewhere(simulate: Simulate, make: str) -> None:
    simulate(
        f"""
        place = next_address() + 64 * MIB
        assert own(place)
        result, p = {make}(256 * MIB)
        assert result == 0
        assert not p <= place < p + 256 * MIB, (hex(p), hex(place))
        assert p > place - 64 * MIB  # it would have been there
        ok(cuda.cuCtxSynchronize())
        ctypes.memset(place, 7, 64)
        ok(cuda.cuMemcpyHtoD_v2(c_uint64(p), c_void_p(place), c_size_t(64)))
        ok(cuda.cuMemcpyDtoH_v2(c_void_p(place + 100), c_uint64(p), c_size_t(64)))
        assert ctypes.string_at(place + 100, 64) == bytes([7]) * 64
        """
    )


def test_no_way_to_allocate_gives_what_is_the_programs(simulate: Simulate) -> None:
    simulate("makers = [linear, pitched, stream_ordered]\n" + AROUND)


def test_what_the_program_maps_later_lies_elsewhere(simulate: Simulate) -> None:
    simulate(
        """
        result, p = linear(8 * MIB)
        assert result == 0
        assert not own(p) and not own(p + 8 * MIB - 4096) and not own(p + 4 * MIB, MIB)
        """
    )


def test_neighbours_in_one_chunk_are_claimed_page_by_page(simulate: Simulate) -> None:
    """The program can map the chunk's pages that are not device memory."""
    simulate(
        """
        first = next_address()
        assert first % (2 * MIB) == 0
        assert own(first + MIB, MIB)
        result, p = linear(64 << 10)
        assert result == 0 and p // (2 * MIB) == first // (2 * MIB), (hex(p), hex(first))
        ctypes.memset(first + MIB, 5, MIB)
        assert not own(p)
        """
    )


@pytest.mark.parametrize("make", ["linear", "pitched", "stream_ordered", "reserved"])
def test_attempts_leave_a_region_of_several_gigabytes(simulate: Simulate, make: str) -> None:
    """PyTorch's libraries are 5 to 10 GB of mappings, and a driver puts small allocations next to one another."""
    stderr = simulate(
        f"""
        place = next_address()
        occupy(place, 10 << 30)
        before = free_nbytes()
        result, p = {make}(2 * MIB)
        assert result == 0
        assert p >= place + (10 << 30) or p + 2 * MIB <= place, (hex(p), hex(place))
        ok(cuda.cuCtxSynchronize())
        used = before - free_nbytes()
        # What a pool has given there stays allocated: it would give it again.
        most = 0 if {make} == reserved else 66 * MIB if {make} == stream_ordered else 2 * MIB
        assert 0 <= used <= most, used
        result, q = {make}(2 * MIB)
        assert result == 0
        assert not own(p) and not own(q)
        """
    )
    assert "out of memory" not in stderr.lower()
    assert "OUT_OF_MEMORY" not in stderr


def test_regions_on_both_sides_of_an_allocation_are_left(vgpu_run: Run) -> None:
    """What tests/gpu/test_claim.py runs on a card."""
    done = vgpu_run(["env", "VGPU_LOG=info", sys.executable, "-c", PRELUDE + TOOLS + REGION])
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "allocated elsewhere" in done.stderr, (done.stdout, done.stderr)
    # Nobody else uses this device, so free memory says what stays.
    for what, most in (("2000 of 1 KiB", 16), ("100 allocations and frees", 4), ("at the end", 80)):
        less = re.search(rf"^{what}:(?:.*,)? ([-\d.]+) MiB less free", done.stdout, re.M)
        assert less, done.stdout
        assert float(less[1]) <= most, (what, done.stdout)


def test_a_share_without_reservations_and_with_little_memory_allocates(tmp_path: Path) -> None:
    """Memory then occupies the addresses. What the share's limit refuses is no failure while attempts remain."""
    share = "[[shares]]\nname = 's'\nmemory_mib = 4096\ndeny = ['vmm']\n"
    token = "[[tokens]]\nname = 't'\nvalue = 'claim-claim-claim-claim'\nshare = 's'\n"
    program = """
        place = next_address()
        occupy(place, 4 << 30)
        before = free_nbytes()
        for nbytes in (512 * MIB, 2 * MIB):
            result, p = linear(nbytes)
            assert result == 0 and not own(p), result
            assert before - free_nbytes() == nbytes
            ok(cuda.cuMemFree_v2(c_uint64(p)))
        """
    for host in vgpud_with_real_workers(tmp_path, share + token):
        client.run(str(host.endpoint), TOOLS + textwrap.dedent(program), VGPU_TOKEN="claim-claim-claim-claim")


def test_an_allocation_of_most_of_the_memory_is_made_elsewhere(simulate: Simulate) -> None:
    """There is no second one beside the one that is rejected, so that is freed first."""
    simulate(
        """
        place = next_address()
        assert own(place + (30 << 30))
        before = free_nbytes()
        nbytes = before // 10 * 7 // (2 * MIB) * (2 * MIB)
        result, p = linear(nbytes)
        assert result == 0
        assert not p <= place + (30 << 30) < p + nbytes
        assert before - free_nbytes() == nbytes
        assert linear(nbytes)[0] == 2
        """
    )


def test_when_nothing_is_free_the_device_is_out_of_memory(simulate: Simulate) -> None:
    """The reason is said once, and nothing stays allocated or reserved."""
    stderr = simulate(
        """
        TIB = 1 << 40
        place, before = next_address(), free_nbytes()
        begin, end = place // TIB * TIB, (place // TIB + 1) * TIB  # the device's addresses
        occupy(begin, place - 256 * MIB - begin)
        occupy(place, end - place)
        for i in range(2):
            assert linear(2 * MIB) == (2, 0xdead)
            assert reserved(2 * MIB) == (2, 0xdead)
            assert free_nbytes() == before
        libc.munmap(c_void_p(place), c_size_t(end - place))
        rest = end - place - (1 << 30)
        result, p = reserved(rest)
        assert result == 0 and place <= p < place + (1 << 30), (result, hex(p), hex(place))
        ok(cuda.cuMemAddressFree(c_uint64(p), c_size_t(rest)))
        result, p = linear(64 * MIB)
        assert result == 0
        ok(cuda.cuMemFree_v2(c_uint64(p)))
        """
    )
    assert stderr.count("addresses that this process uses itself") == 1, stderr
    assert "---p" in stderr


def test_a_program_of_limited_address_space_allocates_all_the_same(simulate: Simulate) -> None:
    simulate(
        """
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + 512 * MIB, -1))
        result, p = linear(4096 * MIB)
        assert result == 0
        ok(cuda.cuMemsetD8_v2(c_uint64(p), 3, c_size_t(100)))
        back = create_string_buffer(100)
        ok(cuda.cuMemcpyDtoH_v2(back, c_uint64(p), c_size_t(100)))
        assert back.raw == bytes([3]) * 100
        """
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("claim") / "claim"
    options = ["-std=gnu11", "-O1", "-Wall", "-Werror", "-fsanitize=undefined,address", "-fno-sanitize-recover=all"]
    rooms = ("shim/cuda", "shim/channel", "shim/connect", "shim/base", "protocol/c", "build/gen")
    folders = [f"-I{ROOT / room}" for room in rooms]
    subprocess.run(["gcc", *options, *folders, "-o", output, ROOT / "tests/shim/vgt_claim.c"], check=True)
    return output


def run_model(model: Path, *arguments: object) -> list[int]:
    """Result, MiB and reservations that stay, MiB at most, attempts of a later one, result of all that is left."""
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run([model, *map(str, arguments)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize(
    ("reservations", "memory", "wanted", "mapped", "result"),
    [
        ("there", 137 * GIB, 2, 20 * GIB, 0),
        ("away", 137 * GIB, 2, 10 * GIB, 0),
        ("refused", 137 * GIB, 2, 10 * GIB, 0),
        ("refused", 20 * GIB, 2, 4 * GIB, 0),
        ("refused", 20 * GIB, 2, 8 * GIB, 2),
        ("refused", 4 * GIB, 512, 2 * GIB, 0),  # blockers take what the program's own attempt needs
        ("there", 137 * GIB, 100 * GIB, 30 * GIB, 0),
        ("there", 137 * GIB, 2, 100 * GIB, 2),
        ("away", 137 * GIB, 2, 100 * GIB, 2),
        ("refused", 4 * GIB, 2, 100 * GIB, 2),
        ("h200", 137 * GIB, 2, 10 * GIB, 2),  # none on each side of which the driver goes on
    ],
)
def test_with_a_driver_that_reuses_addresses_at_once(
    model: Path, direction: str, reservations: str, memory: int, wanted: int, mapped: int, result: int
) -> None:
    """Where no memory is made apart. The memory that stays is the allocation's; reservations stay where they lie as
    they were asked for, so that later allocations are made at once."""
    found, mib, reserved, most, attempts, _ = run_model(
        model, direction, reservations, "beside", memory, wanted, mapped, mapped
    )
    assert (found, mib) == (result, 0 if result else wanted)
    assert most <= memory // 4 + 16 * wanted  # others may need the rest
    if reservations == "there" and not result:
        assert reserved > 0
        assert attempts == 1
    else:
        assert reserved == 0


@pytest.mark.parametrize("in_pool", [[], ["pool"]])
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("reservations", ["h200", "there", "away"])
@pytest.mark.parametrize(("wanted", "mapped"), [(2, 10 * GIB), (512, 10 * GIB), (100 * GIB, 10 * GIB), (2, 300 * GIB)])
def test_memory_is_made_apart_after_a_few_attempts(
    model: Path, reservations: str, wanted: int, mapped: int, direction: str, in_pool: list[str]
) -> None:
    """An H200's driver failed so: it put 2 MiB into holes beside reservations and other memory (2026-11-30)."""
    wanted = min(wanted, 30 * GIB) if in_pool else wanted  # a pool keeps what it was given back
    found, mib, reserved, most, _, _ = run_model(
        model, direction, reservations, "apart", 137 * GIB, wanted, mapped, mapped, *in_pool
    )
    assert (found, reserved) == (0, 0)
    assert mib <= wanted * (4 if in_pool else 1)
    assert most <= 4 * wanted


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_pool_does_not_hand_out_again_what_was_rejected(model: Path, direction: str) -> None:
    """It would at each later allocation, before it asks the driver for more."""
    found, mib, _, _, attempts, rest = run_model(
        model, direction, "there", "beside", 137 * GIB, 2, 20 * GIB, 20 * GIB, "pool"
    )
    assert found == 0
    assert mib <= 2 + 64
    assert attempts == 1
    assert rest == 0  # what is kept is given back to an allocation that lacks memory
