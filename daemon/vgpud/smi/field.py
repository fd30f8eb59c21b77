"""The fields of --query-gpu and --query-compute-apps, one entry each, and their CSV."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .device import Device, Process, mib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

NOT_AVAILABLE = "[N/A]"
DEPRECATED = "[Requested functionality has been deprecated]"  # nvidia-smi's since release 570
_ADDRESSING = {0: "None", 1: "HMM", 2: "ATS"}  # nvmlDeviceAddressingModeType_t
_ADA = 8  # nvmlDeviceArchitecture_t
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


def _yes(value: int | None) -> str | None:
    return None if value is None else ("Yes" if value else "No")


def _class(value: int | None) -> str | None:
    return None if value is None else f"0x{value:x}"


def _member(value: Any, name: str) -> int | None:
    return None if value is None else int(getattr(value, name))


def _named(words: Mapping[int, str], value: int | None) -> str | None:
    return None if value is None else words.get(value)


def _average_power(device: Device) -> str | None:
    """Of Ada and later NVML's one reading is the average of a second."""
    return _watts(device.ask("PowerUsage")) if (device.ask("Architecture") or 0) >= _ADA else None


def _state(value: int | None) -> str | None:
    return None if value is None else f"P{value}"


_COUNTERS = ("volatile", "aggregate")  # nvmlEccCounterType_t
# nvmlMemoryLocation_t; a device has those of its generation.
_LOCATIONS = {"device_memory": 2, "dram": 2, "register_file": 3, "l1_cache": 0, "l2_cache": 1}
_LOCATIONS |= {"texture_memory": 4, "cbu": 6, "sram": 7}
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
# Fields of nvidia-smi (release 580) that guests have no value for, by their units: scripts ask for them.
_SMOOTHING = "power_smoothing"
_NOT_TOLD = {
    "": (
        *("driver_model.current", "driver_model.pending", "gom.current", "gom.pending", "gpu_recovery_action"),
        *("inforom.img", "inforom.oem", "inforom.ecc", "inforom.pwr", "inforom.checksum_validation"),
        *("pcie.link.gen.hostmax", "hostname", "vgpu_driver_capability.heterogenous_multivGPU"),
        *("dramEncryption.mode.current", "dramEncryption.mode.pending"),
        *("retired_pages.single_bit_ecc.count", "retired_pages.double_bit.count", "retired_pages.pending"),
        *("remapped_rows.correctable_inactive", "remapped_rows.uncorrectable_inactive"),
        *(f"ecc.errors.uncorrected.{word}.sram.{part}" for word in _COUNTERS for part in ("parity", "secded")),
        *(f"ecc.errors.uncorrected.aggregate.sram.{part}" for part in ("l2", "sm", "mcu", "pcie", "other")),
        "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
        *(f"fabric.{part}" for part in ("state", "status", "cliqueId", "clusterUuid")),
        *(f"fabric.health.{part}" for part in ("summary", "bandwidth", "route_recovery_in_progress")),
        *(f"fabric.health.{part}" for part in ("route_unhealthy", "access_timeout_recovery")),
        *(f"fabric.health.{part}" for part in ("incorrect_configuration", "partition_assigned")),
        *(f"platform.{part}" for part in ("chassis_serial_number", "slot_number", "tray_index", "host_id")),
        *(f"platform.{part}" for part in ("peer_type", "module_id", "gpu_fabric_guid")),
        *(f"vgpu_device_capability.{part}" for part in ("fractional_multiVgpu", "homogeneous_placements")),
        *(f"vgpu_device_capability.heterogeneous_timeSlice_{part}" for part in ("profile", "sizes")),
        *("vgpu_device_capability.mig_timeSlicing", "vgpu_device_capability.mig_timeSlicing_mode"),
        f"{_SMOOTHING}.delayed_power_smoothing_supported",
        *(f"{_SMOOTHING}.{of}.primary_floor_act_window_multiplier" for of in ("curr_profile", "admin_override")),
        *(f"{_SMOOTHING}.{of}.primary_floor_tar_window_multiplier" for of in ("curr_profile", "admin_override")),
    ),
    "W": (
        "power.draw.instant",
        *(f"module.power.{part}" for part in ("draw.average", "draw.instant", "limit", "default_limit")),
        *("module.power.min_limit", "module.power.max_limit", "module.enforced.power.limit"),
        *(f"{_SMOOTHING}.{part}" for part in ("primary_power_floor", "secondary_power_floor")),
        *(f"{_SMOOTHING}.min_primary_floor_activation_{part}" for part in ("offset", "point")),
        *(f"{_SMOOTHING}.{of}.secondary_power_floor" for of in ("curr_profile", "admin_override")),
        *(f"{_SMOOTHING}.{of}.primary_floor_act_offset" for of in ("curr_profile", "admin_override")),
    ),
    "ms": (f"{_SMOOTHING}.window_multiplier",),
    "us": tuple(
        f"clocks_event_reasons_counters.{name}"
        for name in (
            *("sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown"),
            "hw_power_brake_slowdown",
        )
    ),
    "MiB": tuple(f"protected_memory.{word}" for word in ("total", "used", "free")),
}
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
    "pci.baseClass": Field(lambda d: _class(d.pci_class(0))),
    "pci.subClass": Field(lambda d: _class(d.pci_class(1))),
    "pci.device_id": Field(lambda d: _hexadecimal(d.pci("pciDeviceId"), 8)),
    "pci.sub_device_id": Field(lambda d: _hexadecimal(d.pci("pciSubSystemId"), 8)),
    "pcie.link.gen.current": Field(lambda d: d.ask("CurrPcieLinkGeneration")),
    "pcie.link.gen.max": Field(lambda d: d.ask("MaxPcieLinkGeneration")),
    "pcie.link.width.current": Field(lambda d: d.ask("CurrPcieLinkWidth")),
    "pcie.link.width.max": Field(lambda d: d.ask("MaxPcieLinkWidth")),
    "display_mode": Field(lambda d: DEPRECATED),
    "display_attached": Field(lambda d: _yes(d.ask("DisplayMode"))),
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
    "temperature.gpu.tlimit": Field(lambda d: d.ask("MarginTemperature")),
    "temperature.memory": Field(lambda d: None),
    "power.draw": Field(lambda d: _watts(d.ask("PowerUsage")), "W"),
    "power.draw.average": Field(_average_power, "W"),
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
    "addressing_mode": Field(lambda d: _named(_ADDRESSING, d.ask("AddressingMode"))),
    "gsp.mode.current": Field(lambda d: _enabled(d.item("GspFirmwareMode", 0))),
    "gsp.mode.default": Field(lambda d: _enabled(d.item("GspFirmwareMode", 1))),
    "c2c.mode": Field(lambda d: _enabled(_member(d.ask("C2cModeInfoV"), "isC2cEnabled"))),
    "remapped_rows.correctable": Field(lambda d: d.item("RemappedRows", 0)),
    "remapped_rows.uncorrectable": Field(lambda d: d.item("RemappedRows", 1)),
    "remapped_rows.pending": Field(lambda d: _yes(d.item("RemappedRows", 2))),
    "remapped_rows.failure": Field(lambda d: _yes(d.item("RemappedRows", 3))),
    **{
        f"remapped_rows.histogram.{name}": Field(lambda d, name=name: _member(d.ask("RowRemapperHistogram"), name))  # type: ignore[misc]
        for name in ("max", "high", "partial", "low", "none")
    },
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
    **{
        f"ecc.errors.{kind}.{counter}.{where}": Field(
            lambda d, a=at, b=of, c=place: d.ask("MemoryErrorCounter", a, b, c)  # type: ignore[misc]
        )
        for at, kind in enumerate(("corrected", "uncorrected"))  # nvmlMemoryErrorType_t
        for of, counter in enumerate(_COUNTERS)
        for where, place in _LOCATIONS.items()
    },
    **{name: Field(lambda d: None, unit) for unit, names in _NOT_TOLD.items() for name in names},
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
    "inforom.image": "inforom.img",
    "inforom.power": "inforom.pwr",
    "gpu_operation_mode.current": "gom.current",
    "gpu_operation_mode.pending": "gom.pending",
    "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count",
    "remapped_rows.sbe": "remapped_rows.correctable",
    "remapped_rows.dbe": "remapped_rows.uncorrectable",
    "gpu.power.draw.average": "power.draw.average",
    "gpu.power.draw.instant": "power.draw.instant",
    "gpu.power.requested_limit": "power.limit",
    "gpu.power.current_limit": "enforced.power.limit",
    "gpu.power.default_limit": "power.default_limit",
    "gpu.power.min_limit": "power.min_limit",
    "gpu.power.max_limit": "power.max_limit",
    "module.power.requested_limit": "module.power.limit",
    "module.power.current_limit": "module.enforced.power.limit",
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
