"""Answers a client's NVML questions: the snapshot once, the rest from the backend."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vgpud.devices.pci_address import relocate
from vgpud.devices.selection import number_on_host, only

from ..proto import Answer
from .call import CALLS, Call, NvmlResult, pack_struct
from .guest import guest_processes
from .host import HostNvml
from .identity import PCI_CALLS, Given, identity
from .simulator import SimulatorNvml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vgpud.devices.inventory import Inventory
    from vgpud.tenancy.session import Session

    from ..proto import Nvml
    from .guest import GuestProcess

SNAPSHOT = "snapshot"
_SYSTEM = -1
_EVENTS = "nvmlEventSetWait_v2"
# A guest has no racks (units), no devices hidden by the operator, no host interface cards, no confidential computing.
_NO_CONFIDENCE = {"environment": 0, "ccFeature": 0, "devToolsMode": 0}
_CONFIDENCE_VERSION = next(p.versions[0] for p in CALLS["nvmlSystemGetConfComputeSettings"].params)
_NOTHING_THERE: dict[str, list[Any]] = {
    "nvmlUnitGetCount": [0],
    "nvmlGetExcludedDeviceCount": [0],
    "nvmlGetBlacklistDeviceCount": [0],
    "nvmlSystemGetHicVersion": [[]],
    "nvmlSystemGetConfComputeState": [pack_struct("nvmlConfComputeSystemState_t", **_NO_CONFIDENCE)],
    "nvmlSystemGetConfComputeSettings": [
        pack_struct("nvmlSystemConfComputeSettings_t", version=_CONFIDENCE_VERSION, multiGpuMode=0, **_NO_CONFIDENCE)
    ],
}


_UTILIZATION = struct.Struct("<II")  # nvmlUtilization_t: of the device, of its memory
_MEMORY = struct.Struct("<I4xQQQQ")  # nvmlMemory_v2_t: version, total, reserved, free, used bytes
_MEMORY_VERSION = next(p.versions[0] for p in CALLS["nvmlDeviceGetMemoryInfo_v2"].params if p.versions)
_MIB = 1 << 20
# By DCGM's name of a reading: the NVML function, its arguments, and how to read its results.
_GAUGES: dict[str, tuple[str, tuple[int, ...], Callable[[Sequence[Any]], float]]] = {
    "DCGM_FI_DEV_FB_FREE": (
        "nvmlDeviceGetMemoryInfo_v2",
        (_MEMORY_VERSION,),
        lambda of: _MEMORY.unpack(of[0])[3] // _MIB,
    ),
    "DCGM_FI_DEV_FB_USED": (
        "nvmlDeviceGetMemoryInfo_v2",
        (_MEMORY_VERSION,),
        lambda of: _MEMORY.unpack(of[0])[4] // _MIB,
    ),
    "DCGM_FI_DEV_SM_CLOCK": ("nvmlDeviceGetClockInfo", (1,), lambda of: of[0]),
    "DCGM_FI_DEV_MEM_CLOCK": ("nvmlDeviceGetClockInfo", (2,), lambda of: of[0]),
    "DCGM_FI_DEV_GPU_TEMP": ("nvmlDeviceGetTemperature", (0,), lambda of: of[0]),
    "DCGM_FI_DEV_POWER_USAGE": ("nvmlDeviceGetPowerUsage", (), lambda of: of[0] / 1000),  # milliwatts
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("nvmlDeviceGetTotalEnergyConsumption", (), lambda of: of[0]),
    "DCGM_FI_DEV_GPU_UTIL": ("nvmlDeviceGetUtilizationRates", (), lambda of: _UTILIZATION.unpack(of[0])[0]),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("nvmlDeviceGetUtilizationRates", (), lambda of: _UTILIZATION.unpack(of[0])[1]),
    "DCGM_FI_DEV_ENC_UTIL": ("nvmlDeviceGetEncoderUtilization", (), lambda of: of[0]),
    "DCGM_FI_DEV_DEC_UTIL": ("nvmlDeviceGetDecoderUtilization", (), lambda of: of[0]),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("nvmlDeviceGetPcieReplayCounter", (), lambda of: of[0]),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("nvmlDeviceGetRemappedRows", (), lambda of: of[0]),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("nvmlDeviceGetRemappedRows", (), lambda of: of[1]),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("nvmlDeviceGetRemappedRows", (), lambda of: of[3]),
}
# nvmlFieldValue_t: field, scope, time in us since 1970, latency, type, result, value; and fields of it.
_FIELD = struct.Struct("<IIqqIIQ")
_MEMORY_TEMP, _NVLINK_SENT, _NVLINK_RECEIVED = 82, 138, 139  # the last two in KiB
_ALL_LINKS = 0xFFFFFFFF
_TEMPERATURE_MAX = 200  # higher readings are not temperatures; DCGM has the same limit
_TEMPERATURE_MASK = 0xFFFFFFFF  # the value is 32 bits wide, whatever type NVML says


# nvmlMemory_t: total, free, used bytes.
_OF_MEMORY = {"nvmlDeviceGetMemoryInfo": struct.Struct("<QQQ"), "nvmlDeviceGetMemoryInfo_v2": _MEMORY}


def _within(call: Call, answer: Answer, limit: int, used: int) -> Answer:
    """A device's memory as the sessions of a share see it: its limit, and what they use of it together."""
    layout = _OF_MEMORY[call.name]
    words = layout.unpack(answer.value[0])
    total = min(words[0 if len(words) == 3 else 1], limit)
    free = min(words[-2], max(0, total - used))
    of_share = (total, free, total - free) if len(words) == 3 else (words[0], total, 0, free, total - free)
    return Answer(NvmlResult.SUCCESS, [layout.pack(*of_share)])


