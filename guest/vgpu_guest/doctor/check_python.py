"""Packages of a Python program whose kernels do not run on this endpoint's devices, and how to make them run.

If the endpoint does not execute machine code (the simulator), a package works only with PTX: either in its files, or
generated at run time. The behaviour of each of these packages was found by tests (tests/clients).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import mend, need, python_program, torch_overlay
from .place import PlaceError, ask

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

_TIMEOUT_S = 60.0
_NEWEST_KNOWN = [12, 1]  # no compiler knows newer architectures, such as the simulator's `forward` device
_LIBRARIES = "nvidia/*/lib/lib*.so.*"  # libraries of NVIDIA's packages in a folder of Python packages
_OPEN_LIBRARIES = frozenset({"cupy", "jax", "tensorflow", "torch"})  # packages that open such libraries
_NAMES_CAP = 6


@dataclass(frozen=True)
class Compiler:
    """A package that compiles at run time.

    `variables` make the package emit PTX; `forward` does so for a device that compilers do not know. `run` and
    `run_forward` name variables that `vgpu run` sets to stand-ins beside vgpu's files, for the same purpose. If the
    files `installed` are absent, the package emits PTX. `in_front` is the library that `vgpu run` preloads before
    NVIDIA's compiler. `source`: a program that contains this word makes the package emit PTX, in the versions
    `source_until` (later Warps assemble their PTX themselves for a driver older than their toolkit). `driver`: from
    this driver version on, the package emits PTX for a device that compilers do not know.
    """

    variables: tuple[tuple[str, str], ...] = ()
    forward: tuple[tuple[str, str], ...] = ()
    run: tuple[str, ...] = ()
    run_forward: tuple[str, ...] = ()
    installed: str = ""
    in_front: str = ""
    source: str = ""
    source_until: str = ""
    driver: int = 0
    advice: str = ""


_PTX = ("CUPY_COMPILE_WITH_PTX", "1")
_COMPILERS = {
    # Both variables: with CUB's kernels, which are machine code, CuPy's sums are wrong because CuPy ignores error 209.
    "cupy": Compiler(variables=(_PTX, ("CUPY_ACCELERATORS", "")), forward=(_PTX,), in_front="libnvrtc"),
    "numba": Compiler(
        forward=(("NUMBA_FORCE_CUDA_CC", "8.9"),),
        installed="nvidia/*/lib/libnvJitLink.so*",
        in_front="libnvJitLink",
        advice="VGPU run -- COMMAND, which has nvJitLink make PTX; or, for an environment without it, "
        "PIP uninstall nvidia-nvjitlink",
    ),
    "warp": Compiler(
        source="cuda_output",
        source_until="warp_lang-1.10.*",
        driver=13050,
        advice="a device under a newer driver: env -u VGPU_ENDPOINT VGPU run --gpu forward-next -- COMMAND",
    ),
    "triton": Compiler(run=("TRITON_PTXAS_PATH",), run_forward=("TRITON_PTXAS_PATH", "TRITON_DEFAULT_BACKEND")),
    "jax": Compiler(run=("CUDA_ROOT", "XLA_FLAGS"), run_forward=("CUDA_ROOT", "XLA_FLAGS")),
    "tensorflow": Compiler(run=("XLA_FLAGS",), run_forward=("XLA_FLAGS",)),
}


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Adds machine-code-made and no-device-code; fills `need["python"]`."""
    if subject.program is None or not python_program.is_python(subject.program):
        return
    first = subject.process.arguments[0] if subject.process is not None and subject.process.arguments else ""
    program = first if os.path.isabs(first) else subject.program  # a virtual environment's python is a link
    arguments, environment = list(subject.arguments), dict(subject.environment)
    found: dict[str, Any] = ask(subject.place, python_program.examine, program, arguments, environment)
    diagnosis.need["python"] = {key: found[key] for key in ("kind", "script", "imports")}
    if found["kind"] == "":
        return
    if "jax" in found["imports"]:
        _judge_device_files(subject, diagnosis, found["sites"])
    inventory = diagnosis.endpoint.get("inventory", {})
    if not inventory.get("devices") or inventory.get("backend") == "cuda":
        return
    capability = inventory["devices"][0]["compute_capability"]
    simulated = torch_overlay.is_active(subject, found["sites"])
    known = [name for name in _COMPILERS if name in found["imports"]]
    for name in known:
        _judge_compiler(subject, diagnosis, name, found, inventory)
    if simulated and "torch" in found["imports"]:
        diagnosis.evidence.append("torch: its CUDA operators run as ATen's CPU kernels, by vgpu-torch")
    for name, package in found["packages"].items():
        if name not in known and not (name == "torch" and simulated):
            _judge_files(subject, diagnosis, name, package["libraries"], capability)
    if found["imports"] and _OPEN_LIBRARIES & set(found["imports"]) - ({"torch"} if simulated else set()):
        _judge_libraries(subject, diagnosis, found["sites"], capability)


