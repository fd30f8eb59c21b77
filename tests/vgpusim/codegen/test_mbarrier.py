"""Barrier objects: the kernels of kernels/barriers.cu, and an object's phases, instruction by instruction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import HEADER, run

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(params=["sm80", "sm90"])
def text(request: pytest.FixtureRequest) -> str:
    return (KERNELS / f"barriers_{request.param}.ptx").read_text()


def test_arrive_and_wait(text: str) -> None:
    x, out = np.random.default_rng(2).integers(-100, 100, 256, dtype=np.int32), np.zeros(256, np.int32)
    assert not run(text, "exchange", 2, 128, [x, out]).failed
    value = x.reshape(2, 128).copy()
    for number in range(3):
        value = (value[:, ::-1] + number) * 2 - number
    assert np.array_equal(out, value.ravel())


def test_copies_that_arrive(text: str) -> None:
    x, out = np.arange(1024, dtype=np.int32) * 3, np.zeros(1024, np.int32)
    assert not run(text, "copied", 2, 96, [x, out]).failed
    assert np.array_equal(out, x.reshape(2, 512)[:, ::-1].ravel())


def test_producers_and_consumers(text: str) -> None:
    x, out = np.random.default_rng(3).integers(0, 50, (9, 64), dtype=np.int32), np.zeros(64, np.int32)
    assert not run(text, "pipelined", 1, 128, [x, out, 9]).failed
    assert np.array_equal(out, np.roll((x * np.arange(1, 10)[:, None]).sum(0), -7))


def phases(body: str) -> list[int]:
    """Run on one lane; `note` appends %r to the returned values."""
    out = np.full(32, -1, np.int64)
    for _ in range(body.count("note")):
        body = body.replace("note;", "st.global.u64 [%o], %r; add.u64 %o, %o, 8;", 1)
    source = f"""{HEADER}.shared .align 8 .b64 b; .shared .align 16 .b8 tile[64];
    .visible .entry k(.param .u64 out, .param .u64 given) {{ .reg .b64 %o, %r, %s, %s2, %g; .reg .pred %p; .reg .b32 %n;
    ld.param.u64 %o, [out]; ld.param.u64 %g, [given];\n{body}\nret; }}"""
    assert not run(source, "k", 1, 1, [out, np.arange(16, dtype=np.int32)]).failed
    return [int(value) for value in out if value != -1]


TEST = "selp.u64 %r, 1, 0, %p; note;"


def test_phases_and_counts() -> None:
    body = f"""mbarrier.init.shared.b64 [b], 3; mbarrier.arrive.shared.b64 %s, [b];
    mbarrier.test_wait.shared.b64 %p, [b], %s; {TEST}
    mbarrier.pending_count.b64 %n, %s; cvt.u64.u32 %r, %n; note;
    mbarrier.arrive.noComplete.shared.b64 %s2, [b], 1; mbarrier.pending_count.b64 %n, %s2; cvt.u64.u32 %r, %n; note;
    mbarrier.try_wait.parity.shared::cta.b64 %p, [b], 0; {TEST}
    mbarrier.arrive.release.cta.shared::cta.b64 _, [b];
    mbarrier.test_wait.shared.b64 %p, [b], %s; {TEST}
    mbarrier.try_wait.parity.shared::cta.b64 %p, [b], 0; {TEST}
    mbarrier.try_wait.parity.shared::cta.b64 %p, [b], 1; {TEST}
    mbarrier.arrive_drop.shared.b64 %s, [b], 1; mbarrier.arrive.shared.b64 %s2, [b], 2;
    mbarrier.test_wait.shared.b64 %p, [b], %s2; {TEST}
    mbarrier.arrive.shared.b64 %s, [b], 2; mbarrier.test_wait.shared.b64 %p, [b], %s; {TEST}"""
    assert phases(body) == [0, 3, 2, 0, 1, 1, 0, 1, 1]


def test_bytes_of_bulk_copies() -> None:
    body = f"""mbarrier.init.shared.b64 [b], 1; mbarrier.arrive.expect_tx.shared.b64 %s, [b], 48;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%g], 32, [b];
    mbarrier.test_wait.shared.b64 %p, [b], %s; {TEST}
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile+32], [%g], 16, [b];
    mbarrier.test_wait.shared.b64 %p, [b], %s; {TEST}
    ld.shared.u32 %n, [tile+20]; cvt.u64.u32 %r, %n; note; ld.shared.u32 %n, [tile+36]; cvt.u64.u32 %r, %n; note;
    cp.async.bulk.global.shared::cta.bulk_group [%g+16], [tile], 16; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0; ld.global.u32 %n, [%g+24]; cvt.u64.u32 %r, %n; note;"""
    assert phases(body) == [0, 1, 5, 1, 2]


def test_copies_counted_by_the_object() -> None:
    body = f"""mbarrier.init.shared.b64 [b], 1; cp.async.ca.shared.global [tile], [%g], 4;
    cp.async.mbarrier.arrive.shared.b64 [b]; mbarrier.test_wait.parity.shared.b64 %p, [b], 0; {TEST}
    cp.async.mbarrier.arrive.noinc.shared.b64 [b]; mbarrier.test_wait.parity.shared.b64 %p, [b], 0; {TEST}"""
    assert phases(body) == [0, 1]


def test_a_cluster_of_one_cta() -> None:
    """The cluster's barrier is the CTA's barrier; cluster addresses are those of the CTA's own shared memory."""
    source = f"""{HEADER}.shared .align 4 .b8 tile[512];
    .visible .entry k(.param .u64 out) .explicitcluster .reqnctapercluster 1, 1, 1 {{ .reg .b32 %t, %a, %v, %c;
    .reg .b64 %o, %g; .reg .pred %p; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %o, %t, 4, %o;
    mov.u32 %a, tile; mad.lo.u32 %a, %t, 4, %a; mov.u32 %c, %cluster_ctarank; mapa.shared::cluster.u32 %a, %a, %c;
    st.shared::cluster.u32 [%a], %t;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    xor.b32 %a, %a, 508; ld.shared::cluster.u32 %v, [%a]; barrier.cluster.arrive; bar.sync 0; barrier.cluster.wait;
    cvt.u64.u32 %g, %a; cvta.shared::cluster.u64 %g, %g; mapa.u64 %g, %g, 0; isspacep.shared::cluster %p, %g;
    @%p atom.shared::cluster.add.u32 %c, [%a], 1; ld.u32 %c, [%g]; mad.lo.u32 %v, %c, 1000, %v;
    getctarank.u64 %c, %g; add.u32 %v, %v, %c; st.global.u32 [%o], %v; ret; }}"""
    out = np.zeros(128, np.uint32)
    assert not run(source, "k", 2, 128, [out]).failed
    assert np.array_equal(out, (127 - np.arange(128)) * 1001 + 1000)
