"""Real devices are answered by the host's NVML; here vgpu's library, connected to another vgpud, plays that NVML."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
from vgpud.devices.inventory import load_inventory
from vgpud.nvml.call import CALLS, NvmlResult
from vgpud.nvml.guest import GuestProcess
from vgpud.nvml.host import HostNvml, _only_own
from vgpud.nvml.service import NvmlService
from vgpud.nvml.simulator import SimulatorNvml
from vgpud.proto import Answer

from tests.nvml.conftest import LIBRARY


@pytest.fixture
def inventory() -> dict[str, Any]:
    """The devices of the vgpud that plays the host, in reverse order."""
    fields = load_inventory("simulator", "h100,t4", "libcuda.so.1").fields
    return fields | {"devices": fields["devices"][::-1]}


@pytest.fixture
def host(guest: ctypes.CDLL, inventory: dict[str, Any]) -> Any:
    yield HostNvml(inventory, str(LIBRARY))
    assert guest.nvmlShutdown() == 0


def answers(backend: Any, index: int) -> dict[tuple[str, tuple[int, ...] | None], tuple[int, Any]]:
    """The successful answers in a device's snapshot, by name and arguments."""
    return {
        (name, given): (answer.result, answer.value)
        for name, call in CALLS.items()
        if call.of_device
        for given, answer in backend.snapshot(index, call)
        if answer.result == NvmlResult.SUCCESS
    }


def test_the_snapshot_is_the_hosts(host: HostNvml) -> None:
    plain = load_inventory("simulator", "h100,t4", "libcuda.so.1")
    simulated = SimulatorNvml(plain.fields, plain.gpus)
    for index in (0, 1):
        expected = answers(simulated, 1 - index)
        found = answers(host, index)
        names = {name for name, _ in expected}
        live = {name for name in names if not CALLS[name].in_snapshot}
        assert {key[0]: value for key, value in found.items() if key[1] is None or key[1] == ()} | {
            key[0]: value for key, value in expected.items() if key[0] in live
        } == {key[0]: value for key, value in expected.items() if key[1] is None} | {
            key[0]: value for key, value in found.items() if key[1] == () and key[0] not in names
        }
        assert found[("nvmlDeviceGetMaxClockInfo", (1,))] == expected[("nvmlDeviceGetMaxClockInfo", (1,))]


@pytest.mark.asyncio
async def test_live(host: HostNvml, inventory: dict[str, Any]) -> None:
    call = CALLS["nvmlDeviceGetMemoryInfo_v2"]
    answer = await host.live(0, call, (0x02000028,), [])
    assert answer.result == NvmlResult.SUCCESS
    version, total = struct.unpack("<IxxxxQ", answer.value[0][:16])
    assert (version, total) == (0x02000028, inventory["devices"][0]["memory_nbytes"])
    wrong = await host.live(0, call, (2 << 24 | 32,), [])
    assert (wrong.result, wrong.value) == (25, None)
    sensor = await host.live(0, CALLS["nvmlDeviceGetTemperature"], (0,), [])
    assert (sensor.result, sensor.value) == (NvmlResult.NOT_SUPPORTED, None)
    processes = await host.live(0, CALLS["nvmlDeviceGetComputeRunningProcesses_v3"], (), [])
    assert (processes.result, processes.value) == (NvmlResult.SUCCESS, [[]])


def test_processes_are_the_guests_own() -> None:
    def item(pid: int) -> bytes:
        return struct.pack("<IxxxxQII", pid, pid * 1000, 0xFFFFFFFF, 0xFFFFFFFF)

    everybodys = Answer(0, [[item(10), item(11), item(12)]])
    guest = [GuestProcess(pid=7, worker_pid=11, memory_nbytes=None), GuestProcess(8, 99, None)]
    assert _only_own(everybodys, guest, 0).value == [[struct.pack("<IxxxxQII", 7, 11000, 0xFFFFFFFF, 0xFFFFFFFF)]]


def test_a_host_without_nvml_still_has_identities(inventory: dict[str, Any]) -> None:
    host = HostNvml(inventory, "/nonexistent/libnvidia-ml.so.1")
    assert host.snapshot(0, CALLS["nvmlDeviceGetName"]) == [(None, Answer(0, ["Tesla T4"]))]
    assert host.snapshot(0, CALLS["nvmlDeviceGetTemperature"]) == [(None, Answer(NvmlResult.NOT_SUPPORTED))]


def test_the_service_takes_the_backend_of_the_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    real = load_inventory("simulator", "t4", "libcuda.so.1")
    fields = real.fields | {"backend": "cuda"}
    opened = []
    monkeypatch.setattr("vgpud.nvml.service.HostNvml", lambda given: opened.append(given))
    NvmlService(type(real)(fields, real.gpus, real.host_seed))
    assert opened == [fields]
