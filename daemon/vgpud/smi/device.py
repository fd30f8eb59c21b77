"""The queries of `vgpu smi` for a device. None: the device does not answer."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

MIB_NBYTES = 1024 * 1024
_NOT_AVAILABLE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE: recent bindings turn it into None, older ones do not


@dataclass(frozen=True, slots=True)
class Process:
    """One process on a device."""

    pid: int
    kind: str  # "C" compute, "G" graphics
    name: str | None
    memory_nbytes: int | None

    @property
    def memory_mib(self) -> int | None:
        """Whole MiB; nvidia-smi rounds a process's memory down, a device's up."""
        return None if self.memory_nbytes is None else self.memory_nbytes // MIB_NBYTES


class System:
    """The host's NVML as one guest sees it. `pynvml` is initialised."""

    def __init__(self, pynvml: Any) -> None:
        self._pynvml = pynvml

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call `nvmlNAME`: its result, or None for any error but a lost GPU, and where the binding is too old for it.

        Raises:
            pynvml.NVMLError_GpuIsLost: the daemon is gone.
        """
        function = getattr(self._pynvml, f"nvml{name}", None)
        if function is None:
            return None
        try:
            value = function(*arguments)
        except self._pynvml.NVMLError_GpuIsLost:
            raise
        except self._pynvml.NVMLError:
            return None
        return value.decode() if isinstance(value, bytes) else value

    @property
    def driver_version(self) -> str | None:
        """Release of the driver, as "580.159.04"."""
        value: str | None = self.ask("SystemGetDriverVersion")
        return value

    @property
    def cuda_version(self) -> str | None:
        """CUDA version of the driver, as "13.0"."""
        value = self.ask("SystemGetCudaDriverVersion_v2")
        return None if value is None else f"{value // 1000}.{value % 1000 // 10}"

    def devices(self) -> list[Device]:
        """All devices, in NVML's order."""
        count = self.ask("DeviceGetCount") or 0
        return [Device(self, index, self.ask("DeviceGetHandleByIndex", index)) for index in range(count)]


class Device:
    """One device; every access queries NVML again."""

    def __init__(self, system: System, index: int, handle: Any) -> None:
        self.system = system
        self.index = index
        self._handle = handle

    def ask(self, name: str, *arguments: Any) -> Any:
        """`nvmlDeviceGetNAME` of this device, or None."""
        return self.system.ask(f"DeviceGet{name}", self._handle, *arguments)

    @property
    def name(self) -> str | None:
        """Marketing name."""
        value: str | None = self.ask("Name")
        return value

    @property
    def uuid(self) -> str | None:
        """As "GPU-..."."""
        value: str | None = self.ask("UUID")
        return value

    @property
    def bus_id(self) -> str | None:
        """As "00000000:01:00.0"."""
        info = self.ask("PciInfo")
        return None if info is None else _text(info.busId)

    def pci(self, field: str) -> int | None:
        """One number of the PCI identity."""
        info = self.ask("PciInfo")
        return None if info is None else int(getattr(info, field))

    def pci_class(self, position: int) -> int | None:
        """The PCI base class (0) or sub-class (1)."""
        structure = getattr(self.system._pynvml, "nvmlPciInfoExt_v1_t", None)
        if structure is None:
            return None
        info = structure()
        info.version = self.system._pynvml.nvmlPciInfoExt_v1
        self.ask("PciInfoExt", ctypes.byref(info))
        return (int(info.baseClass), int(info.subClass))[position] if info.busId else None

    def memory(self, field: str) -> int | None:
        """Memory in bytes; `field`: total, free, used or reserved."""
        info = self.ask("MemoryInfo", self.system._pynvml.nvmlMemory_v2)
        return None if info is None else int(getattr(info, field))

    def utilization(self, field: str) -> int | None:
        """Utilisation in percent; `field`: gpu or memory."""
        rates = self.ask("UtilizationRates")
        return None if rates is None else int(getattr(rates, field))

    def item(self, name: str, position: int, *arguments: Any) -> Any:
        """One of several results of a function, or None."""
        values = self.ask(name, *arguments)
        return None if values is None else values[position]

    def common_ancestor(self, other: Device) -> int | None:
        """nvmlGpuTopologyLevel_t of the path to another device."""
        value: int | None = self.ask("TopologyCommonAncestor", other._handle)
        return value

    def processes(self) -> list[Process] | None:
        """All processes on the device; None if NVML does not list them."""
        found: list[Process] = []
        told = False
        for kind, name in (("C", "ComputeRunningProcesses"), ("G", "GraphicsRunningProcesses")):
            rows = self.ask(name)
            told = told or rows is not None
            found += [self._process(kind, row) for row in rows or []]
        return found if told else None

    def _process(self, kind: str, row: Any) -> Process:
        used = None if row.usedGpuMemory in (None, _NOT_AVAILABLE) else int(row.usedGpuMemory)
        return Process(int(row.pid), kind, self.system.ask("SystemGetProcessName", row.pid), used)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def mib(nbytes: int | None) -> int | None:
    """MiB, rounded up, as nvidia-smi does."""
    return None if nbytes is None else -(-nbytes // MIB_NBYTES)
