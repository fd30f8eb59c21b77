"""A device's identity, with every backend: from the inventory, so that NVML and libcuda cannot disagree."""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Any

from vgpusim.profiles.attribute import DeviceAttribute

from ..proto import Answer
from .call import CALLS, Call, NvmlResult, pack_struct

if TYPE_CHECKING:
    from collections.abc import Sequence

Given = tuple[int, ...] | None  # the integers of a question; None: any integers
Known = dict[str, dict[Given, Answer]]  # by function, then by integers given

NOT_SUPPORTED = Answer(NvmlResult.NOT_SUPPORTED)
_DISPLAY_CONTROLLER, _3D_CONTROLLER = 0x03, 0x02  # PCI class and subclass of a card without outputs


def answer(*value: Any) -> Answer:
    """Success, with the function's results."""
    return Answer(NvmlResult.SUCCESS, list(value))


def version(call: Call) -> int:
    """The version word of a function's struct."""
    return next(param.versions[0] for param in call.params if param.versions)


def attributes_of(device: dict[str, Any]) -> tuple[int, ...]:
    """The driver's attributes by number."""
    return struct.unpack(f"<{len(device['attributes']) // 4}i", device["attributes"])


def capability_of(attributes: Sequence[int]) -> tuple[int, int]:
    """Compute capability."""
    return (
        attributes[DeviceAttribute.COMPUTE_CAPABILITY_MAJOR],
        attributes[DeviceAttribute.COMPUTE_CAPABILITY_MINOR],
    )


# Answers that depend on a device's PCI address, which for a guest is the address of its stub (pci_address.py).
PCI_CALLS = ("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfoExt")


def identity(device: dict[str, Any]) -> Known:
    """Answers about one device of an inventory (wire.md, DEVICE) that hold for every backend."""
    attributes = attributes_of(device)
    extended = version(CALLS["nvmlDeviceGetPciInfoExt"])
    once: dict[str, tuple[Any, ...]] = {
        "nvmlDeviceGetName": (device["name"],),
        "nvmlDeviceGetUUID": (f"GPU-{uuid.UUID(bytes=device['uuid'])}",),
        "nvmlDeviceGetPciInfo": (_pci_info_before_v3("nvmlPciInfo_v1_t", device["pci"], attributes),),
        "nvmlDeviceGetPciInfo_v2": (_pci_info_before_v3("nvmlPciInfo_v2_t", device["pci"], attributes),),
        "nvmlDeviceGetPciInfo_v3": (_pci_info(device["pci"], attributes),),
        "nvmlDeviceGetCudaComputeCapability": capability_of(attributes),
        "nvmlDeviceIsMigDeviceHandle": (0,),
    }
    known: Known = {name: {None: answer(*value)} for name, value in once.items()}
    known["nvmlDeviceGetPciInfoExt"] = {
        (extended,): answer(_pci_info_extended(device["pci"], attributes, extended)),
    }
    return known


def _pci_fields(pci: str, attributes: Sequence[int]) -> dict[str, int | bytes]:
    """The fields common to both PCI structs."""
    domain, bus, rest = pci.split(":")
    slot = rest.partition(".")[0]
    return {
        "domain": int(domain, 16),
        "bus": int(bus, 16),
        "device": int(slot, 16),
        "pciDeviceId": attributes[DeviceAttribute.GPU_PCI_DEVICE_ID] & 0xFFFFFFFF,
        "pciSubSystemId": attributes[DeviceAttribute.GPU_PCI_SUBSYSTEM_ID] & 0xFFFFFFFF,
        "busId": f"{domain:>08}:{bus}:{slot}.0".upper().encode(),
    }


def _pci_info(pci: str, attributes: Sequence[int]) -> bytes:
    return pack_struct("nvmlPciInfo_t", busIdLegacy=pci.upper().encode(), **_pci_fields(pci, attributes))


def _pci_info_before_v3(kind: str, pci: str, attributes: Sequence[int]) -> bytes:
    """The older structs: `busId` holds the short address, and version 1 has no subsystem."""
    fields = _pci_fields(pci, attributes) | {"busId": pci.upper().encode()}
    if kind == "nvmlPciInfo_v1_t":
        del fields["pciSubSystemId"]
    return pack_struct(kind, **fields)


def _pci_info_extended(pci: str, attributes: Sequence[int], version: int) -> bytes:
    kind = {"version": version, "baseClass": _DISPLAY_CONTROLLER, "subClass": _3D_CONTROLLER}
    return pack_struct("nvmlPciInfoExt_t", **kind, **_pci_fields(pci, attributes))
