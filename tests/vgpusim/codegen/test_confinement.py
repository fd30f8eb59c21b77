"""AT1: a kernel can access no memory of the process that runs it, except what its context provides.

The control: the same kernels, compiled without the check, read and write that memory unnoticed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import HEADER, Events, run

BLOCK = 64
_KERNEL = """.visible .entry k(.param .u64 p, .param .u64 q)
{{ .reg .b64 %x<9>; .reg .b32 %r<40>; .reg .b16 %h; .reg .f32 %f<9>; .reg .f64 %d<3>; .reg .pred %g<3>;
.shared .align 16 .b8 s[4096]; .local .align 8 .b8 own[64]; .shared .align 8 .b64 bar;
ld.param.u64 %x0, [p]; mov.u32 %r1, %tid.x; mov.u32 %r0, 1; mov.u16 %h, 1; mov.u32 %r2, s; mov.u64 %x6, 1;
mul.wide.u32 %x1, %r1, 16; {shape}
{body}
ret; }}
"""
_SHAPES = {
    "one address": "mov.u64 %x2, %x0;",
    "a row": "add.u64 %x2, %x0, %x1;",
    "scattered": "mul.lo.u32 %r3, %r1, %r1; and.b32 %r3, %r3, 63; mul.wide.u32 %x3, %r3, 16; add.u64 %x2, %x0, %x3;",
}
_ACCESSES = {
    "ld.global": "ld.global.u32 %r4, [%x2];",
    "ld": "ld.u64 %x4, [%x2];",
    "ld.v4": "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%x2];",
    "ld.u8": "ld.global.u8 %r4, [%x2];",
    "ld.volatile": "ld.volatile.global.u32 %r4, [%x2];",
    "ld.acquire": "ld.acquire.gpu.global.u32 %r4, [%x2];",
    "ld.const": "ld.const.u32 %r4, [%x2];",
    "ld.local": "ld.local.u32 %r4, [%x2];",
    "ld.param": "ld.param.u32 %r4, [%x2];",
    "ldu": "ldu.global.u32 %r4, [%x2];",
    "st": "st.u32 [%x2], %r0;",
    "st.v2": "st.global.v2.u64 [%x2], {%x6, %x6};",
    "st.u8": "st.global.u8 [%x2+3], %r0;",
    "st.u16": "st.global.u16 [%x2+2], %h;",
    "st.local": "st.local.u32 [%x2], %r0;",
    "st.release": "st.release.gpu.global.u32 [%x2], %r0;",
    "atom.add": "atom.global.add.u32 %r4, [%x2], 1;",
    "atom.cas": "atom.cas.b64 %x4, [%x2], 30064771079, 1;",
    "atom.shared": "atom.add.u32 %r4, [%x2], 1;",
    "red": "red.global.add.f32 [%x2], 0f3F800000;",
    "cp.async": "add.u32 %r5, %r2, 16; cp.async.ca.shared.global [%r5], [%x2], 16;",
    "cp.async, part": "cp.async.ca.shared.global [%r2], [%x2], 16, %r0;",
    "cp.async.bulk to shared": "mov.u32 %r6, bar; mbarrier.init.shared.b64 [%r6], 1; cp.async.bulk.shared::cluster."
    "global.mbarrier::complete_tx::bytes [%r2], [%x2], 16, [%r6];",
    "cp.async.bulk to global": "cp.async.bulk.global.shared::cta.bulk_group [%x2], [%r2], 16;",
    "mbarrier": "mbarrier.init.b64 [%x2], 1;",
    "mbarrier.arrive": "mbarrier.arrive.b64 %x4, [%x2];",
    "guarded": "setp.lt.u32 %g0, %r1, 64; @%g0 ld.global.u32 %r4, [%x2];",
}
_MATRICES = {  # these take one address for the warp, or those of its first lanes
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x2.b16 {%r4, %r5}, [%x2];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.b16 [%x2], {%r0};",
    "wmma.load": "wmma.load.c.sync.aligned.row.m16n16k16.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%x2], 16;",
    "wmma.store": "mov.f32 %f0, 0f00000000; wmma.store.d.sync.aligned.row.m16n16k16.f32 [%x2], "
    "{%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0}, 16;",
}


def attack(body: str, shape: str = "mov.u64 %x2, %x0;", *, confined: bool = True) -> tuple[Events, np.ndarray]:
    """Run an access to memory of the process itself."""
    secret = np.full(1 << 12, 7, np.uint32)
    text = HEADER.replace("8.0", "8.3") + _KERNEL.format(body=body, shape=shape)
    return run(text, "k", 1, BLOCK, [secret, 0], confined=confined, refuse=True), secret


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("access", _ACCESSES)
def test_every_access_is_confined(access: str, shape: str) -> None:
    """AT1: each active lane is refused, with its own address, before the access is made."""
    events, secret = attack(_ACCESSES[access], _SHAPES[shape])
    index = np.arange(BLOCK)
    place = {"one address": index * 0, "a row": index, "scattered": index * index & 63}[shape] * 16
    more = 3 if "+3" in _ACCESSES[access] else 2 if "+2" in _ACCESSES[access] else 0
    start = secret.ctypes.data + more
    assert [(address - start, thread) for _, address, _, thread in events.outside] == list(
        zip(place.tolist(), range(BLOCK), strict=True)
    )


@pytest.mark.parametrize("access", _MATRICES)
def test_every_matrix_is_confined(access: str) -> None:
    events, secret = attack(_MATRICES[access])
    assert events.outside
    assert min(address for _, address, _, _ in events.outside) == secret.ctypes.data


@pytest.mark.parametrize("access", [*_ACCESSES, *_MATRICES])
def test_without_the_check_nothing_is_refused(access: str) -> None:
    """AT1, the control: without the check the attack succeeds."""
    events, secret = attack((_ACCESSES | _MATRICES)[access], confined=False)
    assert not events.outside
    if access.startswith(("st", "atom", "red", "wmma.store", "mbarrier.init")):
        assert (secret != 7).any()


def test_lanes_that_do_not_act_are_not_refused() -> None:
    events, _ = attack("setp.eq.u32 %g0, %r1, 33; @%g0 ld.global.u32 %r4, [%x2];", _SHAPES["scattered"])
    assert [thread for *_, thread in events.outside] == [33]


def test_copies_of_nothing_are_not_refused() -> None:
    """Pipelines copy 0 bytes from addresses past the end of their input."""
    half = "and.b32 %r9, %r1, 1; shl.b32 %r9, %r9, 4; cp.async.ca.shared.global [%r2], [%x2], 16, %r9;"
    events, _ = attack(half, _SHAPES["a row"])
    assert [thread for *_, thread in events.outside] == list(range(1, BLOCK, 2))


def test_a_distance_that_only_the_matrix_knows() -> None:
    """The rows of a matrix lie a run-time stride apart; the last row is checked too."""
    events, secret = attack(
        _MATRICES["wmma.load"].replace(", 16;", ", %r39;").replace("wmma", "mov.u32 %r39, 64; wmma")
    )
    assert max(address for _, address, _, _ in events.outside) == secret.ctypes.data + 64 * 16 * 4


@pytest.mark.parametrize("distance", [1 << 20, (1 << 20) + 4, -(1 << 21), 1 << 30])
def test_what_is_near_is_known(distance: int) -> None:
    """One check covers only nearby addresses; after a register has changed, its address is checked again."""
    near = "ld.global.u32 %r4, [%x2]; ld.global.u32 %r5, [%x2+4];"
    assert len(attack(near)[0].outside) == BLOCK
    assert len(attack(near.replace("; ld", "; add.u64 %x2, %x2, 8; ld"))[0].outside) == 2 * BLOCK
    far = f"@%g0 ld.global.u32 %r4, [%x2]; setp.ne.u32 %g0, %r0, 1; @%g0 st.global.u32 [%x2+{distance}], %r0;"
    assert not attack("setp.ne.u32 %g0, %r0, 1; " + far)[0].outside


def test_a_guard_proves_nothing_for_others() -> None:
    body = "setp.eq.u32 %g0, %r1, 5; @%g0 ld.global.u32 %r4, [%x2]; ld.global.u32 %r5, [%x2];"
    assert [thread for *_, thread in attack(body)[0].outside] == [5, *range(BLOCK)]


@pytest.mark.parametrize("first", ["ld.shared.u32 %r4, [%x2];", "ld.shared.v2.u64 {%x3, %x4}, [%x2+16];"])
def test_an_offset_in_shared_memory_proves_nothing_for_an_address(first: str) -> None:
    """A register names other memory as an offset in the shared window, of which only 32 bits count."""
    events, _ = attack(f"{first} st.u32 [%x2], %r0;")
    assert len(events.outside) == BLOCK


def test_local_memory_in_32_bits_proves_nothing_for_an_address() -> None:
    events, _ = attack("mov.u32 %r3, own; ld.local.u32 %r4, [%r3]; ld.u32 %r5, [%r3];")
    assert len(events.outside) == 2 * BLOCK  # tests' own local memory lies anywhere, too


def test_variables_need_no_check_and_lie_where_they_lie() -> None:
    """The compiler makes these addresses itself: those of parameters and of local and shared variables."""
    body = """st.local.u32 [own+4], %r0; ld.local.u32 %r4, [own+4]; st.shared.u32 [s+8], %r4; ld.param.u64 %x5, [q+0];
st.shared.u32 [%r2+12], %r4; ld.shared.u32 %r5, [%r2+12];"""
    assert not attack(body)[0].outside
