"""Memory that a virtual machine shares with its host, found as the library finds it (shim/channel/vgs_region.c)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .process import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEVICES = "/sys/bus/pci/devices"
_IVSHMEM = ("0x1af4", "0x1110")


def look(environment: Mapping[str, str], configured: str) -> dict[str, str]:
    """Runs in the program's place: `path` of the memory that the program can map, or `why` there is none.

    `configured` is the key `shared_memory` of guest.conf.
    """
    wanted = environment.get("VGPU_SHARED_MEMORY", configured)
    if wanted == "off":
        return {"why": "shared_memory is off"}
    paths = [wanted] if wanted else devices()
    why = "this machine has no ivshmem device"
    for path in paths:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY))
        except OSError as error:
            why = f"{path}: {error.strerror}"
        else:
            return {"path": path}
    return {"why": why}


def devices() -> list[str]:
    """The file of each ivshmem device's memory (BAR 2)."""
    try:
        names = sorted(os.listdir(_DEVICES))
    except OSError:
        return []
    return [
        f"{_DEVICES}/{name}/resource2"
        for name in names
        if tuple(read_text(f"{_DEVICES}/{name}/{file}", 16).strip() for file in ("vendor", "device")) == _IVSHMEM
    ]