def _judge_device_files(subject: Subject, diagnosis: Diagnosis, sites: list[str]) -> None:
    """JAX looks for a device file of NVIDIA's before it asks the driver, and takes the CPU where there is none."""
    platforms = subject.environment.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return
    wanted = ask(subject.place, _device_files, sites)
    if wanted and not ask(subject.place, _exists_one, wanted):
        names = ", ".join(wanted)
        diagnosis.add(
            "device-file-missing", f"jax computes on the CPU where there is none of {names}, and says nothing"
        )


def _device_files(sites: list[str]) -> list[str]:
    """Runs in the program's place: the device files that JAX looks for; none if vgpu's plug-in for JAX is installed
    (`vgpu run`) or this JAX looks for none."""
    for site in map(Path, sites):
        for points in site.glob("vgpu*/entry_points.txt"):
            if "[jax_plugins]" in points.read_text(errors="replace"):
                return []
    for site in map(Path, sites):
        with contextlib.suppress(OSError):
            text = (site / "jax/_src/hardware_utils.py").read_text(errors="replace")
            listed = re.search(r"_NVIDIA_GPU_DEVICES = \[(.*?)\]", text, re.DOTALL)
            return re.findall(r"""["'](/dev/\w+)["']""", listed[1]) if listed else []
    return []


def _exists_one(files: list[str]) -> bool:
    return any(map(os.path.exists, files))


def _judge_compiler(
    subject: Subject, diagnosis: Diagnosis, name: str, found: dict[str, Any], inventory: dict[str, Any]
) -> None:
    compiler = _COMPILERS[name]
    is_forward = inventory["devices"][0]["compute_capability"] > _NEWEST_KNOWN
    variables = compiler.forward if is_forward else compiler.variables
    text = f"{name} compiles its kernels to machine code, which the simulator does not execute"
    if set_by_run := compiler.run_forward if is_forward else compiler.run:
        if lacking := [key for key in set_by_run if key not in subject.environment]:
            command = shlex.join([subject.program or "", *subject.arguments])
            advice = f"{mend.vgpu()} run -- {command}, which sets what {name} needs ({', '.join(lacking)}, ...)"
            diagnosis.add("machine-code-made", f"{text} unless vgpu's ptxas is in its place", advice=advice)
        return
    is_in_front = compiler.in_front != "" and _is_preloaded(subject, compiler.in_front)
    if is_in_front:
        diagnosis.evidence.append(f"{name}: vgpu's {compiler.in_front} is in front of NVIDIA's, and has it make PTX")
        variables = tuple(variable for variable in variables if variable != _PTX)
    if variables:
        unset = [(key, value) for key, value in variables if subject.environment.get(key) != value]
        words = " ".join(f"{key}={value}" for key, value in variables)
        if not unset:
            diagnosis.evidence.append(f"{name}: {words}")
        elif subject.unit is not None:
            command = mend.set_in_unit(subject.unit, "Environment", words, name)
        else:
            command = f"export {words}"
        if unset:
            keys = " ".join(key for key, _ in unset)
            diagnosis.add("machine-code-made", f"{text} unless {keys} says otherwise", command)
            return
    if is_in_front or not (compiler.installed or compiler.source):
        return
    if compiler.driver and is_forward and inventory["driver_version"] >= compiler.driver:
        return
    if compiler.installed and not ask(subject.place, _matches, found["sites"], compiler.installed):
        return
    mentioned = compiler.source and found["script"] and ask(subject.place, _mentions, found["script"], compiler.source)
    if mentioned and ask(subject.place, _matches, found["sites"], compiler.source_until):
        return
    parts = {
        "PIP": f"{subject.program} -m pip",
        "VGPU": mend.vgpu(),
        "COMMAND": shlex.join([subject.program or "", *subject.arguments]),
    }
    advice = re.sub(r"\b(PIP|VGPU|COMMAND)\b", lambda word: parts[word[1]], compiler.advice)
    diagnosis.add("machine-code-made", text, advice=advice)


