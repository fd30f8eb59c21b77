"""The guest libraries that a program gets from `vgpu run` and from the commands that watch what its kernels do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpu_guest.cudart import FOLDER, FOLDERS, find_runtimes, library_folders_beside
from vgpu_guest.cupti import FOLDER as CUPTI_FOLDER
from vgpu_guest.cupti import FOLDERS as CUPTI_FOLDERS
from vgpu_guest.cupti import find_profilers
from vgpu_guest.doctor.endpoint import find
from vgpu_guest.libraries import LIBRARIES
from vgpu_guest.preload import resolve_program, winning_rpath

from ..endpoint import EndpointError, parse_endpoint
from . import steering
from .fail import fail, say
from .status import ExitStatus
from .torch_overlay import is_wanted, put_on_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Libraries:
    """The choice of guest libraries for a program.

    Args:
        folder: Holds libcuda.so.1, and the folders of the other libraries.
        preload: Preload libcuda; None: only if an RPATH leads to another libcuda.
        cudart: Whose libcudart: "auto", "vgpu", "program", as `vgpu run --cudart` has them.
        cupti: Use vgpu's libcupti in place of NVIDIA's.
        torch: Put vgpu-torch on PYTHONPATH.
        verbose: Print which libraries and variables are set, and why.
    """

    folder: Path = LIBRARIES
    preload: bool | None = None
    cudart: str = "auto"
    cupti: bool = True
    torch: bool = True
    verbose: bool = False

    @property
    def driver(self) -> Path:
        """The libcuda."""
        return self.folder / "libcuda.so.1"

    def check(self) -> None:
        """End the command where there is no libcuda."""
        if not self.driver.exists():
            fail(f"{self.driver} is missing: this build has no guest library (run `make shim`)", ExitStatus.SOFTWARE)


def give_libraries(environment: dict[str, str], program: str, endpoint: Endpoint | None, libraries: Libraries) -> None:
    """Set the variables with which `program` finds vgpud and the guest libraries: driver, runtime, profiler, PyTorch's
    operators, compilers.

    Args:
        environment: The program's, changed in place. On entry, what the loader reads is as in this process.
        endpoint: Where vgpud listens; None: the libraries look for it as in any program.
    """
    _give_driver(environment, program, endpoint, libraries)
    _give_runtime(environment, program, libraries)
    _give_profiler(environment, program, libraries)
    _give_torch(environment, program, libraries)
    _give_tensorflow(environment, program, libraries)
    _give_compilers(environment, program, endpoint, libraries)


def program_of(command: Sequence[str]) -> str:
    """The program for which libraries are chosen: the command's own, or the one that `vgpu doctor` examines."""
    if os.path.basename(command[0]) == "vgpu" and command[1:2] == ("doctor",):
        words = command[2:]
        looked_at = words[words.index("--") + 1 :] if "--" in words else words[-1:]
        if looked_at and not looked_at[0].startswith("-"):
            return looked_at[0]
    return command[0]


def _says(environment: dict[str, str], libraries: Libraries) -> bool:
    return libraries.verbose or environment.get("VGPU_LOG") in ("info", "trace")


def _give_driver(environment: dict[str, str], program: str, endpoint: Endpoint | None, libraries: Libraries) -> None:
    """Set where vgpud listens, and put vgpu's libcuda and libnvidia-ml before others."""

    def put_first(key: str, value: Path) -> None:
        rest = environment.get(key)
        environment[key] = f"{value}:{rest}" if rest else str(value)

    library, preload = libraries.driver, libraries.preload
    if endpoint is not None:
        environment["VGPU_ENDPOINT"] = str(endpoint)
    put_first("LD_LIBRARY_PATH", library.parent)
    if preload is None:
        binary = resolve_program(program, os.environ.get("PATH", os.defpath))
        other = winning_rpath(binary) if binary is not None else None
        if other is not None:
            say(f"preloading libcuda.so.1, for an RPATH leads to {other}")
        preload = other is not None
    if preload:
        put_first("LD_PRELOAD", library)


