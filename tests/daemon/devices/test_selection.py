"""`gpus` of a share: its tenants see those devices alone, renumbered; vgpud counts them under the host's numbers."""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vgpud.devices.inventory import Inventory, load_inventory
from vgpud.devices.selection import by_host, find, number_on_host, only

from tests.daemon.ipc_client import IpcClient
from tests.daemon.running import Running, vgpud_with_real_workers, wait_until
from tests.shim.client import ROOT

GIB = 1 << 30
NAMES = ["NVIDIA H100 PCIe", "NVIDIA A100-SXM4-40GB", "Tesla T4"]
INVALID_VALUE, INVALID_DEVICE = 1, 101
SHARES = """gpus = 'h100,a100,t4'
[[shares]]
name = 'outer'
gpus = [2, 0]
[[shares]]
name = 'inner'
gpus = ['{uuid}', 2]
[[tokens]]
name = 'outer'
value = 'outer-outer-outer'
share = 'outer'
[[tokens]]
name = 'inner'
value = 'inner-inner-inner'
share = 'inner'
"""
# Definitions for IpcClient; it has the primary context of its device 0.
MORE = f"""
nvml = ctypes.CDLL({str(ROOT / "build/guest/libnvidia-ml.so.1")!r})

def devices():
    count = c_int()
    ok(cuda.cuDeviceGetCount(byref(count)))
    found = []
    for number in range(count.value):
        name, uuid = create_string_buffer(96), create_string_buffer(16)
        ok(cuda.cuDeviceGetName(name, 96, number))
        ok(cuda.cuDeviceGetUuid_v2(uuid, number))
        found.append((name.value.decode(), uuid.raw.hex()))
    return found

def nvml_devices():
    count, found = c_uint(), []
    ok(nvml.nvmlInit_v2())
    ok(nvml.nvmlDeviceGetCount_v2(byref(count)))
    for number in range(count.value):
        name, uuid = create_string_buffer(96), create_string_buffer(96)
        ok(nvml.nvmlDeviceGetName(handle(number), name, 96))
        ok(nvml.nvmlDeviceGetUUID(handle(number), uuid, 96))
        found.append((name.value.decode(), uuid.value.decode()[4:].replace("-", "")))
    return found

def handle(number):
    found = c_void_p()
    ok(nvml.nvmlDeviceGetHandleByIndex_v2(c_uint(number), byref(found)))
    return found

def nvml_used(number):
    memory = (c_uint64 * 3)()
    ok(nvml.nvmlDeviceGetMemoryInfo(handle(number), memory))
    return memory[2]

def use(number):
    ctx = c_void_p()
    return cuda.cuDevicePrimaryCtxRetain(byref(ctx), number) or cuda.cuCtxSetCurrent(ctx)

def free_of(number):
    ok(use(number))
    free, total = c_size_t(), c_size_t()
    ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value
"""


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    return load_inventory("simulator", "h100,a100,t4,h100", "")


def uuid_of(inventory: Inventory, number: int) -> str:
    return f"GPU-{uuid.UUID(bytes=inventory.fields['devices'][number]['uuid'])}"


@pytest.fixture
def host(tmp_path: Path, inventory: Inventory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path, SHARES.format(uuid=uuid_of(inventory, 1)))


def start(host: Running, share: str) -> IpcClient:
    client = IpcClient(str(host.endpoint), VGPU_TOKEN=f"{share}-{share}-{share}")
    client(f"exec({MORE!r})")
    return client


def at_work(host: Running, share: str) -> list[dict[str, Any]]:
    """The sessions of a share that have a worker (one that only asks NVML has none), with the memory of each."""

    def measured() -> list[dict[str, Any]] | None:
        found = host.admin.get("sessions")["sessions"]
        found = [each for each in found if each["share"] == share and each["worker_pid"] is not None]
        return None if any(each["memory_nbytes"] is None for each in found) else [found]

    return wait_until(measured)[0]


def memory_of(host: Running, share: str) -> list[list[int]]:
    """For each session of a share, the bytes that it uses on each device of the host."""
    return [each["memory_nbytes"] for each in at_work(host, share)]


def test_each_share_sees_its_own_devices_and_counts_them_on_the_hosts(host: Running) -> None:
    outer, inner = start(host, "outer"), start(host, "inner")
    for client, numbers in ((outer, (0, 2)), (inner, (1, 2))):
        seen = client("devices()")
        assert [name for name, _ in seen] == [NAMES[number] for number in numbers]
        assert client("nvml_devices()") == seen
        assert client("use(2)") == INVALID_DEVICE
    before = outer("free_of(1)")
    inner("use(1)")
    inner(f"memory({4 * GIB})")
    assert outer("free_of(1)") <= before - 4 * GIB  # the T4 is one device, which both shares have
    [(none, context, used)] = memory_of(host, "inner")
    assert none == 0
    assert 0 < context < GIB
    assert 4 * GIB <= used < 5 * GIB
    assert inner("nvml_used(1)") == used
    assert inner("nvml_used(0)") == context
    assert outer("nvml_used(1)") < GIB  # another tenant's sessions are not shown
    [(own, none, _)] = memory_of(host, "outer")
    assert (own > 0, none) == (True, 0)
    told = re.search(r'^vgpu_session_memory_bytes{gpu="2",.*share="inner".*} (.*)', host.admin.metrics(), re.MULTILINE)
    assert told is not None
    assert float(told[1]) == used
    assert [at_work(host, share)[0]["devices"] for share in ("outer", "inner")] == [[0, 2], [1, 2]]
    for client in (outer, inner):
        client.kill()