def _is_preloaded(subject: Subject, stem: str) -> bool:
    """Whether LD_PRELOAD names vgpu's library in front of one of NVIDIA's compilers."""
    entries = re.split(r"[ :]+", subject.environment.get("LD_PRELOAD", ""))
    return any(os.path.basename(entry).startswith(f"{stem}.so") for entry in entries)


def _judge_files(
    subject: Subject, diagnosis: Diagnosis, name: str, libraries: list[str], capability: list[int]
) -> None:
    if useless := _useless(subject, diagnosis, name, libraries, capability):
        text = f"{name} brings its kernels as machine code alone, which the simulator does not execute: " + ", ".join(
            useless[:_NAMES_CAP]
        )
        advice = "use an endpoint with that GPU, or a build with PTX"
        if name == "torch":
            command = shlex.join([subject.program or "", *subject.arguments])
            advice = f"{mend.vgpu()} run -- {command}, which brings vgpu-torch: its operators run on the CPU"
        diagnosis.add("no-device-code", text, advice=advice)


def _judge_libraries(subject: Subject, diagnosis: Diagnosis, sites: list[str], capability: list[int]) -> None:
    """Warn of NVIDIA's libraries that have no PTX; the program fails only if it uses a kernel of one."""
    libraries = ask(subject.place, _glob, sites, _LIBRARIES)
    if useless := _useless(subject, diagnosis, "NVIDIA", libraries, capability):
        device = f"compute capability {capability[0]}.{capability[1]} (simulator)"
        diagnosis.warnings.append(
            f"no kernel of these runs on {device}, where the program uses them: {', '.join(useless[:_NAMES_CAP])}"
            + ("" if capability > _NEWEST_KNOWN else "; the `forward` device takes the PTX of later ones")
        )


def _useless(
    subject: Subject, diagnosis: Diagnosis, whose: str, libraries: list[str], capability: list[int]
) -> list[str]:
    """Names of the files whose device code contains nothing that a simulated device can run."""
    place = subject.place.as_administrator()
    found: list[str] = []
    for start in range(0, len(libraries), need.FILES_CAP):
        part = libraries[start : start + need.FILES_CAP]
        try:
            entries = ask(place, need.read_all, part, capability, False, timeout_s=_TIMEOUT_S)
        except PlaceError as error:
            diagnosis.warnings.append(f"{whose}'s files were not read: {error}")
            break
        useless = [e["file"] for e in entries if e["code"]["containers"] and not e["code"]["usable"]]
        found += [os.path.basename(file) for file in useless]
    return found


def _glob(sites: list[str], pattern: str) -> list[str]:
    return sorted({str(file) for site in sites for file in Path(site).glob(pattern) if file.is_file()})


def _matches(sites: list[str], pattern: str) -> bool:
    return any(next(Path(site).glob(pattern), None) is not None for site in sites)


def _mentions(file: str, word: str) -> bool:
    try:
        with open(file, encoding="utf-8", errors="replace") as source:
            return word in source.read(1 << 20)
    except OSError:
        return False