def _give_runtime(environment: dict[str, str], program: str, libraries: Libraries) -> None:
    """Put vgpu's runtime libraries on the program's path if it finds none; print which are used if verbose."""
    choice, folder = libraries.cudart, libraries.folder / FOLDER
    theirs = find_runtimes(program, os.environ) if choice == "auto" else dict.fromkeys(FOLDERS)
    wanted = [] if choice == "program" else [soname for soname, found in theirs.items() if found is None]
    ours = {soname: folder / FOLDERS[soname] for soname in wanted if (folder / FOLDERS[soname] / soname).exists()}
    if choice == "vgpu" and len(ours) < len(wanted):
        fail(f"{folder} lacks a libcudart: build it with `make shim`", ExitStatus.SOFTWARE)
    if ours:
        entries = [*map(str, ours.values()), environment["LD_LIBRARY_PATH"]]
        environment["LD_LIBRARY_PATH"] = ":".join(entries if choice == "vgpu" else [entries[-1], *entries[:-1]])
    if _says(environment, libraries):
        for soname, found in theirs.items():
            where = f"vgpu's, in {ours[soname]}" if soname in ours else found or "not given by vgpu"
            say(f"{soname} is {where}")


def _give_profiler(environment: dict[str, str], program: str, libraries: Libraries) -> None:
    """Preload vgpu's libcupti if the program would find NVIDIA's; if it finds none, add vgpu's to the library path."""
    folder = libraries.folder / CUPTI_FOLDER
    ours = {soname: folder / major / soname for soname, major in CUPTI_FOLDERS.items()}
    ours = {soname: file for soname, file in ours.items() if libraries.cupti and file.exists()}
    if not ours:
        return
    theirs = find_profilers(program, os.environ)
    preloaded = [str(file) for soname, file in ours.items() if theirs[soname] is not None]
    environment["LD_PRELOAD"] = ":".join(filter(None, [environment.get("LD_PRELOAD", ""), *preloaded]))
    if not environment["LD_PRELOAD"]:
        del environment["LD_PRELOAD"]
    missing = [str(file.parent) for soname, file in ours.items() if theirs[soname] is None]
    first, *rest = environment["LD_LIBRARY_PATH"].split(":")
    environment["LD_LIBRARY_PATH"] = ":".join([first, *missing, *rest])
    if _says(environment, libraries):
        for soname, file in ours.items():
            found = theirs[soname]
            instead = f", not {found}" if found else ""
            say(f"{soname} is vgpu's, in {file.parent}{instead}")


def _give_torch(environment: dict[str, str], program: str, libraries: Libraries) -> None:
    """Give the program vgpu-torch, unless it is switched off or the program's Python has no torch."""
    if not libraries.torch:
        environment["VGPU_TORCH"] = "0"  # disables a vgpu-torch in the program's Python, too
    if environment.get("VGPU_TORCH") != "0" and is_wanted(program, os.environ):
        put_on_path(environment, libraries.folder)


def _give_tensorflow(environment: dict[str, str], program: str, libraries: Libraries) -> None:
    """Add the folders of NVIDIA's libraries beside TensorFlow: its own search (2.21) leaves out nvidia/cusolver/lib,
    and where it lacks a library it computes on the CPU."""
    if folders := library_folders_beside(program, os.environ, "tensorflow"):
        environment["LD_LIBRARY_PATH"] = ":".join([environment["LD_LIBRARY_PATH"], *map(str, folders)])
        if _says(environment, libraries):
            say(f"tensorflow finds NVIDIA's libraries in {folders[0].parent.parent}")


def _give_compilers(environment: dict[str, str], program: str, endpoint: Endpoint | None, libraries: Libraries) -> None:
    """Make programs that assemble kernels themselves pass PTX to simulated devices."""
    found = find(environment)
    try:
        endpoint = endpoint or parse_endpoint(str(found["url"]))
    except EndpointError:
        return  # the program's cuInit reports the error
    capabilities = steering.simulated_capabilities(endpoint, found["token"] or None)
    made = steering.apply(environment, capabilities, program, libraries.folder)
    made += steering.show_jax_the_device(environment)
    if libraries.verbose:
        for setting in made:
            say(f"{setting.name}={setting.value} ({setting.reason})")
