"""A guest's PCI addresses: in a VM with PCI stubs of the GPUs (docs/vm.md), each device has its stub's address."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from vgpusim.profiles.attribute import DeviceAttribute

if TYPE_CHECKING:
    from collections.abc import Sequence


def relocate(inventory: dict[str, Any], addresses: Sequence[str]) -> dict[str, Any]:
    """An inventory (wire.md) whose first devices have these addresses, in order; the others keep the host's.

    Args:
        inventory: Not changed.
        addresses: `dddd:bb:dd.f`, already checked as a hello's `pci`. Those beyond the number of devices are ignored.
    """
    if not addresses:
        return inventory
    devices = list(inventory["devices"])
    for index, address in enumerate(addresses[: len(devices)]):
        devices[index] = _at(devices[index], address)
    return inventory | {"devices": devices}


def _at(device: dict[str, Any], address: str) -> dict[str, Any]:
    domain, bus, rest = address.split(":")
    attributes = list(struct.unpack(f"<{len(device['attributes']) // 4}i", device["attributes"]))
    for attribute, text in (
        (DeviceAttribute.PCI_DOMAIN_ID, domain),
        (DeviceAttribute.PCI_BUS_ID, bus),
        (DeviceAttribute.PCI_DEVICE_ID, rest.partition(".")[0]),
    ):
        if attribute < len(attributes):
            attributes[attribute] = int(text, 16)
    return device | {"pci": address, "attributes": struct.pack(f"<{len(attributes)}i", *attributes)}
