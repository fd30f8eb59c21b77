"""Which of the host's devices a session sees, in the host's order and renumbered from 0. None stands for all."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_PEER_NBYTES = 20  # of `peers`, for each device of the inventory (wire.md)
Selection = tuple[int, ...]  # the devices' numbers on the host, ascending


def find(fields: dict[str, Any], names: Sequence[int | str]) -> Selection:
    """The devices of an INVENTORY (wire.md) that are named by number or UUID (`GPU-...`, `MIG-...`).

    Raises:
        ValueError: one is not there, or is named twice, or a MIG instance is not the only one.
    """
    uuids = {name_of(device).lower(): i for i, device in enumerate(fields["devices"])}
    count, found = len(whole(fields) or fields["devices"]), set()
    for name in names:
        number = name if isinstance(name, int) else uuids.get(name.lower(), -1)
        if number >= count and isinstance(name, str):
            if len(names) > 1:  # CUDA sets up one
                raise ValueError(f"{name} is a MIG instance, with which a program has no other device")
            return (number,)
        if not 0 <= number < count:
            if isinstance(name, str) and name.startswith("MIG-"):
                raise ValueError(
                    f"there is no MIG instance {name}: `nvidia-smi -L` lists them, `nvidia-smi mig -cgi PROFILE -C` "
                    "makes one; `vgpu restart` looks again"
                )
            raise ValueError(f"there is no device {name}: there {'is 1' if count == 1 else f'are {count}'}, from 0 on")
        if number in found:
            raise ValueError(f"device {number} is named twice")
        found.add(number)
    return tuple(sorted(found))


def whole(fields: dict[str, Any]) -> Selection | None:
    """The devices that a session sees whose share names none: not the MIG instances. None: all."""
    if not any(device.get("mig") for device in fields["devices"]):
        return None
    return tuple(number for number, device in enumerate(fields["devices"]) if not device.get("mig"))


def only(fields: dict[str, Any], seen: Selection | None) -> dict[str, Any]:
    """The INVENTORY of a session that sees these devices; the given one is not changed."""
    if seen is None:
        return fields
    devices = [fields["devices"][number] for number in seen]
    return fields | {"devices": [device | {"peers": _peers(device.get("peers", b""), seen)} for device in devices]}


def visible_devices(fields: dict[str, Any], seen: Selection | None) -> tuple[tuple[str, str], ...]:
    """The variables with which a real driver sets up these devices alone, in this order. Simulated ones need none."""
    if seen is None or fields["backend"] != "cuda":
        return ()
    return (("CUDA_VISIBLE_DEVICES", ",".join(name_of(fields["devices"][number]) for number in seen)),)


def name_of(device: dict[str, Any]) -> str:
    """What NVIDIA's tools call a device of an INVENTORY."""
    return f"{'MIG' if device.get('mig') else 'GPU'}-{uuid.UUID(bytes=device['uuid'])}"


def _peers(packed: bytes, seen: Selection) -> bytes:
    return b"".join(packed[_PEER_NBYTES * number : _PEER_NBYTES * (number + 1)] for number in seen)


def number_on_host(device: int, seen: Selection | None) -> int:
    """The host's number of a session's device; -1: it has no such device."""
    if seen is None:
        return device
    return seen[device] if 0 <= device < len(seen) else -1


def by_host(memory: Sequence[int], seen: Selection | None, count: int) -> tuple[int, ...]:
    """Bytes on each of a session's devices as bytes on each of the host's `count`."""
    if seen is None:
        return tuple(memory)
    known = dict(zip(seen, memory, strict=False))
    return tuple(known.get(number, 0) for number in range(count))