def test_a_device_that_goes_is_found_under_its_number_on_the_host(host: Running) -> None:
    outer, inner = start(host, "outer"), start(host, "inner")  # device 0 of each is a different device of the host
    ended = host.admin.request("DELETE", "devices", "1", "service", document={"why": "test"})["ended"]
    assert len(ended) == 1
    wait_until(lambda: not at_work(host, "inner"))
    inner.kill()
    assert outer("use(0)") == 0
    assert outer("use(1)") == 0
    host.admin.request("DELETE", "devices", "0", "service", document={"why": "test"})
    wait_until(lambda: not at_work(host, "outer"))
    outer.kill()


def test_memory_is_opened_on_the_same_device_after_the_share_has_changed(host: Running) -> None:
    first = start(host, "outer")
    assert first("use(1)") == 0
    address = first("memory(4096)")
    assert first(f"put({address}, b'shared')") == 0
    code, handle = first(f"get_memory({address})")
    assert code == 0
    host.config.write_text(host.config.read_text().replace("[2, 0]", "[2]"))
    host.process.send_signal(signal.SIGHUP)
    host.wait_log("reloaded")
    second = start(host, "outer")
    assert [name for name, _ in second("devices()")] == [NAMES[2]]
    code, opened = second(f"open_memory({handle!r})")
    assert code == 0
    assert second(f"look({opened}, 6)") == b"shared"
    assert second(f"attribute({opened}, 9)") == (0, 0)  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert first("use(0)") == 0
    on_h100 = first("memory(4096)")
    code, handle = first(f"get_memory({on_h100})")
    assert code == 0
    assert second(f"open_memory({handle!r})")[0] == INVALID_VALUE  # it does not see that device
    for client in (first, second):
        client.kill()


def test_a_session_keeps_its_devices_over_a_restart(host: Running) -> None:
    client = start(host, "outer")
    assert client("use(1)") == 0
    client(f"memory({GIB})")
    [before] = memory_of(host, "outer")
    host.admin.request("POST", "restart", timeout_s=60)
    wait_until(lambda: host.status()["generation"] == 2)
    assert memory_of(host, "outer") == [before]
    assert before[1] == 0
    assert before[2] >= GIB
    other = start(host, "outer")
    assert [name for name, _ in other("nvml_devices()")] == [NAMES[0], NAMES[2]]
    for each in (client, other):
        each.kill()


@pytest.fixture
def warm_host(tmp_path: Path) -> Iterator[Running]:
    share = "default_share = 'last'\n[[shares]]\nname = 'last'\ngpus = [1]\n"
    yield from vgpud_with_real_workers(tmp_path, f"gpus = 't4,l4'\n{share}[limits]\nwarm_workers = 1\n")


def test_a_worker_that_has_made_a_context_on_all_devices_is_not_taken(warm_host: Running) -> None:
    wait_until(lambda: len(warm_host.status()["warm_workers"]) == 2)
    client = IpcClient(str(warm_host.endpoint))
    client(f"exec({MORE!r})")
    assert [name for name, _ in client("devices()")] == ["NVIDIA L4"]
    assert warm_host.status()["metrics"]["warm_workers_taken"] == 0
    client.kill()


def test_a_device_of_a_reloaded_share_that_is_not_there_yet(host: Running) -> None:
    text = host.config.read_text()
    host.config.write_text(text.replace("h100,a100,t4", "h100,a100,t4,l4").replace("[2, 0]", "[3]"))
    host.process.send_signal(signal.SIGHUP)
    host.wait_log("reloaded")
    with host.client(token="outer-outer-outer") as client, pytest.raises(Exception, match="there is no device 3"):
        client.hello()


def test_by_number_and_by_uuid(inventory: Inventory) -> None:
    name = uuid_of(inventory, 3)
    assert find(inventory.fields, [name, 0]) == (0, 3)
    assert find(inventory.fields, [name.upper()]) == (3,)
    for wrong, why in (([4], "no device 4"), ([-1], "no device -1"), (["GPU-1"], "no device GPU-1")):
        with pytest.raises(ValueError, match=why):
            find(inventory.fields, wrong)
    with pytest.raises(ValueError, match="device 3 is named twice"):
        find(inventory.fields, [3, name])


def test_peers_are_those_of_the_chosen_devices(inventory: Inventory) -> None:
    devices = only(inventory.fields, (0, 2, 3))["devices"]
    assert [len(device["peers"]) for device in devices] == [60, 60, 60]
    whole = inventory.fields["devices"][0]["peers"]
    assert devices[0]["peers"] == whole[:20] + whole[40:]
    assert any(devices[0]["peers"][40:])  # the other H100, which it reaches
    assert only(inventory.fields, None) is inventory.fields


def test_numbers() -> None:
    assert [number_on_host(device, (1, 3)) for device in (-1, 0, 1, 2)] == [-1, 1, 3, -1]
    assert number_on_host(5, None) == 5
    assert by_host([7, 8], (1, 3), 5) == (0, 7, 0, 8, 0)
    assert by_host([7], (0, 1), 2) == (7, 0)
    assert by_host([7, 8], None, 2) == (7, 8)
