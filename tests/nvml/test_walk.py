"""Every getter of nvidia-ml-py gives the outcome of a real H100, NOT_SUPPORTED, or a listed difference."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.nvml.walk import outcome, recorded

RECORD = Path(__file__).with_name("data") / "oracle-h100-sxm.txt"

NOT_SUPPORTED = "error 3"

# Functions that must succeed for any card, because programs find their device with them.
REQUIRED = {
    "nvmlDeviceGetCount",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetName",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetUUID",
    "nvmlDeviceIsMigDeviceHandle",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
}

# The profile is of a PCIe card, the record of an SXM card; answers about the machine differ as well.
DIFFERENT: dict[str, Any] = {
    "nvmlDeviceGetCount": "2",
    "nvmlDeviceGetName": '"NVIDIA H100 PCIe"',
    "nvmlDeviceGetNumGpuCores": "14592",
    "nvmlDeviceGetMaxClockInfo": "1755",
    "nvmlDeviceGetMemoryInfo": '{"total": 84943044608, "free": 84943044608, "used": 0}',
    "nvmlDeviceGetSupportedEventTypes": "11",  # Xid and ECC errors, which a simulated device never has
}
PCI = (
    '{"busIdLegacy": "0000:01:00.0", "domain": 0, "bus": 1, "device": 0, "pciDeviceId": 590418142,'
    ' "pciSubSystemId": 371593438, "busId": "00000000:01:00.0"}'
)
DIFFERENT |= {"nvmlDeviceGetPciInfo": PCI, "nvmlDeviceGetPciInfo_v3": PCI}


@pytest.fixture
def device(guest: ctypes.CDLL) -> Any:
    """A device of nvidia-ml-py, which uses the library that `guest` loaded, because the soname is the same."""
    pynvml.nvmlInit()
    try:
        yield pynvml.nvmlDeviceGetHandleByIndex(0)
    finally:
        pynvml.nvmlShutdown()


def test_every_recorded_call(device: Any) -> None:
    rows = recorded(RECORD)
    assert len(rows) > 300
    wrong, answered = [], set()
    for name, arguments, then in rows:
        now = outcome(name, arguments, device)
        expected = " ".join(then.split()[:2]) if then.startswith("error") else DIFFERENT.get(name, then)
        if not now.startswith("error"):
            answered.add(name)
        if name == "nvmlDeviceGetUUID":
            assert len(now) == len(then)
        elif now not in (expected, NOT_SUPPORTED):
            wrong.append((name, arguments, expected, now))
    assert wrong == []
    assert answered >= REQUIRED


@pytest.mark.parametrize(
    "name",
    [
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetFanSpeed",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceGetPerformanceState",
        "nvmlDeviceGetTotalEnergyConsumption",
    ],
)
def test_a_sensor_nobody_has_is_not_a_zero(device: Any, name: str) -> None:
    function = getattr(pynvml, name)
    code = function.__code__
    given = [0] * (code.co_argcount - 1 - len(function.__defaults__ or ()))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        function(device, *given)
