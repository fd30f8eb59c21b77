"""The costs of sessions' calls: workers count them, vgpud reads them, and they are bounded whatever a worker writes."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from vgpud._gen.api import RECORDS
from vgpud.tenancy import meter as module
from vgpud.tenancy.meter import Meters

from tests.daemon.running import Running, vgpud_with_real_workers, wait_until
from tests.shim.client import run

OPCODE = {record.name: record.opcode for record in RECORDS}
HEAD_NBYTES, OP_NBYTES = 192, 128


def write(fd: int, opcode: int, *words: int) -> None:
    with mmap.mmap(fd, 0) as memory:
        struct.pack_into(f"<{len(words)}Q", memory, HEAD_NBYTES + opcode * OP_NBYTES, *words)


def test_sums_outlive_their_sessions() -> None:
    meters = Meters()
    for session, calls in ((1, 3), (2, 4)):
        write(meters.begin(session, "uid:1").fileno(), OPCODE["cuMemAlloc_v2"], calls, 100 * calls, calls, 5000)
    assert meters.functions()["cuMemAlloc_v2"].calls == 7
    meters.end(1)
    meters.begin(3, "uid:2")
    assert meters.functions()["cuMemAlloc_v2"].calls == 7
    assert {name: usage.nbytes for name, usage in meters.tenants().items()} == {"uid:1": 700, "uid:2": 0}
    after = Meters()
    after.restore(meters.dump())
    after.begin(2, "uid:1", os.dup(meters.fileno(2)))
    assert after.functions() == meters.functions()
    for each in (2, 3):
        meters.end(each)
    after.end(2)


def test_what_a_worker_writes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    meters = Meters()
    write(meters.begin(1, "uid:1").fileno(), OPCODE["cuMemAlloc_v2"], 2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1)
    write(meters.begin(2, "uid:1").fileno(), 1023, 5)  # an opcode that does not exist
    assert meters.functions()["cuMemAlloc_v2"].calls == 2**53
    assert len(meters.functions()) == 1
    with pytest.raises(OSError, match="Operation not permitted"):
        os.ftruncate(meters.fileno(1), 0)
    monkeypatch.setattr(module, "_TENANTS_CAP", 1)
    meters.end(1)
    meters.begin(3, "uid:3")
    meters.end(3)
    assert set(meters.tenants()) == {"uid:1", "others"}
    meters.end(2)


POKE = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 a) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [a]; st.global.u32 [%rd1], 1; ret; }
\0"""
PROGRAM = f"""
context()
p = alloc(1 << 16)
for _ in range(40):
    ok(cuda.cuMemsetD32Async(p, 1, c_size_t(64), None))
for _ in range(5):
    ok(cuda.cuMemcpyDtoH_v2(create_string_buffer(4096), p, c_size_t(4096)))
kernel = new(cuda.cuModuleGetFunction, new(cuda.cuModuleLoadData, {POKE!r}), b"k")
nowhere = c_uint64(8)
parameters = (c_void_p * 1)(ctypes.cast(ctypes.pointer(nowhere), c_void_p))
ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None))
assert cuda.cuCtxSynchronize() == 700
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path, "shared_memory = false\n")


def test_calls_times_and_faults_are_on_the_page(running: Running) -> None:
    run(str(running.endpoint), PROGRAM)
    wait_until(lambda: running.admin.get("sessions")["sessions"] == [])
    page = running.admin.metrics()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    calls = {sample.labels["function"]: sample.value for sample in families["vgpu_calls"].samples}
    assert calls["cuMemsetD32Async"] == 40
    times = [
        sample for sample in families["vgpu_call_seconds"].samples if sample.labels["function"] == "cuMemsetD32Async"
    ]
    by_name = {sample.name.rpartition("_")[2]: sample.value for sample in times}
    assert by_name["count"] == 48  # three of the 40 are timed, and each stands for sixteen
    assert by_name["sum"] > 0
    counts = [sample.value for sample in times if sample.name.endswith("_bucket")]
    assert counts == sorted(counts)
    tenant = {"tenant": f"uid:{os.getuid()}"}
    values = {name: family.samples for name, family in families.items() if name.startswith("vgpu_tenant_")}
    assert [sample.labels for sample in values["vgpu_tenant_faults"]] == [tenant]
    assert values["vgpu_tenant_faults"][0].value == 1
    assert values["vgpu_tenant_bytes"][0].value > 5 * 4096
    assert values["vgpu_tenant_cpu_seconds"][0].value > 0
    assert values["vgpu_tenant_calls"][0].value >= sum(calls.values())
