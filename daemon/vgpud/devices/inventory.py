"""The devices that clients see, checked against protocol/wire.md before any client connects."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpusim.profiles import profile
from vgpusim.profiles.attribute import DeviceAttribute

from . import host_gpu
from .inventory_check import InventoryError, check_inventory

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHARING = (
    DeviceAttribute.IPC_EVENT_SUPPORTED,
    DeviceAttribute.HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    DeviceAttribute.MEMPOOL_SUPPORTED_HANDLE_TYPES,
)


@dataclass(frozen=True, slots=True)
class Inventory:
    """`fields`: the INVENTORY of wire.md. `gpus`: the configuration's list of simulated devices."""

    fields: dict[str, Any]
    gpus: str
    host_seed: str

    @property
    def device_count(self) -> int:
        """How many devices a client sees."""
        return len(self.fields["devices"])


def host_seed() -> str:
    """The seed of this host's simulated UUIDs, which makes them unique and stable: derived from the machine's id, never
    equal to it."""
    try:
        identity = Path("/etc/machine-id").read_text().strip()
    except OSError:
        identity = ""
    return hashlib.sha256(b"vgpu host seed\0" + identity.encode()).hexdigest()[:32]


def without_ipc(fields: dict[str, Any]) -> dict[str, Any]:
    """The INVENTORY for a client that shares nothing with others; the given one is not changed."""
    devices = []
    for device in fields["devices"]:
        packed = device["attributes"]
        for attribute in _SHARING:
            at = 4 * attribute
            packed = packed[:at] + bytes(4) + packed[at + 4 :] if at < len(packed) else packed
        devices.append(device | {"attributes": packed})
    return fields | {"devices": devices}


def _simulated(gpus: str, seed: str) -> dict[str, Any]:
    return dict(profile.inventory(profile.parse_gpus(gpus), seed))


def load_inventory(backend: str, gpus: str, libcuda: str, mig: Sequence[str] = ()) -> Inventory:
    """The inventory: simulated devices `gpus`, or the real ones of `libcuda`, and after them those of the MIG instances
    `mig` that are there. Raises InventoryError.
    """
    seed = host_seed()
    try:
        fields = host_gpu.probe(libcuda) if backend == "cuda" else _simulated(gpus, seed)
        for name in mig:
            with contextlib.suppress(host_gpu.HostGpuError, ValueError):  # named by config.check_gpus()
                fields["devices"] = [*fields["devices"], host_gpu.probe_mig(libcuda, name)]
    except host_gpu.HostGpuError as error:
        raise InventoryError(f"libcuda = {libcuda!r}: {error}") from error
    except ValueError as error:
        raise InventoryError(f"gpus = {gpus!r}: {error}") from error
    check_inventory(fields)
    return Inventory(fields, gpus, seed)


__all__ = ["Inventory", "InventoryError", "check_inventory", "host_seed", "load_inventory", "without_ipc"]
