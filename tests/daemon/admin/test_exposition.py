"""Metrics that NVIDIA's DCGM exporter also provides have the same names and meanings here."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from vgpud.admin.exposition import DCGM_COUNTERS, DCGM_GAUGES, Page
from vgpud.metrics import Metrics
from vgpud.nvml.call import CALLS, NvmlResult
from vgpud.nvml.service import NvmlService
from vgpud.proto import Answer

# etc/default-counters.csv of NVIDIA's dcgm-exporter at 00d6d34: each metric's help.
EXPORTERS = {
    "DCGM_FI_DEV_SM_CLOCK": "SM clock frequency (in MHz).",
    "DCGM_FI_DEV_MEM_CLOCK": "Memory clock frequency (in MHz).",
    "DCGM_FI_DEV_MEMORY_TEMP": "Memory temperature (in C).",
    "DCGM_FI_DEV_GPU_TEMP": "GPU temperature (in C).",
    "DCGM_FI_DEV_POWER_USAGE": "Power draw (in W).",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "Total energy consumption since boot (in mJ).",
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": "Total number of bytes transmitted through PCIe TX (in KB) via NVML.",
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": "Total number of bytes received through PCIe RX (in KB) via NVML.",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "Total number of PCIe retries.",
    "DCGM_FI_DEV_GPU_UTIL": "GPU utilization (in %).",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "Memory utilization (in %).",
    "DCGM_FI_DEV_ENC_UTIL": "Encoder utilization (in %).",
    "DCGM_FI_DEV_DEC_UTIL": "Decoder utilization (in %).",
    "DCGM_FI_DEV_XID_ERRORS": "Value of the last XID error encountered.",
    "DCGM_FI_DEV_FB_FREE": "Framebuffer memory free (in MiB).",
    "DCGM_FI_DEV_FB_USED": "Framebuffer memory used (in MiB).",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "Total number of NVLink bandwidth counters for all lanes",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": "vGPU License status",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "Number of remapped rows for uncorrectable errors",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "Number of remapped rows for correctable errors",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "Whether remapping of rows has failed",
}
# Metrics of the exporter that vgpud does not provide; docs/operations.md says why.
MISSING = {
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT",
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
}


def field(number: int, scope: int, at_us: int, value: int, result: int = 0) -> bytes:
    """nvmlFieldValue_t."""
    return struct.pack("<IIqqIIQ", number, scope, at_us, 0, 3, result, value)


ALL_LINKS = 0xFFFFFFFF
READINGS: dict[tuple[str, tuple[int, ...]], list[Any]] = {
    ("nvmlDeviceGetMemoryInfo_v2", (0x02000028,)): [
        struct.pack("<I4xQQQQ", 0x02000028, *(n << 20 for n in (9, 1, 5, 3)))
    ],
    ("nvmlDeviceGetClockInfo", (1,)): [1980],
    ("nvmlDeviceGetClockInfo", (2,)): [2619],
    ("nvmlDeviceGetTemperature", (0,)): [41],
    ("nvmlDeviceGetPowerUsage", ()): [123_450],
    ("nvmlDeviceGetTotalEnergyConsumption", ()): [987_654],
    ("nvmlDeviceGetUtilizationRates", ()): [struct.pack("<II", 97, 12)],
    ("nvmlDeviceGetEncoderUtilization", ()): [3, 167_000],
    ("nvmlDeviceGetDecoderUtilization", ()): [4, 167_000],
    ("nvmlDeviceGetPcieReplayCounter", ()): [5],
    ("nvmlDeviceGetRemappedRows", ()): [6, 7, 0, 1],
    # Only the value's lower half is written.
    ("nvmlDeviceGetFieldValues", (82, 0)): [field(82, 0, 0, 0xDEAD << 32 | 57)],
    ("nvmlDeviceGetFieldValues", (138, ALL_LINKS)): [field(138, ALL_LINKS, 1_000_000, 7_000)],
    ("nvmlDeviceGetFieldValues", (139, ALL_LINKS)): [field(139, ALL_LINKS, 1_000_001, 3_000)],
}


class Card:
    """Stand-in for the host's NVML; it answers from READINGS."""

    def snapshot(self, *_: Any) -> list[Any]:
        return []

    async def live(self, _index: int, call: Any, given: tuple[int, ...], _guest: Any) -> Answer:
        value = READINGS.get((call.name, given))
        return Answer(NvmlResult.NOT_SUPPORTED) if value is None else Answer(NvmlResult.SUCCESS, value)


