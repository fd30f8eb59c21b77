"""Checks of an inventory against protocol/wire.md, by the sender and by the receiver."""

from __future__ import annotations

from typing import Any

_ROW = {
    "name": str,
    "uuid": bytes,
    "pci": str,
    "memory_nbytes": int,
    "attributes": bytes,
    "limits": bytes,
    "context_nbytes": int,
}


class InventoryError(Exception):
    """The inventory cannot be used; the text is for the operator."""


def check_inventory(fields: dict[str, Any]) -> None:
    """Raise InventoryError unless `fields` has the shape wire.md gives it."""
    if type(fields.get("driver_version")) is not int or not isinstance(fields.get("driver_release"), str):
        raise InventoryError("inventory: driver_version or driver_release is missing")
    if fields.get("backend") not in ("simulator", "cuda"):
        raise InventoryError("inventory: backend is neither simulator nor cuda")
    devices = fields.get("devices")
    if not isinstance(devices, list) or not 0 < len(devices) <= 64:
        raise InventoryError("inventory: 1 to 64 devices are needed")
    for index, device in enumerate(devices):
        if not isinstance(device, dict):
            raise InventoryError(f"inventory: device {index} is not a map")
        for key, kind in _ROW.items():
            if not isinstance(device.get(key), kind):
                raise InventoryError(f"inventory: device {index}: {key} is not {kind.__name__}")
        if len(device["uuid"]) != 16 or len(device["attributes"]) % 4 or len(device["limits"]) % 8:
            raise InventoryError(f"inventory: device {index}: uuid, attributes or limits has a wrong length")
        if len(device.get("peers", b"")) % 20:
            raise InventoryError(f"inventory: device {index}: peers has a wrong length")
        for key in ("priorities", "granularity"):
            pair = device.get(key)
            if not (isinstance(pair, list | tuple) and len(pair) == 2 and all(type(n) is int for n in pair)):
                raise InventoryError(f"inventory: device {index}: {key} is not a pair of integers")
