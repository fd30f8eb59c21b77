"""The devices clients are told about, checked against protocol/wire.md before anybody sees them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpusim.profiles import profile
from vgpusim.profiles.attribute import DeviceAttribute

from . import host_gpu

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
    """No usable inventory; the text is fit for the operator."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """`fields` is wire.md's INVENTORY; `gpus` is the configuration's text it came from."""

    fields: dict[str, Any]
    gpus: str
    host_seed: str

    @property
    def device_count(self) -> int:
        """How many devices a client sees."""
        return len(self.fields["devices"])


def host_seed() -> str:
    """What makes this host's simulated UUIDs its own and stable: derived from, never equal to, the machine's id."""
    try:
        identity = Path("/etc/machine-id").read_text().strip()
    except OSError:
        identity = ""
    return hashlib.sha256(b"vgpu host seed\0" + identity.encode()).hexdigest()[:32]


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
        for key in ("priorities", "granularity"):
            pair = device.get(key)
            if not (isinstance(pair, list | tuple) and len(pair) == 2 and all(type(n) is int for n in pair)):
                raise InventoryError(f"inventory: device {index}: {key} is not a pair of integers")


def without_ipc(fields: dict[str, Any]) -> dict[str, Any]:
    """The INVENTORY for a client that can share no events with others; the given one is not changed."""
    at = 4 * DeviceAttribute.IPC_EVENT_SUPPORTED
    devices = []
    for device in fields["devices"]:
        packed = device["attributes"]
        devices.append(
            device | {"attributes": packed[:at] + bytes(4) + packed[at + 4 :] if at < len(packed) else packed}
        )
    return fields | {"devices": devices}


def _simulated(gpus: str, seed: str) -> dict[str, Any]:
    return dict(profile.inventory(profile.parse_gpus(gpus), seed))


def load_inventory(backend: str, gpus: str, libcuda: str) -> Inventory:
    """The inventory: simulated devices `gpus`, or the real ones of `libcuda`. Raises InventoryError."""
    seed = host_seed()
    try:
        fields = host_gpu.probe(libcuda) if backend == "cuda" else _simulated(gpus, seed)
    except host_gpu.HostGpuError as error:
        raise InventoryError(f"libcuda = {libcuda!r}: {error}") from error
    except ValueError as error:
        raise InventoryError(f"gpus = {gpus!r}: {error}") from error
    check_inventory(fields)
    return Inventory(fields, gpus, seed)
