"""Device profiles: a card's answers as data, and the inventory built from them.

A profile is one TOML file under profiles/. It may extend another (its keys win). Files whose names begin with an
underscore are not cards: _common.toml is the base of all, _simulator.toml switches off what the simulator cannot do.
Every attribute and limit must have a value once the files are merged: there are no implicit answers.
"""

import re
import struct
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, TypedDict

from .attribute import ATTRIBUTE_COUNT, ContextLimit, DeviceAttribute

DEFAULT = "h100"
"""Compute capability 9.0 accepts nearly all PTX in circulation: sm_75 is most of it, sm_80 and sm_90 the newer."""

MAX_DEVICES = 64

# By CUdevice_P2PAttribute: rank of the link, access, native atomics, arrays, only part of the atomics.
_PEER, _NO_PEER = struct.pack("<5i", 0, 1, 1, 1, 0), struct.pack("<5i", 0, 0, 0, 0, 0)

DRIVER_RELEASE = "580.159.04"

INVALID_ATTRIBUTE = -(2**31)  # INT32_MIN: the driver answers INVALID_VALUE
UNSUPPORTED_LIMIT = 2**64 - 1  # UINT64_MAX: the driver answers UNSUPPORTED_LIMIT

# Set from the device's identity and place on the bus, never by a profile.
_DERIVED = frozenset(
    {
        DeviceAttribute.PCI_BUS_ID,
        DeviceAttribute.PCI_DEVICE_ID,
        DeviceAttribute.PCI_DOMAIN_ID,
        DeviceAttribute.COMPUTE_CAPABILITY_MAJOR,
        DeviceAttribute.COMPUTE_CAPABILITY_MINOR,
        DeviceAttribute.MULTI_GPU_BOARD_GROUP_ID,
        DeviceAttribute.GPU_PCI_DEVICE_ID,
        DeviceAttribute.GPU_PCI_SUBSYSTEM_ID,
    }
)

_NAMESPACE = uuid.UUID("5d0c0a54-5be0-4f6a-9a57-4a1d3cf0a9b1")  # vgpu's namespace: device UUIDs are uuid5 under it
_PROFILE_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_FIRST_BUS = 0x01  # device i sits alone on bus _FIRST_BUS + i


class ProfileError(ValueError):
    """A profile, or a list of them, that cannot be used; the message names the file and the key."""


class DeviceInventory(TypedDict):
    """The DEVICE map of protocol/wire.md."""

    name: str
    uuid: bytes
    pci: str
    memory_nbytes: int
    attributes: bytes
    limits: bytes
    priorities: list[int]
    granularity: list[int]
    context_nbytes: int
    peers: bytes


class Inventory(TypedDict):
    """The INVENTORY map of protocol/wire.md."""

    driver_version: int
    driver_release: str
    backend: str
    devices: list[DeviceInventory]


@dataclass(frozen=True)
class Profile:
    """One kind of card. `None` as a value: INVALID_VALUE (attributes), UNSUPPORTED_LIMIT (limits)."""

    key: str
    name: str
    compute_capability: tuple[int, int]
    memory_nbytes: int
    context_nbytes: int
    driver_version: int  # 13000 = CUDA 13.0
    pci_device: tuple[int, int]  # vendor, device
    pci_subsystem: tuple[int, int]
    priorities: tuple[int, int]
    granularity: tuple[int, int]
    attributes: Mapping[DeviceAttribute, int | None]  # all but the derived ones
    limits: Mapping[ContextLimit, int | None]

    def inventory(self, index: int, host_seed: str) -> DeviceInventory:
        """The card as the index-th device of a host.

        Args:
            index: Position in the inventory, 0..MAX_DEVICES-1; decides the PCI address.
            host_seed: Tells hosts apart (such as the machine id). The UUID is a function of it, profile and index.
        """
        if not 0 <= index < MAX_DEVICES:
            raise ProfileError(f"device index {index} is not in 0..{MAX_DEVICES - 1}")
        bus = _FIRST_BUS + index
        values: dict[DeviceAttribute, int | None] = dict(self.attributes)
        values[DeviceAttribute.PCI_DOMAIN_ID] = 0
        values[DeviceAttribute.PCI_BUS_ID] = bus
        values[DeviceAttribute.PCI_DEVICE_ID] = 0
        values[DeviceAttribute.MULTI_GPU_BOARD_GROUP_ID] = index
        values[DeviceAttribute.COMPUTE_CAPABILITY_MAJOR], values[DeviceAttribute.COMPUTE_CAPABILITY_MINOR] = (
            self.compute_capability
        )
        values[DeviceAttribute.GPU_PCI_DEVICE_ID] = _combined_pci_id(self.pci_device)
        values[DeviceAttribute.GPU_PCI_SUBSYSTEM_ID] = _combined_pci_id(self.pci_subsystem)

        attributes = [INVALID_ATTRIBUTE] * ATTRIBUTE_COUNT
        for attribute, value in values.items():
            if value is not None:
                attributes[attribute] = value
        limits = [UNSUPPORTED_LIMIT if (value := self.limits[limit]) is None else value for limit in ContextLimit]
        return {
            "name": self.name,
            "uuid": uuid.uuid5(_NAMESPACE, f"{host_seed}/{self.key}/{index}").bytes,
            "pci": f"0000:{bus:02x}:00.0",
            "memory_nbytes": self.memory_nbytes,
            "attributes": struct.pack(f"<{len(attributes)}i", *attributes),
            "limits": struct.pack(f"<{len(limits)}Q", *limits),
            "priorities": list(self.priorities),
            "granularity": list(self.granularity),
            "context_nbytes": self.context_nbytes,
            "peers": b"",
        }


