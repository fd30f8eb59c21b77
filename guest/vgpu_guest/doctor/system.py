"""A description of this system, for a report."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re

from .endpoint import stub_devices
from .process import read_text


def describe_system() -> dict[str, object]:
    """Versions and kernel features; nothing that identifies the machine or its users."""
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', read_text("/etc/os-release"), re.MULTILINE))
    try:
        version = importlib.metadata.version("vgpu")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return {
        "vgpu": version,
        "os": release.get("PRETTY_NAME", ""),
        "kernel": platform.release(),
        "glibc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "is_root": os.geteuid() == 0,
        "vsock": os.path.exists("/dev/vsock"),
        "apparmor": read_text("/sys/module/apparmor/parameters/enabled", 16).strip() == "Y",
        "systemd": os.path.isdir("/run/systemd/system"),
        "stub_devices": stub_devices(),
    }
