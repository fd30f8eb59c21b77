"""The paths of everything that `vgpu install` creates. Every path is relative to a root: `/`, another system's tree, or
a user's home.

Nothing here writes. The doctor and packages read these names, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The driver release that vgpu's libraries report; file names contain it as NVIDIA's do (same value in shim/build.py).
RELEASE = "580.159.04"
# Each library is installed as STEM.so.RELEASE, with links STEM.so.1 and STEM.so.
STEMS = ("libcuda", "libnvidia-ml")
PROBE = "vgpu-probe"  # beside the libraries: the doctor's child that opens a library and calls cuInit
PROFILERS = {"12": "libcupti.so.12", "13": "libcupti.so.13"}
RUNTIMES = {"11": "libcudart.so.11.0", "12": "libcudart.so.12", "13": "libcudart.so.13"}

_UNIT = re.compile(r"[A-Za-z0-9:_.\\-]{1,200}(@[A-Za-z0-9:_.\\-]{0,100})?\.service")


class LayoutError(ValueError):
    """A name that cannot be part of an installation."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of an installation's parts. Paths have no leading slash."""

    libraries: str
    manifest: str
    loader: str | None  # ld.so.conf.d file for libcuda and NVML, sorted before all others
    loader_runtimes: str | None  # sorted last: vgpu's libcudart is the last resort
    loader_profilers: str | None  # sorted last: vgpu's libcupti
    endpoint: str  # the file that names the endpoint
    smi: str | None = None  # `vgpu smi` under the name that installers look for

    @property
    def runtimes(self) -> str:
        """Folder of vgpu's libcudarts, with one folder per major version."""
        return f"{self.libraries}/cudart"

    def profiler(self, major: str) -> str:
        """Folder of the libcupti of a major version."""
        return f"{self.libraries}/cupti/{major}"

    def runtime(self, major: str) -> str:
        """Folder of the libcudart of a major version."""
        return f"{self.runtimes}/{major}"


SYSTEM = Layout(
    libraries="usr/lib/vgpu",
    manifest="var/lib/vgpu/manifest.json",
    loader="etc/ld.so.conf.d/000-vgpu.conf",
    loader_runtimes="etc/ld.so.conf.d/zzz-vgpu-cudart.conf",
    loader_profilers="etc/ld.so.conf.d/zzz-vgpu-cupti.conf",
    endpoint="etc/vgpu/guest.conf",
    smi="usr/local/bin/nvidia-smi",
)
# Relative to the user's home. The loader has no per-user configuration: the environment names the libraries.
USER = Layout(
    libraries=".local/lib/vgpu",
    manifest=".local/state/vgpu/manifest.json",
    loader=None,
    loader_runtimes=None,
    loader_profilers=None,
    endpoint=".config/environment.d/50-vgpu.conf",
)
# For shells, which do not read environment.d: `. ~/.local/lib/vgpu/env.sh`
USER_SHELL = f"{USER.libraries}/env.sh"


def unit_name(name: str) -> str:
    """The full name of a unit: both `ollama` and `ollama.service` give `ollama.service`.

    Raises:
        LayoutError: not the name of a service unit.
    """
    full = name if name.endswith(".service") else f"{name}.service"
    if not _UNIT.fullmatch(full) or full.startswith("."):
        raise LayoutError(f"{name!r} is not the name of a service")
    return full


def drop_in(unit: str) -> str:
    """The path of vgpu's drop-in for a unit; its name sorts late, because the last assignment of a variable wins."""
    return f"etc/systemd/system/{unit_name(unit)}.d/zz-vgpu.conf"
