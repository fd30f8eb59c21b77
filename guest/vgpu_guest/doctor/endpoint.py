"""Where a program's vgpud is, found as the guest libraries find it (shim/connect/vgs_endpoint.c)."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
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


class EndpointError(ValueError):
    """The text is no endpoint; what is wrong with it, for the user."""


@dataclass(frozen=True)
class Address:
    """An endpoint taken apart: what socket.connect wants."""

    url: str
    family: int
    address: Any
    hybrid_port: int = 0  # of a VM whose monitor has the unix socket

    @property
    def kind(self) -> str:
        """unix, tcp, vsock or hybrid-vsock."""
        return self.url.partition(":")[0]


def find(environment: Mapping[str, str]) -> dict[str, Any]:
    """In the program's place: `url` and `source` of its endpoint ("" when none), `token` and `shared_memory`.

    `configuration` says what became of the configuration file: read, absent, or why it could not be read; `problems`
    are its lines that count for nothing.
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
    """PCI addresses of the stubs that a virtual machine is given (shim/connect/vgs_stub.c), none without sysfs.

    A stub is NVIDIA's, of a display class, and has no driver.
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


def parse(url: str) -> Address:
    """Raises EndpointError for what the library would not take either."""
    if url.startswith("unix:"):
        return Address(url, socket.AF_UNIX, _check_path(url, url[5:]))
    if url.startswith("hybrid-vsock:"):
        path, colon, port = url[13:].rpartition(":")
        if colon and port.isdigit() and 0 < int(port) < 2**32 - 1:
            return Address(url, socket.AF_UNIX, _check_path(url, path), int(port))
    scheme, _, rest = url.partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme == "vsock" and colon and host.isdigit() and port.isdigit() and max(int(host), int(port)) < 2**32:
        return Address(url, socket.AF_VSOCK, (int(host), int(port)))
    if scheme == "tcp" and colon and port.isdigit() and 0 < int(port) < 65536:
        return _parse_tcp(url, host, int(port))
    raise EndpointError(f"{url!r} is none of unix:PATH, tcp://HOST:PORT, vsock://CID:PORT, hybrid-vsock:PATH:PORT")


def _check_path(url: str, path: str) -> str:
    if not path or len(os.fsencode(path)) >= 108:
        raise EndpointError(f"{url!r}: a socket's path has 1 to 107 bytes")
    return path


def _parse_tcp(url: str, host: str, port: int) -> Address:
    try:
        if host.startswith("[") and host.endswith("]"):
            socket.inet_pton(socket.AF_INET6, host[1:-1])
            return Address(url, socket.AF_INET6, (host[1:-1], port))
        host = "127.0.0.1" if host == "localhost" else host
        socket.inet_pton(socket.AF_INET, host)
        return Address(url, socket.AF_INET, (host, port))
    except OSError:
        raise EndpointError(f"{url!r}: the host must be a numeric address or localhost") from None