def available() -> list[str]:
    """Names that load() knows, sorted."""
    names = (entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))
    return sorted(name for name in names if not name.startswith("_"))


@cache
def load(name: str, *, as_simulated: bool = True) -> Profile:
    """Read the profile `name`.

    Args:
        name: One of available().
        as_simulated: Switch off what the simulator cannot do; False gives the real card's values.
    Raises:
        ProfileError: unknown name, or a file with a wrong, missing or unknown key.
    """
    if not _PROFILE_NAME.fullmatch(name) or name not in available():
        raise ProfileError(f"no profile {name!r}; there are: {', '.join(available())}")
    merged = _merge(name)
    if as_simulated:
        _lay_over(merged)
    return _profile(name, merged)


def parse_gpus(text: str) -> list[Profile]:
    """The devices of a `--gpu` option: profile names, each with an optional count, as in "h100:2,t4".

    Raises:
        ProfileError: unknown name, count that is not a positive number, none or more than MAX_DEVICES devices.
    """
    profiles: list[Profile] = []
    for part in text.split(","):
        name, colon, count_text = part.strip().partition(":")
        if colon and not re.fullmatch(r"[1-9][0-9]{0,2}", count_text):
            raise ProfileError(f"{part.strip()!r}: the count must be a number from 1 to {MAX_DEVICES}")
        profiles += [load(name)] * (int(count_text) if colon else 1)
        if len(profiles) > MAX_DEVICES:
            raise ProfileError(f"{text!r} asks for more than {MAX_DEVICES} devices")
    return profiles


def inventory(profiles: Sequence[Profile], host_seed: str) -> Inventory:
    """The INVENTORY map of protocol/wire.md for simulated devices, in the order given: one driver serves them all, the
    newest that one of them needs. Devices of one kind reach each other's memory."""
    devices = [profile.inventory(index, host_seed) for index, profile in enumerate(profiles)]
    for own, device in zip(profiles, devices, strict=True):
        device["peers"] = b"".join(
            _PEER if other is not device and profile.key == own.key else _NO_PEER
            for profile, other in zip(profiles, devices, strict=True)
        )
    return {
        "driver_version": max((profile.driver_version for profile in profiles), default=0),
        "driver_release": DRIVER_RELEASE,
        "backend": "simulator",
        "devices": devices,
    }


def _combined_pci_id(identity: tuple[int, int]) -> int:
    """Device above vendor in one i32, as attributes 139 and 140 give them (device ids from 0x8000 on: negative)."""
    vendor, device = identity
    return int(struct.unpack("<i", struct.pack("<HH", vendor, device))[0])


def _folder() -> Any:
    return resources.files(__package__)


_KEYS = {"extends", "name", "compute_capability", "memory_nbytes", "context_nbytes", "pci_device", "pci_subsystem"} | {
    "driver_version", "priorities", "granularity", "attributes", "limits",
}  # fmt: skip


def _read(name: str) -> dict[str, Any]:
    file = _folder() / f"{name}.toml"
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{name}.toml: {error}") from error
    for key in table:
        if key not in _KEYS:
            raise ProfileError(f"{name}.toml: unknown key {key}")
    for section in ("attributes", "limits"):
        if not isinstance(table.setdefault(section, {}), dict):
            raise ProfileError(f"{name}.toml: {section} must be a table")
    return table