class NvmlBackend(Protocol):
    """The source of the devices' answers."""

    def snapshot(self, index: int, call: Call) -> list[tuple[tuple[int, ...] | None, Answer]]:
        """Answers that never change: (given integers or None for all, answer) pairs; empty if only live() can
        answer."""

    async def live(self, index: int, call: Call, given: tuple[int, ...], guest: Sequence[GuestProcess]) -> Answer:
        """The current answer."""

    def events(self, after: int) -> Answer:
        """The devices' events after number `after`; NOT_SUPPORTED: there never are any."""


def _backend(inventory: Inventory) -> NvmlBackend:
    if inventory.fields["backend"] == "simulator":
        return SimulatorNvml(inventory.fields, inventory.gpus)
    return HostNvml(inventory.fields)


class NvmlService:
    """The service, one for all clients."""

    def __init__(
        self,
        inventory: Inventory,
        backend: NvmlBackend | None = None,
        tenant_memory: Callable[[str, int], int] = lambda _tenant, _device: 0,
    ) -> None:
        """`tenant_memory`: bytes of a host's device that all sessions of a tenant use, where it has a limit."""
        self._inventory = inventory.fields
        self._backend = backend or _backend(inventory)
        self._tenant_memory = tenant_memory
        self._snapshot: list[list[Any]] | None = None
        self._nvlink: dict[int, tuple[int, int]] = {}  # by device: when it was read, in us, and KiB until then

    async def answer(self, question: Nvml, asking: Session, sessions: Iterable[Session]) -> Answer:
        """Answer one question of the client `asking`. Never raises for what a client can send."""
        if question.call == SNAPSHOT:
            return Answer(NvmlResult.SUCCESS, self._snapshot_of(asking))
        call = CALLS.get(question.call)
        if call is None:
            return Answer(NvmlResult.NOT_SUPPORTED)
        if len(question.arguments) != call.argument_count:
            return Answer(NvmlResult.INVALID_ARGUMENT)
        if call.name == _EVENTS:
            return self._backend.events(question.arguments[0])
        if not call.of_device:
            return self._of_system(call)
        device, count = number_on_host(question.device, asking.devices), len(self._inventory["devices"])
        if not 0 <= device < count:
            return Answer(NvmlResult.INVALID_ARGUMENT)
        for given, answer in self._static(question.device, call, asking):
            if given is None or given == question.arguments:
                return answer
        guest = await guest_processes(asking, sessions, count)
        answer = await self._backend.live(device, call, question.arguments, guest)
        if call.name in _OF_MEMORY and answer.result == NvmlResult.SUCCESS and asking.memory_limit_nbytes is not None:
            return _within(call, answer, asking.memory_limit_nbytes, self._tenant_memory(asking.tenant_name, device))
        return answer

    async def gauges(self, index: int) -> dict[str, float]:
        """A real device's readings by DCGM's names, without those that its NVML does not report."""
        if self._inventory["backend"] == "simulator":
            return {}
        found = {}
        for name, (function, given, read) in _GAUGES.items():
            answer = await self._backend.live(index, CALLS[function], given, [])
            if answer.result == NvmlResult.SUCCESS:
                found[name] = float(read(answer.value))
        temperature = await self._field(index, _MEMORY_TEMP)
        if temperature is not None and temperature[1] & _TEMPERATURE_MASK <= _TEMPERATURE_MAX:
            found["DCGM_FI_DEV_MEMORY_TEMP"] = float(temperature[1] & _TEMPERATURE_MASK)
        if (bandwidth := await self._nvlink_bandwidth(index)) is not None:
            found["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"] = bandwidth
        return found

    async def _nvlink_bandwidth(self, index: int) -> float | None:
        """What all links of a device have sent and received since the reading before, in MB/s as DCGM computes them
        (thousands of KiB); 0 at the first one. None: NVML does not report it.
        """
        sent, received = await self._field(index, _NVLINK_SENT), await self._field(index, _NVLINK_RECEIVED)
        if sent is None or received is None:
            return None
        now_us, total = max(sent[0], received[0]), sent[1] + received[1]
        then_us, before = self._nvlink.get(index, (now_us, total))
        self._nvlink[index] = now_us, total
        return float(int((total - before) * 1000 / (now_us - then_us))) if now_us > then_us else 0.0

    async def _field(self, index: int, field: int) -> tuple[int, int] | None:
        """When a field was read, in us since 1970, and its value; None: NVML does not report it."""
        scope = 0 if field == _MEMORY_TEMP else _ALL_LINKS
        answer = await self._backend.live(index, CALLS["nvmlDeviceGetFieldValues"], (field, scope), [])
        if answer.result != NvmlResult.SUCCESS:
            return None
        _field, _scope, at_us, _latency_us, _type, result, value = _FIELD.unpack(answer.value[0])
        return (at_us or time.time_ns() // 1000, value) if result == NvmlResult.SUCCESS else None

    def _of_system(self, call: Call) -> Answer:
        release, version = self._inventory["driver_release"], self._inventory["driver_version"]
        known = _NOTHING_THERE | {
            "nvmlSystemGetDriverVersion": [release],
            "nvmlSystemGetNVMLVersion": [f"{version // 1000}.{release}"],
            "nvmlSystemGetCudaDriverVersion": [version],
            "nvmlSystemGetCudaDriverVersion_v2": [version],
        }
        if call.name not in known:
            return Answer(NvmlResult.NOT_SUPPORTED)
        return Answer(NvmlResult.SUCCESS, known[call.name])

    def _static(self, index: int, call: Call, asking: Session | None) -> list[tuple[Given, Answer]]:
        """The backend's snapshot of a call about the client's device `index`, or answers that depend on the device's
        PCI address in the guest. None: a client that sees all devices where the host has them.
        """
        if asking is not None and call.name in PCI_CALLS and index < len(asking.pci):
            seen = relocate(only(self._inventory, asking.devices), asking.pci)
            return list(identity(seen["devices"][index])[call.name].items())
        return self._backend.snapshot(index if asking is None else number_on_host(index, asking.devices), call)

    def _snapshot_of(self, asking: Session) -> list[list[Any]]:
        if asking.pci or asking.devices is not None:
            return self._take_snapshot(asking)  # each client asks once
        if self._snapshot is None:
            self._snapshot = self._take_snapshot()
        return self._snapshot

    def _take_snapshot(self, asking: Session | None = None) -> list[list[Any]]:
        """[device, call, integers given or None, result, value] of everything that never changes."""
        rows: list[list[Any]] = []
        for call in CALLS.values():
            if call.name == _EVENTS and self._inventory["backend"] != "simulator":
                continue
            if not call.of_device:
                answer = self._of_system(call)
                rows.append([_SYSTEM, call.name, None, int(answer.result), answer.value])
                continue
            for index in range(len(only(self._inventory, None if asking is None else asking.devices)["devices"])):
                for given, answer in self._static(index, call, asking):
                    arguments = None if given is None else list(given)
                    rows.append([index, call.name, arguments, int(answer.result), answer.value])
        return rows
