"""Clusters: distributed shared memory and the cluster barrier. The kernels are kernels/cluster.cu, compiled by nvcc."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vgpusim.codegen.compile import PtxError

from tests.vgpusim.codegen.harness import HEADER, run

TEXT = (Path(__file__).parent / "kernels" / "cluster_sm90.ptx").read_text()
Dimensions = tuple[int, int, int]


def ranks(grid: Dimensions, cluster: Dimensions) -> tuple[np.ndarray, np.ndarray]:
    """For each CTA, in the order of CTA numbers: the number of its cluster and its rank in the cluster."""
    z, y, x = np.unravel_index(np.arange(np.prod(grid)), grid[::-1])
    places = np.array([x, y, z])
    size = np.array(cluster)[:, None]
    index, within = places // size, places % size
    number = (index[2] * (grid[1] // cluster[1]) + index[1]) * (grid[0] // cluster[0]) + index[0]
    return number, within[0] + cluster[0] * (within[1] + cluster[1] * within[2])


CASES = [((4, 1, 1), (2, 1, 1), 64), ((8, 4, 2), (2, 2, 2), 40), ((16, 1, 1), (16, 1, 1), 32),
         ((6, 3, 1), (3, 1, 1), 96),
         ((5, 2, 1), (1, 2, 1), 33)]  # fmt: skip


@pytest.mark.parametrize(("grid", "cluster", "block"), CASES, ids=str)
def test_remote_reads(grid: Dimensions, cluster: Dimensions, block: int) -> None:
    rounds, ctas = 3, int(np.prod(grid))
    a = np.random.default_rng(2).integers(0, 2**32, (ctas, block), dtype=np.uint32)
    out = np.zeros_like(a)
    events = run(TEXT, "exchange", grid, block, [a, out, rounds], shared=4 * block, cluster=cluster, chunk=5)
    assert not events.failed
    number, rank = ranks(grid, cluster)
    at = {(int(n), int(r)): i for i, (n, r) in enumerate(zip(number, rank, strict=True))}
    size = int(np.prod(cluster))
    following = [at[int(n), (int(r) + 1) % size] for n, r in zip(number, rank, strict=True)]
    expected = a
    for turn in range(rounds):
        seen = expected[following]
        expected = seen + seen[:, ::-1] * np.uint32(3) + np.uint32(turn)
    assert np.array_equal(out, expected)


@pytest.mark.parametrize(("grid", "cluster"), [((8, 2, 1), (4, 2, 1)), ((6, 6, 1), (2, 3, 1))], ids=str)
def test_remote_atomics_and_places(grid: Dimensions, cluster: Dimensions) -> None:
    ctas, block = int(np.prod(grid)), 64
    a = np.random.default_rng(3).integers(0, 2**32, (ctas, block), dtype=np.uint32)
    bins, who = np.zeros(16, np.uint32), np.zeros((ctas, 8), np.uint32)
    run(TEXT, "count", grid, block, [a, bins, who], cluster=cluster)
    assert np.array_equal(bins, np.bincount((a % 16).ravel(), minlength=16))
    _, rank = ranks(grid, cluster)
    size = int(np.prod(cluster))
    for cta, row in enumerate(who.tolist()):
        x, y = cta % grid[0] % cluster[0], cta // grid[0] % cluster[1]
        assert row == [int(rank[cta]), size, x, y, cluster[0], cluster[1], size - 1, 1]


def test_an_arrival_is_not_a_wait() -> None:
    out = np.zeros(6, np.uint32)
    events = run(TEXT, "early", 6, 96, [out], cluster=(3, 1, 1))
    assert not events.failed
    assert out.tolist() == [7] * 6


def test_dimensions_that_the_kernel_requires() -> None:
    out = np.zeros(8, np.uint32)
    run(TEXT, "required", 8, 32, [out])
    assert out.tolist() == [100 * (i ^ 1) for i in range(8)]


def test_a_warp_that_has_ended_is_not_waited_for() -> None:
    text = f"""{HEADER}.visible .entry k(.param .u64 out) {{ .reg .b32 %r<4>; .reg .b64 %x<3>; .reg .pred %p<3>;
mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r0, 1; setp.lt.u32 %p1, %r1, 32;
and.pred %p2, %p0, %p1; @%p2 exit;
barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
ld.param.u64 %x0, [out]; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r2, %r2, 64, %r1; mad.wide.u32 %x0, %r2, 4, %x0;
st.global.u32 [%x0], %r2; ret; }}"""
    out = np.full(128, 99999, np.uint32)
    assert not run(text, "k", 2, 64, [out], cluster=(2, 1, 1)).failed
    expected = np.arange(128, dtype=np.uint32)
    expected[64:96] = 99999
    assert np.array_equal(out, expected)


def test_whose_shared_memory_an_address_is_of() -> None:
    text = f"""{HEADER}.visible .entry k(.param .u64 out) {{ .reg .b32 %r<8>; .reg .b64 %x<4>; .reg .pred %p<4>;
.shared .b32 own; ld.param.u64 %x0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
cvta.shared.u64 %x1, own; mapa.u64 %x2, %x1, %r0;
isspacep.shared %p0, %x2; isspacep.shared::cta %p1, %x2; isspacep.shared::cluster %p2, %x2;
selp.u32 %r2, 1, 0, %p0; selp.u32 %r3, 2, 0, %p1; selp.u32 %r4, 4, 0, %p2; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;
mad.lo.u32 %r5, %r1, 2, %r0; mad.wide.u32 %x3, %r5, 4, %x0; st.global.u32 [%x3], %r2; ret; }}"""
    out = np.zeros(4, np.uint32)
    run(text, "k", 2, 2, [out], cluster=(2, 1, 1))
    assert out.tolist() == [7, 4, 4, 7]


def test_a_barrier_that_cannot_open_ends_the_launch() -> None:
    text = f"""{HEADER}.visible .entry k() {{ .reg .b32 %r<2>; .reg .pred %p;
mov.u32 %r0, %cluster_ctarank; setp.eq.u32 %p, %r0, 0; @%p bra L;
bar.sync 1, 64;
L: barrier.cluster.arrive; barrier.cluster.wait; ret; }}"""
    events = run(text, "k", 2, 32, [], cluster=(2, 1, 1))
    assert events.failed == [(719, b"all warps wait at barriers that cannot complete")]


def test_refused_by_name() -> None:
    text = f"{HEADER}.visible .entry k() .reqntid 32 .blocksareclusters .reqnctapercluster 2 {{ ret; }}"
    with pytest.raises(PtxError, match="blocksareclusters") as caught:
        run(text, "k", 2, 32, [])
    assert caught.value.result == 801
