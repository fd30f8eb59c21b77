"""NVML's answers for simulated devices: identity and limits from inventory and profile, memory and processes from the
sessions. There are no sensors: temperature, power, clocks and utilisation are NOT_SUPPORTED, never a number."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import TYPE_CHECKING, Any

from vgpusim.profiles import profile
from vgpusim.profiles.attribute import DeviceAttribute

from .call import CALLS, Call, pack_struct
from .identity import NOT_SUPPORTED, Given, Known, answer, attributes_of, capability_of, identity, version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..proto import Answer
    from .guest import GuestProcess

_NO_INSTANCE = 0xFFFFFFFF  # NVML: not on a MIG instance
_MEMORY_UNKNOWN = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE
_BUS_PCIE = 2
_ECC_AND_XID_EVENTS = 1 | 2 | 8  # a program may wait for them; a simulated device never has one
_CLOCK_GRAPHICS, _CLOCK_SM, _CLOCK_MEMORY = 0, 1, 2

# By compute capability: nvmlDeviceArchitecture_t and FP32 lanes of one SM (CUDA C++ programming guide).
_ARCHITECTURE = {(7, 0): 5, (7, 5): 6, (8, 0): 7, (8, 6): 7, (8, 9): 8, (9, 0): 9}
_CORES = {(7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 9): 128, (9, 0): 128}

_LIVE = {name for name in CALLS if name.startswith(("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses"))}


class SimulatorNvml:
    """Answers for the devices of one inventory. `gpus`: the configuration's list from which the inventory was made."""

    def __init__(self, inventory: dict[str, Any], gpus: str) -> None:
        self._devices = inventory["devices"]
        cards = tomllib.loads((resources.files(__package__) / "card.toml").read_text(encoding="utf-8"))
        profiles = profile.parse_gpus(gpus)
        self._static = [
            _static(device, cards.get(card.key, {})) for device, card in zip(self._devices, profiles, strict=True)
        ]

    def snapshot(self, index: int, call: Call) -> list[tuple[Given, Answer]]:
        """Answers that never change: (given integers, answer) pairs. Empty: only live() can answer."""
        known = self._static[index].get(call.name)
        if known is not None:
            return list(known.items())
        return [] if call.name in _LIVE else [(None, NOT_SUPPORTED)]

    async def live(self, index: int, call: Call, _given: tuple[int, ...], guest: Sequence[GuestProcess]) -> Answer:
        """The current answer."""
        if call.name.startswith("nvmlDeviceGetMemoryInfo"):
            return _memory(call, self._devices[index]["memory_nbytes"], index, guest)
        if call.name.startswith("nvmlDeviceGetComputeRunningProcesses"):
            return _processes(call, index, guest)
        return NOT_SUPPORTED

    def events(self, _after: int) -> Answer:
        """There are no events, and there never will be."""
        return NOT_SUPPORTED


def _static(device: dict[str, Any], card: dict[str, Any]) -> Known:
    """Everything about a device that does not change."""
    attributes = attributes_of(device)
    capability = capability_of(attributes)
    core_mhz = attributes[DeviceAttribute.CLOCK_RATE] // 1000
    memory_mhz = attributes[DeviceAttribute.MEMORY_CLOCK_RATE] // 1000
    ecc = attributes[DeviceAttribute.ECC_ENABLED]
    answers = identity(device)

    def say(name: str, *value: Any, given: Given = None) -> None:
        answers.setdefault(f"nvmlDevice{name}", {})[given] = answer(*value)

    if capability in _ARCHITECTURE:
        say("GetArchitecture", _ARCHITECTURE[capability])
        say("GetNumGpuCores", attributes[DeviceAttribute.MULTIPROCESSOR_COUNT] * _CORES[capability])
    say("GetMemoryBusWidth", attributes[DeviceAttribute.GLOBAL_MEMORY_BUS_WIDTH])
    say("GetBusType", _BUS_PCIE)
    for clock, mhz in ((_CLOCK_GRAPHICS, core_mhz), (_CLOCK_SM, core_mhz), (_CLOCK_MEMORY, memory_mhz)):
        say("GetMaxClockInfo", mhz, given=(clock,))
    say("GetEccMode", ecc, ecc)
    say("GetComputeMode", attributes[DeviceAttribute.COMPUTE_MODE])
    say("GetMultiGpuBoard", attributes[DeviceAttribute.MULTI_GPU_BOARD])
    say("GetSupportedEventTypes", _ECC_AND_XID_EVENTS)
    say("GetAccountingMode", 0)
    say("GetDisplayActive", 0)  # there is no output to connect a display to
    say("GetMaxMigDeviceCount", 0)
    if card.get("mig"):
        say("GetMigMode", 0, 0)
    if "brand" in card:
        say("GetBrand", card["brand"])
    if "pcie" in card:
        generation, width = card["pcie"]
        say("GetMaxPcieLinkGeneration", generation)
        say("GetGpuMaxPcieLinkGeneration", generation)
        say("GetMaxPcieLinkWidth", width)
    for kind in ("Graphics", "MPSCompute"):  # simulated devices have no graphics and no MPS
        for suffix in ("", "_v2", "_v3"):
            say(f"Get{kind}RunningProcesses{suffix}", [])
    return answers


def _memory(call: Call, total: int, index: int, guest: Sequence[GuestProcess]) -> Answer:
    """As cuMemGetInfo, over all sessions of the guest. NOT_SUPPORTED while the use of one worker is unknown."""
    used = 0
    for process in guest:
        if process.memory_nbytes is None or index >= len(process.memory_nbytes):
            return NOT_SUPPORTED
        used += process.memory_nbytes[index]
    used = min(used, total)  # each session has the whole device: together they may use more
    numbers = {"total": total, "free": total - used, "used": used}
    if call.name.endswith("_v2"):
        return answer(pack_struct("nvmlMemory_v2_t", version=version(call), reserved=0, **numbers))
    return answer(pack_struct("nvmlMemory_t", **numbers))


def _processes(call: Call, index: int, guest: Sequence[GuestProcess]) -> Answer:
    """The guest's sessions that use memory of the device (a context costs memory), or whose use is unknown."""
    layout = next(param.struct for param in call.params if param.role == "ITEMS")
    items = []
    for process in guest:
        told = process.memory_nbytes is not None and index < len(process.memory_nbytes)
        used = process.memory_nbytes[index] if process.memory_nbytes is not None and told else _MEMORY_UNKNOWN
        if used == 0:
            continue
        fields: dict[str, int] = {"pid": process.pid, "usedGpuMemory": used}
        if layout == "nvmlProcessInfo_v2_t":
            fields |= {"gpuInstanceId": _NO_INSTANCE, "computeInstanceId": _NO_INSTANCE}
        items.append(pack_struct(layout, **fields))
    return answer(items)
