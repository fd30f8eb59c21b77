"""Which CTAs a thread claims at once (vgx_sim_schedule.c)."""

import ctypes
import struct

import numpy as np
import pytest

from tests.vgpusim.codegen import harness

CHUNK, COUNT = 64, 65536
ROWS = 6  # enum vgx_sim_turns


def claims(regions: list[tuple[int, int]], own: int = 0, begun: bool = False) -> list[tuple[int, int]]:
    """The first CTA and the number of CTAs of each claim of one thread, which has the launch for itself and begins with
    region `own`; no regions: as in a launch whose CTAs may wait. `begun`: the other regions' first halves have been
    claimed."""
    found = []

    @ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.POINTER(harness.Thread), ctypes.c_uint32)
    def run(_launch: int, thread: "ctypes._Pointer[harness.Thread]", ctas: int) -> int:
        found.append((thread.contents.cta[0], ctas))
        return 0

    warp = ctypes.cast(run, ctypes.c_void_p).value or 0
    code = ctypes.create_string_buffer(struct.pack("<4Q6IQ", warp, 0, 0, 0, 1, ROWS, 1, 1, 1, 0, 0))
    next_cta, stop, services = ctypes.c_uint64(0), ctypes.c_uint32(0), harness.Services()
    memory = np.zeros(8 * (len(regions) + 1), np.uint64)
    aligned = -memory.ctypes.data // 8 % 8
    lines = memory[aligned : aligned + 8 * len(regions)].reshape(-1, 8)  # struct vgx_sim_region
    for i, (begin, end) in enumerate(regions):
        lines[i, :3] = (begin + end) // 2 if begun and i != own else begin, begin, end
    launch = harness.Launch(
        next_cta=ctypes.addressof(next_cta), cta_count=COUNT, cta_chunk=CHUNK, grid=(COUNT, 1, 1),
        stop=ctypes.addressof(stop), services=ctypes.addressof(services), region=own, region_count=len(regions),
        regions=lines.ctypes.data if regions else None,
    )  # fmt: skip
    harness._schedule_library().vgx_sim_schedule(code, ctypes.byref(launch), ctypes.byref(harness.Thread()))
    return found


def halves(count: int) -> list[tuple[int, int]]:
    return [(0, count // 2), (count // 2, count)]


@pytest.mark.parametrize("regions", [halves(2), halves(CHUNK + 1), halves(COUNT), [(0, 1), (1, 1), (1, COUNT)]])
@pytest.mark.parametrize("own", [0, 1])
def test_a_thread_claims_its_own_region_then_the_others(regions: list[tuple[int, int]], own: int) -> None:
    found = claims(regions, own)
    order = [cta for first, ctas in found for cta in range(first, first + ctas)]
    assert order == [cta for begin, end in (*regions[own:], *regions[:own]) for cta in range(begin, end)]


def test_most_claims_are_large_and_the_first_and_last_are_not() -> None:
    """Neighbouring CTAs touch neighbouring memory; all work may lie in the first ones; threads should end together."""
    found = claims([(0, COUNT)])
    for first, ctas in found:
        assert ctas <= max(CHUNK, min(first // 4, (COUNT - first) // 4))
    assert found[0][1] == CHUNK
    assert found[-1][1] <= CHUNK
    assert max(ctas for _, ctas in found) > 64 * CHUNK
    assert len(found) < 100


def test_what_another_thread_has_not_claimed() -> None:
    found = claims(halves(COUNT), own=1, begun=True)
    others = [(first, ctas) for first, ctas in found if first < COUNT // 2]
    assert others[0] == (COUNT // 4, COUNT // 16)
    assert sum(ctas for _, ctas in others) == COUNT // 4


def test_without_regions_claims_are_equal() -> None:
    assert {ctas for _, ctas in claims([])} == {CHUNK}
