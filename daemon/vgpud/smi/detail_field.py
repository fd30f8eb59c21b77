"""Values that -q shows and that no field of --query-gpu has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .device import MIB_NBYTES
from .field import GPU, Field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .device import Device

# nvmlBrandType_t, nvmlDeviceArchitecture_t, nvmlGpuVirtualizationMode_t.
_BRANDS = {0: "Unknown", 1: "Quadro", 2: "Tesla", 3: "NVS", 4: "Grid", 5: "GeForce", 6: "Titan"}
_BRANDS |= {12: "Quadro RTX", 13: "NVIDIA RTX", 14: "NVIDIA", 15: "GeForce RTX", 16: "Titan RTX"}
_ARCHITECTURES = {2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace"}
_ARCHITECTURES |= {9: "Hopper", 10: "Blackwell"}
_VIRTUALIZATION = ("None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA")
_HISTOGRAM = ("max", "high", "partial", "low", "none")  # the members of nvmlRowRemapperHistogramValues_t


def _word(words: Mapping[int, str], value: int | None) -> str | None:
    return None if value is None else words.get(value)


def _bar1(device: Device, member: str) -> int | None:
    info = device.ask("BAR1MemoryInfo")
    return None if info is None else int(getattr(info, member)) // MIB_NBYTES


def _banks(device: Device, member: str) -> int | None:
    histogram = device.ask("RowRemapperHistogram")
    return None if histogram is None else int(getattr(histogram, member))


def _hexadecimal(value: int | None) -> str | None:
    return None if value is None else f"0x{value:x}"


def _yes(value: int | None) -> str | None:
    return None if value is None else ("Yes" if value else "No")


DETAIL: Mapping[str, Field[Device]] = {
    "none": Field(lambda d: None),
    "no_devices": Field(lambda d: "None"),
    "brand": Field(lambda d: _word(_BRANDS, d.ask("Brand"))),
    "architecture": Field(lambda d: _word(_ARCHITECTURES, d.ask("Architecture"))),
    "minor_number": Field(lambda d: d.ask("MinorNumber")),
    "multigpu_board": Field(lambda d: _yes(d.ask("MultiGpuBoard"))),
    "board_id": Field(lambda d: _hexadecimal(d.ask("BoardId"))),
    "board_part_number": Field(lambda d: d.ask("BoardPartNumber")),
    "virtualization": Field(lambda d: _word(dict(enumerate(_VIRTUALIZATION)), d.ask("VirtualizationMode"))),
    "gsp_version": Field(lambda d: d.ask("GspFirmwareVersion")),
    "replays": Field(lambda d: d.ask("PcieReplayCounter")),
    "tx": Field(lambda d: d.ask("PcieThroughput", 0), "KB/s"),
    "rx": Field(lambda d: d.ask("PcieThroughput", 1), "KB/s"),
    "display_clocks": Field(lambda d: _display_clocks(d.ask("CurrentClocksThrottleReasons"))),
    "bar1.total": Field(lambda d: _bar1(d, "bar1Total"), "MiB"),
    "bar1.used": Field(lambda d: _bar1(d, "bar1Used"), "MiB"),
    "bar1.free": Field(lambda d: _bar1(d, "bar1Free"), "MiB"),
    "gpu_temp": Field(lambda d: GPU["temperature.gpu"].value(d), "C"),
    "gpu_temp_tlimit": Field(lambda d: GPU["temperature.gpu.tlimit"].value(d), "C"),
    "clocks.max.video": Field(lambda d: d.ask("MaxClockInfo", 3), "MHz"),
    "boost_clock": Field(lambda d: d.ask("MaxCustomerBoostClock", 0), "MHz"),
    **{
        f"banks.{name}": Field(lambda d, name=name: _banks(d, name), "bank(s)")  # type: ignore[misc]
        for name in _HISTOGRAM
    },
}


def _display_clocks(mask: int | None) -> str | None:
    return None if mask is None else ("Active" if mask & 0x100 else "Not Active")
