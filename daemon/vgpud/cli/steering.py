"""Variables that `vgpu run` sets so that programs pass PTX to a simulated device instead of machine code that they
assemble. Most libraries leave the choice to the driver. Those that assemble on their own, or compare the device with a
list of architectures, have a variable for it; this file names each with its reason. Variables that the user has set are
kept.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vgpu_guest.cudart import find_libraries
from vgpu_guest.libraries import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..endpoint import Endpoint

Capability = tuple[int, int]

COMPILERS = ("libnvrtc.so.13", "libnvrtc.so.12")
UNVERSIONED = "libnvrtc.so"
LINKERS = ("libnvJitLink.so.13", "libnvJitLink.so.12")
"""Libraries in front of NVIDIA's, in the folder `compiler` beside libcuda (shim/compiler). They must be preloaded:
programs are bound to NVIDIA's by an RPATH, or look whether one is loaded already. A linker only where the program has
NVIDIA's: numba and cuda-core hand PTX to the driver's linker where there is none.
"""

STANDIN = Path(__file__).resolve().parent / "standin"
"""Laid out as a CUDA toolkit: bin/ptxas; python/ and jax/ are for PYTHONPATH."""
JAX_LOOKS_FOR = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg")
"""Without one of these files JAX computes on the CPU (jax/_src/hardware_utils.py of 0.10)."""

_COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_HOPPER: Capability = (9, 0)
_NEWEST_KNOWN: Capability = (12, 1)  # no compiler supports architectures above it
_TIMEOUT_S = 10.0
_XLA_FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_command_buffer="


@dataclass(frozen=True)
class Setting:
    """An environment variable, its value, and why it is set."""

    name: str
    value: str
    reason: str


def simulated_capabilities(endpoint: Endpoint, token: str | None = None) -> list[Capability]:
    """Compute capabilities of the endpoint's devices if they are simulated; empty if they are not or the endpoint does
    not answer."""
    from ..proto import RemoteProtocolError
    from .client import Client, RefusedError

    with contextlib.suppress(OSError, RefusedError, RemoteProtocolError, struct.error, KeyError, TypeError):
        with Client(endpoint, token=token, timeout_s=_TIMEOUT_S) as client:
            inventory = client.hello().inventory
        if inventory["backend"] == "simulator":
            return [_capability(device["attributes"]) for device in inventory["devices"]]
    return []


def _capability(attributes: bytes) -> Capability:
    major, minor = (struct.unpack_from("<i", attributes, 4 * number)[0] for number in _COMPUTE_CAPABILITY)
    return major, minor


def settings(capabilities: Sequence[Capability]) -> list[Setting]:
    """The settings for programs that see these simulated devices; none if there are no such devices."""
    if not capabilities:
        return []
    ptxas = str(STANDIN / "bin/ptxas")
    forward = max(capabilities) > _NEWEST_KNOWN
    made = [
        Setting("CUPY_COMPILE_WITH_PTX", "1", "CuPy: have NVRTC make PTX, not machine code"),
        Setting("TRITON_PTXAS_PATH", ptxas, "Triton: a ptxas that leaves PTX as it is"),
        Setting("TRITON_PTXAS_BLACKWELL_PATH", ptxas, "Triton: the same for newer devices"),
        Setting("CUDA_ROOT", str(STANDIN), "JAX: where its XLA looks for ptxas"),
        Setting("XLA_FLAGS", _XLA_FLAGS, "JAX, TensorFlow: no autotuning, which times a simulator; no command buffers"),
        Setting("NCCL_PROTO", "LL", "NCCL: the protocol that its kernels have inside, without calls through pointers"),
        Setting("NCCL_MAX_NCHANNELS", "2", "NCCL: blocks that wait for each other, as many as a host runs at once"),
        Setting("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1", "JAX: CUPTI answers no version without a card's driver"),
    ]
    if max(capabilities) >= _HOPPER and not forward:
        made.append(Setting("TRITON_OVERRIDE_ARCH", "sm89", "Triton: instructions that the simulator has"))
    if forward:
        made.append(Setting("TRITON_DEFAULT_BACKEND", "vgpu", "Triton: compile for what its LLVM knows"))
        made.append(Setting("NUMBA_FORCE_CUDA_CC", "8.9", "numba-cuda: a compute capability that it knows"))
    else:
        made.append(Setting("CUPY_ACCELERATORS", "", "CuPy: its compiled reductions have no PTX for these devices"))
    return made


def missing(environment: Mapping[str, str], capabilities: Sequence[Capability]) -> list[Setting]:
    """The settings whose variables the user has not set."""
    return [setting for setting in settings(capabilities) if setting.name not in environment]


def apply(
    environment: dict[str, str],
    capabilities: Sequence[Capability],
    program: str = "python3",
    library_directory: Path = LIBRARIES,
) -> list[Setting]:
    """Set the missing variables, and extend the paths on which programs find the stand-ins.

    Args:
        environment: The program's, changed in place.
        capabilities: Compute capabilities of the simulated devices.
        program: The program that is run, as one types it in a shell.
        library_directory: Where libcuda is.

    The stand-ins of NVRTC and nvJitLink are preloaded, unless VGPU_COMPILER=0. That of ptxas is first on PATH; Triton's
    backend is last on PYTHONPATH, where it hides no other package and only Triton reads it.
    """
    made = missing(environment, capabilities)
    if any(setting.name == "TRITON_DEFAULT_BACKEND" for setting in made):
        path = ":".join(filter(None, (environment.get("PYTHONPATH"), str(STANDIN / "python"))))
        made.append(Setting("PYTHONPATH", path, "Triton: the backend that TRITON_DEFAULT_BACKEND names"))
    if capabilities:
        path = ":".join(filter(None, (str(STANDIN / "bin"), environment.get("PATH"))))
        made.append(Setting("PATH", path, "TensorFlow: its XLA finds ptxas there"))
    if capabilities and environment.get("VGPU_COMPILER") != "0":
        found = _libraries(program, environment)
        folder = library_directory / "compiler"
        linkers = [soname for soname in LINKERS if soname in found]
        files = [str(folder / name) for name in (*COMPILERS, *linkers) if (folder / name).exists()]
        path = ":".join(filter(None, (environment.get("LD_PRELOAD"), *files)))
        if files:
            made.append(Setting("LD_PRELOAD", path, "NVRTC, nvJitLink: PTX where machine code is asked for"))
        made += _unversioned(folder / "unversioned", environment, found)
    environment.update({setting.name: setting.value for setting in made})
    return made


def show_jax_the_device(environment: dict[str, str]) -> list[Setting]:
    """If no device file that JAX looks for exists, as in every guest, extend PYTHONPATH by a plugin that makes JAX ask
    the driver. The plugin is last on the path, where it hides no other package and only JAX reads it.
    """
    if any(Path(file).exists() for file in JAX_LOOKS_FOR):
        return []
    path = ":".join(filter(None, (environment.get("PYTHONPATH"), str(STANDIN / "jax"))))
    environment["PYTHONPATH"] = path
    return [Setting("PYTHONPATH", path, "JAX: a GPU without a device file")]


def _unversioned(folder: Path, environment: Mapping[str, str], found: Mapping[str, Path]) -> list[Setting]:
    """A libnvrtc.so for programs that open it by this name, if NVIDIA's is installed, but not by this name."""
    compilers = [found[soname] for soname in COMPILERS if soname in found]
    if not compilers or UNVERSIONED in found or not folder.is_dir():
        return []
    path = ":".join(filter(None, (environment.get("LD_LIBRARY_PATH"), str(folder))))
    return [
        Setting("LD_LIBRARY_PATH", path, "hashcat: NVRTC by its name without a version"),
        Setting("VGPU_NVRTC_FALLBACK", str(compilers[0]), "hashcat: the NVRTC of Python's packages"),
    ]


def _libraries(program: str, environment: Mapping[str, str]) -> dict[str, Path]:
    """NVIDIA's compilers and linkers that the program has; if it is not Python (a shell, say), also those of the
    Python on PATH."""
    is_python = Path(program).name.startswith("python")
    candidates = [program] if is_python else [program, "python3", "python"]
    found: dict[str, Path] = {}
    for name in reversed(candidates):
        files = find_libraries(name, environment, (*LINKERS, *COMPILERS, UNVERSIONED))
        found |= {soname: file for soname, file in files.items() if file is not None}
    return found
