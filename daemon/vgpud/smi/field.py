"""The fields of --query-gpu and --query-compute-apps, one entry each, and their CSV."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .device import Device, Process, mib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

NOT_AVAILABLE = "[N/A]"
Row = TypeVar("Row")


class UnknownFieldError(ValueError):
    """The text names the field."""


@dataclass(frozen=True, slots=True)
class Field(Generic[Row]):
    """One column: its value of a row, and the unit that follows numbers."""

    value: Callable[[Row], Any]
    unit: str = ""


def timestamp() -> str:
    """Now, as nvidia-smi writes it."""
    now = time.time()
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03}"


def _enabled(value: int | None) -> str | None:
    return None if value is None else ("Enabled" if value else "Disabled")


def _watts(milliwatts: int | None) -> str | None:
    return None if milliwatts is None else f"{milliwatts / 1000:.2f}"


def compute_mode(value: int | None) -> str | None:
    """nvmlComputeMode_t in words."""
    return None if value is None else ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")[value]


def _capability(device: Device) -> str | None:
    pair = device.ask("CudaComputeCapability")
    return None if pair is None else f"{pair[0]}.{pair[1]}"


def _hexadecimal(value: int | None, digits: int) -> str | None:
    return None if value is None else f"0x{value:0{digits}X}"


def _active(mask: int | None, bit: int) -> str | None:
    return None if mask is None else ("Active" if mask & bit else "Not Active")


def _state(value: int | None) -> str | None:
    return None if value is None else f"P{value}"


_REASONS = "ClocksThrottleReasons"
# nvmlClocksEventReasons.
_REASON_BITS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
# Fields of nvidia-smi that guests have no value for: scripts ask for them.
_NOT_TOLD = (
    *("addressing_mode", "driver_model.current", "driver_model.pending", "gom.current", "gom.pending"),
    *("inforom.img", "inforom.oem", "inforom.ecc", "inforom.pwr", "inforom.checksum_validation"),
    *("pcie.link.gen.hostmax", "power.draw.average", "power.draw.instant", "temperature.gpu.tlimit"),
    *("retired_pages.single_bit_ecc.count", "retired_pages.double_bit.count", "retired_pages.pending"),
    *("fabric.state", "fabric.status", "gsp.mode.current", "gsp.mode.default", "c2c.mode"),
)
_GRAPHICS, _SM, _MEMORY, _VIDEO = 0, 1, 2, 3  # nvmlClockType_t

GPU: Mapping[str, Field[Device]] = {
    "timestamp": Field(lambda d: timestamp()),
    "driver_version": Field(lambda d: d.system.driver_version),
    "count": Field(lambda d: d.system.ask("DeviceGetCount")),
    "index": Field(lambda d: d.index),
    "name": Field(lambda d: d.name),
    "uuid": Field(lambda d: d.uuid),
    "serial": Field(lambda d: d.ask("Serial")),
    "vbios_version": Field(lambda d: d.ask("VbiosVersion")),
    "pci.bus_id": Field(lambda d: d.bus_id),
    "pci.domain": Field(lambda d: _hexadecimal(d.pci("domain"), 4)),
    "pci.bus": Field(lambda d: _hexadecimal(d.pci("bus"), 2)),
    "pci.device": Field(lambda d: _hexadecimal(d.pci("device"), 2)),
    "pci.device_id": Field(lambda d: _hexadecimal(d.pci("pciDeviceId"), 8)),
    "pci.sub_device_id": Field(lambda d: _hexadecimal(d.pci("pciSubSystemId"), 8)),
    "pcie.link.gen.current": Field(lambda d: d.ask("CurrPcieLinkGeneration")),
    "pcie.link.gen.max": Field(lambda d: d.ask("MaxPcieLinkGeneration")),
    "pcie.link.width.current": Field(lambda d: d.ask("CurrPcieLinkWidth")),
    "pcie.link.width.max": Field(lambda d: d.ask("MaxPcieLinkWidth")),
    "display_mode": Field(lambda d: _enabled(d.ask("DisplayMode"))),
    "display_active": Field(lambda d: _enabled(d.ask("DisplayActive"))),
    "persistence_mode": Field(lambda d: _enabled(d.ask("PersistenceMode"))),
    "fan.speed": Field(lambda d: d.ask("FanSpeed"), "%"),
    "pstate": Field(lambda d: _state(d.ask("PerformanceState"))),
    "memory.total": Field(lambda d: mib(d.memory("total")), "MiB"),
    "memory.reserved": Field(lambda d: mib(d.memory("reserved")), "MiB"),
    "memory.used": Field(lambda d: mib(d.memory("used")), "MiB"),
    "memory.free": Field(lambda d: mib(d.memory("free")), "MiB"),
    "compute_mode": Field(lambda d: compute_mode(d.ask("ComputeMode"))),
    "compute_cap": Field(_capability),
    "utilization.gpu": Field(lambda d: d.utilization("gpu"), "%"),
    "utilization.memory": Field(lambda d: d.utilization("memory"), "%"),
    "utilization.encoder": Field(lambda d: d.item("EncoderUtilization", 0), "%"),
    "utilization.decoder": Field(lambda d: d.item("DecoderUtilization", 0), "%"),
    "ecc.mode.current": Field(lambda d: _enabled(d.item("EccMode", 0))),
    "ecc.mode.pending": Field(lambda d: _enabled(d.item("EccMode", 1))),
    "ecc.errors.corrected.volatile.total": Field(lambda d: d.ask("TotalEccErrors", 0, 0)),
    "ecc.errors.uncorrected.volatile.total": Field(lambda d: d.ask("TotalEccErrors", 1, 0)),
    "temperature.gpu": Field(lambda d: d.ask("Temperature", 0)),
    "temperature.memory": Field(lambda d: None),
    "power.draw": Field(lambda d: _watts(d.ask("PowerUsage")), "W"),
    "power.limit": Field(lambda d: _watts(d.ask("PowerManagementLimit")), "W"),
    "enforced.power.limit": Field(lambda d: _watts(d.ask("EnforcedPowerLimit")), "W"),
    "power.default_limit": Field(lambda d: _watts(d.ask("PowerManagementDefaultLimit")), "W"),
    "power.min_limit": Field(lambda d: _watts(d.item("PowerManagementLimitConstraints", 0)), "W"),
    "power.max_limit": Field(lambda d: _watts(d.item("PowerManagementLimitConstraints", 1)), "W"),
    "clocks.current.graphics": Field(lambda d: d.ask("ClockInfo", _GRAPHICS), "MHz"),
    "clocks.current.sm": Field(lambda d: d.ask("ClockInfo", _SM), "MHz"),
    "clocks.current.memory": Field(lambda d: d.ask("ClockInfo", _MEMORY), "MHz"),
    "clocks.current.video": Field(lambda d: d.ask("ClockInfo", _VIDEO), "MHz"),
    "clocks.max.graphics": Field(lambda d: d.ask("MaxClockInfo", _GRAPHICS), "MHz"),
    "clocks.max.sm": Field(lambda d: d.ask("MaxClockInfo", _SM), "MHz"),
    "clocks.max.memory": Field(lambda d: d.ask("MaxClockInfo", _MEMORY), "MHz"),
    "mig.mode.current": Field(lambda d: _enabled(d.item("MigMode", 0))),
    "mig.mode.pending": Field(lambda d: _enabled(d.item("MigMode", 1))),
    "accounting.mode": Field(lambda d: _enabled(d.ask("AccountingMode"))),
    "accounting.buffer_size": Field(lambda d: d.ask("AccountingBufferSize")),
    "pcie.link.gen.gpucurrent": Field(lambda d: d.ask("CurrPcieLinkGeneration")),
    "pcie.link.gen.gpumax": Field(lambda d: d.ask("GpuMaxPcieLinkGeneration")),
    "power.management": Field(lambda d: _enabled(d.ask("PowerManagementMode"))),
    "utilization.jpeg": Field(lambda d: d.item("JpgUtilization", 0), "%"),
    "utilization.ofa": Field(lambda d: d.item("OfaUtilization", 0), "%"),
    "encoder.stats.sessionCount": Field(lambda d: d.item("EncoderStats", 0)),
    "encoder.stats.averageFps": Field(lambda d: d.item("EncoderStats", 1)),
    "encoder.stats.averageLatency": Field(lambda d: d.item("EncoderStats", 2)),
    "ecc.errors.corrected.aggregate.total": Field(lambda d: d.ask("TotalEccErrors", 0, 1)),
    "ecc.errors.uncorrected.aggregate.total": Field(lambda d: d.ask("TotalEccErrors", 1, 1)),
    "clocks.applications.graphics": Field(lambda d: d.ask("ApplicationsClock", _GRAPHICS), "MHz"),
    "clocks.applications.memory": Field(lambda d: d.ask("ApplicationsClock", _MEMORY), "MHz"),
    "clocks.default_applications.graphics": Field(lambda d: d.ask("DefaultApplicationsClock", _GRAPHICS), "MHz"),
    "clocks.default_applications.memory": Field(lambda d: d.ask("DefaultApplicationsClock", _MEMORY), "MHz"),
    "clocks_event_reasons.supported": Field(lambda d: _hexadecimal(d.ask(f"Supported{_REASONS}"), 16)),
    "clocks_event_reasons.active": Field(lambda d: _hexadecimal(d.ask(f"Current{_REASONS}"), 16)),
    **{
        f"clocks_event_reasons.{name}": Field(lambda d, bit=bit: _active(d.ask(f"Current{_REASONS}"), bit))  # type: ignore[misc]
        for name, bit in _REASON_BITS.items()
    },
    **{name: Field(lambda d: None) for name in _NOT_TOLD},
}

GPU_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.applications.gr": "clocks.applications.graphics",
    "clocks.applications.mem": "clocks.applications.memory",
    "clocks.default_applications.gr": "clocks.default_applications.graphics",
    "clocks.default_applications.mem": "clocks.default_applications.memory",
    "clocks.max.mem": "clocks.max.memory",
    **{
        f"clocks_throttle_reasons.{name}": f"clocks_event_reasons.{name}"
        for name in ("supported", "active", *_REASON_BITS)
    },
}

_Pair = tuple[Device, Process]
APPS: Mapping[str, Field[_Pair]] = {
    "timestamp": Field(lambda row: timestamp()),
    "gpu_name": Field(lambda row: row[0].name),
    "gpu_bus_id": Field(lambda row: row[0].bus_id),
    "gpu_serial": Field(lambda row: row[0].ask("Serial")),
    "gpu_uuid": Field(lambda row: row[0].uuid),
    "pid": Field(lambda row: row[1].pid),
    "process_name": Field(lambda row: row[1].name),
    "used_gpu_memory": Field(lambda row: row[1].memory_mib, "MiB"),
}
APP_ALIASES = {"name": "process_name", "used_memory": "used_gpu_memory"}


def select(text: str, known: Mapping[str, Field[Row]], aliases: Mapping[str, str]) -> dict[str, Field[Row]]:
    """The fields of a comma-separated list, by canonical name. Raises UnknownFieldError."""
    chosen = {}
    for part in text.split(","):
        name = aliases.get(part.strip(), part.strip())
        if name not in known:
            raise UnknownFieldError(part.strip())
        chosen[name] = known[name]
    return chosen


def csv_header(fields: Mapping[str, Field[Row]]) -> str:
    """The first line: names, with units in brackets."""
    return ", ".join(f"{name} [{field.unit}]" if field.unit else name for name, field in fields.items())


def csv_line(fields: Mapping[str, Field[Row]], row: Row, *, units: bool) -> str:
    """One row."""
    return ", ".join(_cell(field.value(row), field.unit if units else "") for field in fields.values())


def _cell(value: Any, unit: str) -> str:
    if value is None:
        return NOT_AVAILABLE
    text = str(value)
    if not unit and ("," in text or '"' in text or "\n" in text):  # a process can be called anything
        return '"' + text.replace('"', '""') + '"'
    return f"{text} {unit}" if unit else text


def rows_of_apps(devices: Iterable[Device]) -> list[_Pair]:
    """Every compute process, with its device."""
    return [(d, process) for d in devices for process in d.processes() or [] if process.kind == "C"]
