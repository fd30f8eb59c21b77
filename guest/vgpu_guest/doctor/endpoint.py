"""Where a program's vgpud is, found as the guest libraries find it (shim/connect/vgs_endpoint.c)."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from ..guest_conf import NBYTES_CAP
from ..guest_conf import parse as parse_configuration
from .process import read, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIGURATION = "/etc/vgpu/guest.conf"
SOCKET = "/run/vgpu/vgpud.sock"
STUB_ENDPOINT = "vsock://2:7070"
_DEVICES = "/sys/bus/pci/devices"


def find(environment: Mapping[str, str]) -> dict[str, Any]:
    """In the program's place: `url` and `source` of its endpoint ("" when none), `token` and `shared_memory`.

    `configuration`: "read", "absent", or why the configuration file could not be read; `problems` are the lines of the
    file that the libraries ignore.
    """
    path = environment.get("VGPU_GUEST_CONF", CONFIGURATION)
    found: dict[str, Any] = {"url": "", "source": "", "token": "", "shared_memory": "", "problems": []}
    found |= {"configuration": "absent", "configuration_file": path}
    try:
        configuration = parse_configuration(read(path, NBYTES_CAP).decode(errors="replace"))
        found["configuration"] = "read"
        found["url"] = configuration.values.get("endpoint", "")
        found["source"] = path if found["url"] else ""
        found["token"] = configuration.values.get("token", "")
        found["shared_memory"] = configuration.values.get("shared_memory", "")
        found["problems"] = configuration.as_json()["problems"]
    except FileNotFoundError:
        pass
    except OSError as error:
        found["configuration"] = error.strerror or "cannot be read"
    found["token"] = environment.get("VGPU_TOKEN", found["token"])
    if environment.get("VGPU_ENDPOINT"):
        found["url"], found["source"] = environment["VGPU_ENDPOINT"], "VGPU_ENDPOINT"
    if not found["url"] and _is_socket(SOCKET):
        found["url"], found["source"] = f"unix:{SOCKET}", "the default socket"
    if not found["url"] and stub_devices():
        found["url"], found["source"] = STUB_ENDPOINT, f"the stub device {stub_devices()[0]}"
    return found


def stub_devices() -> list[str]:
    """PCI addresses of the stubs in a virtual machine (shim/connect/vgs_stub.c); none without sysfs.

    A stub has NVIDIA's vendor id and a display class, and no driver is bound to it.
    """
    try:
        names = sorted(os.listdir(_DEVICES))
    except OSError:
        return []
    return [
        name
        for name in names
        if read_text(f"{_DEVICES}/{name}/vendor", 16).startswith("0x10de")
        and read_text(f"{_DEVICES}/{name}/class", 16).startswith("0x03")
        and not os.path.lexists(f"{_DEVICES}/{name}/driver")
    ]


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
