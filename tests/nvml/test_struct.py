"""The declared structs have the memory layout of nvidia-ml-py's structs."""

from __future__ import annotations

import ctypes

import pynvml
import pytest

from protocol.gen.nvml import SCALARS, Struct, load

# Names of nvidia-ml-py's classes that are not `c_` plus the name of the struct.
CLASSES = {
    "nvmlPciInfo_t": "nvmlPciInfo_t",
    "nvmlPciInfoExt_t": "nvmlPciInfoExt_v1_t",
    "nvmlRowRemapperHistogramValues_t": "c_nvmlRowRemapperHistogramValues",
    "nvmlTemperature_t": "c_nvmlTemperature_v1_t",
    "nvmlMarginTemperature_t": "c_nvmlMarginTemperature_v1_t",
    "nvmlDeviceAddressingMode_t": "c_nvmlDeviceAddressingMode_t",
    "nvmlFieldValue_t": "c_nvmlFieldValue_t",
    "nvmlViolationTime_t": "c_nvmlViolationTime_t",
    "nvmlUUID_t": "c_nvmlUUID_t",
    "nvmlConfComputeSystemState_t": "c_nvmlConfComputeSystemState_t",
    "nvmlSystemConfComputeSettings_t": "c_nvmlSystemConfComputeSettings_v1_t",
    "nvmlHwbcEntry_t": "c_nvmlHwbcEntry_t",
    "nvmlClkMonStatus_t": "nvmlClkMonStatus_t",
}
OLDER = {
    "nvmlProcessInfo_v1_t": ("<IxxxxQ", 16),
    "nvmlPciInfo_v1_t": ("<16sIIII", 32),
    "nvmlPciInfo_v2_t": ("<16sIIIII", 36),
    "vgpuPerformanceStates_t": ("<16I", 64),
    "vgpuDeviceEvent_t": ("<QQQIIIxxxx", 40),
}
STRUCTS = load().structs


def offsets(declared: Struct) -> list[int]:
    found, offset = [], 0
    for _, scalar, count in declared.fields:
        nbytes = SCALARS[scalar][2]
        offset += -offset % nbytes
        found.append(offset)
        offset += nbytes * (count or 1)
    return found


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_layout(name: str) -> None:
    declared = STRUCTS[name]
    if name in OLDER:  # nvidia-ml-py has only newer versions of these structs, or none
        assert declared.layout() == OLDER[name]
        return
    theirs = getattr(pynvml, CLASSES.get(name) or f"c_{name}")
    assert declared.layout()[1] == ctypes.sizeof(theirs)
    assert offsets(declared) == [getattr(theirs, field[0]).offset for field in theirs._fields_]
