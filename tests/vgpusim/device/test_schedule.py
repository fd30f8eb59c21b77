"""Which CTAs a thread claims at once (vgx_sim_schedule.c)."""

import ctypes
import struct

import pytest

from tests.vgpusim.codegen import harness

CHUNK = 64
ROWS = 6  # enum vgx_sim_turns


def claims(count: int, shares: int, first: int = 0) -> list[tuple[int, int]]:
    """The first CTA and the number of CTAs of each claim of one thread that has a launch for itself."""
    found = []

    @ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.POINTER(harness.Thread), ctypes.c_uint32)
    def run(_launch: int, thread: "ctypes._Pointer[harness.Thread]", ctas: int) -> int:
        found.append((thread.contents.cta[0], ctas))
        return 0

    warp = ctypes.cast(run, ctypes.c_void_p).value or 0
    code = ctypes.create_string_buffer(struct.pack("<4Q6IQ", warp, 0, 0, 0, 1, ROWS, 1, 1, 1, 0, 0))
    next_cta, stop, services = ctypes.c_uint64(first), ctypes.c_uint32(0), harness.Services()
    launch = harness.Launch(
        next_cta=ctypes.addressof(next_cta), cta_count=count, cta_chunk=CHUNK, grid=(count, 1, 1),
        stop=ctypes.addressof(stop), services=ctypes.addressof(services), shares=shares,
    )  # fmt: skip
    harness._schedule_library().vgx_sim_schedule(code, ctypes.byref(launch), ctypes.byref(harness.Thread()))
    return found


@pytest.mark.parametrize("count", [1, CHUNK, CHUNK + 1, 16384, 65535])
def test_claims_cover_the_grid_once(count: int) -> None:
    begins = [0]
    for first, ctas in claims(count, shares=8):
        assert first == begins[-1]
        assert ctas > 0
        begins.append(first + ctas)
    assert begins[-1] == count


def test_most_claims_are_large_and_the_first_and_last_are_not() -> None:
    """Neighbouring CTAs touch neighbouring memory; all work may lie in the first ones; threads should end together."""
    count, shares = 65536, 8
    found = claims(count, shares)
    for first, ctas in found:
        assert ctas <= max(CHUNK, min(first // 4, (count - first) // shares))
    assert found[0][1] == CHUNK
    assert found[-1][1] <= CHUNK
    assert max(ctas for _, ctas in found) > 64 * CHUNK
    assert len(found) < 100


def test_without_shares_claims_are_equal() -> None:
    assert {ctas for _, ctas in claims(16384, shares=0)} == {CHUNK}


def test_a_launch_that_begins_in_the_middle() -> None:
    assert claims(16384, shares=8, first=8192)[0] == (8192, 1024)