def _merge(name: str) -> dict[str, Any]:
    """The file `name` over what it extends."""
    chain: list[tuple[str, dict[str, Any]]] = []
    following: object = name
    while following is not None:
        if not isinstance(following, str) or not re.fullmatch(r"_?[a-z0-9][a-z0-9.-]*", following):
            raise ProfileError(f"{chain[-1][0]}.toml: extends must name a profile")
        if any(following == seen for seen, _ in chain):
            raise ProfileError(f"{chain[-1][0]}.toml: extends: {following} extends itself")
        chain.append((following, _read(following)))
        following = chain[-1][1].pop("extends", None)
    merged: dict[str, Any] = {"attributes": {}, "limits": {}}
    for file_name, table in reversed(chain):
        merged["attributes"] |= _values(file_name, "attributes", table.pop("attributes"))
        merged["limits"] |= _values(file_name, "limits", table.pop("limits"))
        merged |= table
    return merged


def _lay_over(merged: dict[str, Any]) -> None:
    """Apply _simulator.toml."""
    overlay = _read("_simulator")
    for section in ("attributes", "limits"):
        plain: dict[str, Any] = {}
        for key, entry in overlay[section].items():
            if not isinstance(entry, dict) or entry.keys() != {"value", "reason"} or not entry["reason"]:
                raise ProfileError(f"_simulator.toml: {section}.{key} must be {{ value = ..., reason = ... }}")
            plain[key] = entry["value"]
        merged[section] |= _values("_simulator", section, plain)


def _values(file_name: str, section: str, table: Mapping[str, Any]) -> dict[Any, int | None]:
    """Names to ids, values checked for their range."""
    kind: type[DeviceAttribute] | type[ContextLimit]
    if section == "attributes":
        kind, absent, lowest, highest = DeviceAttribute, "invalid", -(2**31) + 1, 2**31 - 1
    else:
        kind, absent, lowest, highest = ContextLimit, "unsupported", 0, 2**64 - 2
    values: dict[Any, int | None] = {}
    for key, value in table.items():
        where = f"{file_name}.toml: {section}.{key}"
        if key != key.lower() or key.upper() not in kind.__members__:
            raise ProfileError(f"{where}: the driver knows no such name")
        member = kind[key.upper()]
        if member in _DERIVED and section == "attributes":
            raise ProfileError(f"{where}: follows from the device's identity, a profile cannot set it")
        if value == absent:
            values[member] = None
        elif type(value) is int and lowest <= value <= highest:
            values[member] = value
        else:
            raise ProfileError(f"{where}: {value!r} is neither {absent!r} nor an integer in {lowest}..{highest}")
    return values


def _profile(name: str, merged: Mapping[str, Any]) -> Profile:
    where = f"{name}.toml"
    attributes, limits = merged["attributes"], merged["limits"]
    for attribute in DeviceAttribute:
        if attribute not in _DERIVED and attribute not in attributes:
            raise ProfileError(f"{where}: attributes.{attribute.name.lower()} has no value")
    for limit in ContextLimit:
        if limit not in limits:
            raise ProfileError(f"{where}: limits.{limit.name.lower()} has no value")
    title = merged.get("name")
    if not isinstance(title, str) or not re.fullmatch(r"[ -~]{1,95}", title):
        raise ProfileError(f"{where}: name must be 1 to 95 printable ASCII characters")
    return Profile(
        key=name,
        name=title,
        compute_capability=_pair(where, merged, "compute_capability", 0, 99),
        memory_nbytes=_integer(where, merged, "memory_nbytes", 1 << 20, 1 << 44),
        context_nbytes=_integer(where, merged, "context_nbytes", 0, 1 << 32),
        driver_version=_integer(where, merged, "driver_version", 12000, 99990),
        pci_device=_pci_id(where, merged, "pci_device"),
        pci_subsystem=_pci_id(where, merged, "pci_subsystem"),
        priorities=_pair(where, merged, "priorities", -100, 0),
        granularity=_pair(where, merged, "granularity", 4096, 1 << 30),
        attributes=attributes,
        limits=limits,
    )


def _integer(where: str, table: Mapping[str, Any], key: str, lowest: int, highest: int) -> int:
    value = table.get(key)
    if type(value) is not int or not lowest <= value <= highest:
        raise ProfileError(f"{where}: {key} must be an integer in {lowest}..{highest}, is {value!r}")
    return value


def _pair(where: str, table: Mapping[str, Any], key: str, lowest: int, highest: int) -> tuple[int, int]:
    value = table.get(key)
    if not isinstance(value, list) or len(value) != 2:
        raise ProfileError(f"{where}: {key} must be a list of two integers, is {value!r}")
    first, second = (_integer(where, {key: item}, key, lowest, highest) for item in value)
    return first, second


def _pci_id(where: str, table: Mapping[str, Any], key: str) -> tuple[int, int]:
    value = table.get(key)
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}", value):
        raise ProfileError(f'{where}: {key} must be like "10de:2331", is {value!r}')
    return int(value[:4], 16), int(value[5:], 16)