async def gauges(backend: str) -> dict[str, float]:
    inventory: Any = SimpleNamespace(fields={"backend": backend, "devices": [{}]})
    return await NvmlService(inventory, Card()).gauges(0)


@pytest.mark.asyncio
async def test_names_and_meanings_are_the_exporters() -> None:
    device = {"uuid": "1-2", "name": "NVIDIA H200", "memory_nbytes": 2 << 30, "used_nbytes": None}
    page = (
        Page(
            Metrics().snapshot(),
            [device | {"in_service": True, "gauges": await gauges("cuda") | {"DCGM_FI_DEV_XID_ERRORS": 31}}],
            [],
            {},
            {},
        )
        .text()
        .decode()
    )
    families = {
        family.name: family for family in text_string_to_metric_families(page) if not family.name.startswith("vgpu_")
    }
    assert {name: family.documentation for name, family in families.items()}.items() <= EXPORTERS.items()
    assert families.keys() == EXPORTERS.keys() - MISSING
    counters = {name for name, family in families.items() if family.type == "unknown"}
    assert counters == DCGM_COUNTERS.keys()
    assert {families[name].type for name in families.keys() - counters} == {"gauge"}
    assert families.keys() == {*DCGM_GAUGES, *DCGM_COUNTERS}
    values = {name: family.samples[0].value for name, family in families.items()}
    assert values == {
        "DCGM_FI_DEV_SM_CLOCK": 1980,
        "DCGM_FI_DEV_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_GPU_TEMP": 41,
        "DCGM_FI_DEV_MEMORY_TEMP": 57,
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 0,
        "DCGM_FI_DEV_POWER_USAGE": 123.45,
        "DCGM_FI_DEV_GPU_UTIL": 97,
        "DCGM_FI_DEV_MEM_COPY_UTIL": 12,
        "DCGM_FI_DEV_ENC_UTIL": 3,
        "DCGM_FI_DEV_DEC_UTIL": 4,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 987_654,
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 5,
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 6,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 7,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 1,
        "DCGM_FI_DEV_XID_ERRORS": 31,
        "DCGM_FI_DEV_FB_FREE": 5,
        "DCGM_FI_DEV_FB_USED": 3,
    }
    labels = families["DCGM_FI_DEV_GPU_UTIL"].samples[0].labels
    assert {"gpu", "UUID", "modelName", "Hostname"} == labels.keys()


@pytest.mark.asyncio
async def test_links_are_read_as_dcgm_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean since the reading before, of both directions (ReadAndCacheNvLinkBandwidth in DCGM's cache manager)."""
    inventory: Any = SimpleNamespace(fields={"backend": "cuda", "devices": [{}]})
    service = NvmlService(inventory, Card())
    name = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
    assert (await service.gauges(0))[name] == 0
    for number, at_us, kib in ((138, 3_000_001, 507_000), (139, 3_000_000, 603_000)):
        monkeypatch.setitem(
            READINGS, ("nvmlDeviceGetFieldValues", (number, ALL_LINKS)), [field(number, ALL_LINKS, at_us, kib)]
        )
    assert (await service.gauges(0))[name] == 550
    assert (await service.gauges(0))[name] == 0, "the same reading"
    refused = [field(139, ALL_LINKS, 0, 0, NvmlResult.NOT_SUPPORTED)]
    monkeypatch.setitem(READINGS, ("nvmlDeviceGetFieldValues", (139, ALL_LINKS)), refused)
    monkeypatch.setitem(READINGS, ("nvmlDeviceGetFieldValues", (82, 0)), [field(82, 0, 0, 255)])
    left = await service.gauges(0)
    assert name not in left
    assert "DCGM_FI_DEV_MEMORY_TEMP" not in left


@pytest.mark.asyncio
async def test_a_simulated_device_claims_nothing() -> None:
    assert await gauges("simulator") == {}
    assert all(function in CALLS for function, _given in READINGS)
