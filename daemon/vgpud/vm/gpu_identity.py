"""The identity of a VM's stubs: the cards that vgpud shows, from their inventory and NVML."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from vgpusim.profiles.attribute import DeviceAttribute

from ..nvml.call import CALLS, NvmlResult
from ..nvml.simulator import SimulatorNvml
from .pci_config import PciIdentity

if TYPE_CHECKING:
    from vgpud.cli.client import Client
    from vgpud.devices.inventory import Inventory

_GENERATION, _WIDTH = "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth"


def of_profiles(inventory: Inventory) -> list[PciIdentity]:
    """The identities of simulated devices."""
    nvml = SimulatorNvml(inventory.fields, inventory.gpus)

    def link(index: int) -> tuple[int, int]:
        (_, generation), *_rest = nvml.snapshot(index, CALLS[_GENERATION])
        (_, width), *_rest = nvml.snapshot(index, CALLS[_WIDTH])
        return (generation.value[0], width.value[0]) if generation.result == NvmlResult.SUCCESS else (0, 0)

    return [_identity(device, link(index)) for index, device in enumerate(inventory.fields["devices"])]


def of_daemon(client: Client) -> list[PciIdentity]:
    """The identities of the devices that a vgpud shows. Raises what Client's methods raise; ValueError."""
    devices = client.hello().inventory["devices"]
    identities = []
    for index, device in enumerate(devices):
        answers = [client.nvml(name, index) for name in (_GENERATION, _WIDTH)]
        told = all(answer.result == NvmlResult.SUCCESS for answer in answers)
        identities.append(_identity(device, (answers[0].value[0], answers[1].value[0]) if told else (0, 0)))
    return identities


def _identity(device: dict[str, Any], link: tuple[int, int]) -> PciIdentity:
    attributes = struct.unpack(f"<{len(device['attributes']) // 4}i", device["attributes"])
    known = [attributes[i] for i in (DeviceAttribute.GPU_PCI_DEVICE_ID, DeviceAttribute.GPU_PCI_SUBSYSTEM_ID)]
    if any(value == -(2**31) for value in known):
        raise ValueError(f"{device['name']}: the driver does not tell its PCI ids")
    card, subsystem = (value & 0xFFFFFFFF for value in known)
    return PciIdentity(card & 0xFFFF, card >> 16, subsystem & 0xFFFF, subsystem >> 16, link=link)
