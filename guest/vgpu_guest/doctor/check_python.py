"""Packages of a Python program whose kernels cannot run on this endpoint's devices, and what mends those that can.

Where machine code is not executed (the simulator), a package works only by PTX: that of its own files, or that which it
makes at run time. What each of these packages does was tried (tests/clients).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import mend, need, python_program
from .place import PlaceError, ask

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Compiler:
    """A package that compiles at run time. `variables` make it emit PTX; `installed` is a package beside it without
    which it does; `source` is a line of the program that does."""

    variables: tuple[tuple[str, str], ...] = ()
    installed: str = ""
    source: str = ""
    advice: str = ""


_COMPILERS = {
    # With the first alone CuPy's sums are wrong: its CUB path gets error 209 and passes over it.
    "cupy": Compiler(variables=(("CUPY_COMPILE_WITH_PTX", "1"), ("CUPY_ACCELERATORS", ""))),
    "numba": Compiler(
        installed="nvidia/*/lib/libnvJitLink.so*",
        advice="use an environment without nvJitLink: PIP uninstall nvidia-nvjitlink",
    ),
    "warp": Compiler(
        source="cuda_output",
        advice="before wp.init(): wp.config.cuda_output = 'ptx'; wp.config.ptx_target_arch = 75",
    ),
    "triton": Compiler(advice="Triton makes machine code by ptxas: use an endpoint with a real GPU"),
    "jax": Compiler(advice="XLA makes machine code by ptxas: use an endpoint with a real GPU"),
    "tensorflow": Compiler(advice="XLA makes machine code by ptxas: use an endpoint with a real GPU"),
}


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Adds machine-code-made and no-device-code; fills `need["python"]`."""
    if subject.program is None or not python_program.is_python(subject.program):
        return
    first = subject.process.arguments[0] if subject.process is not None and subject.process.arguments else ""
    program = first if os.path.isabs(first) else subject.program  # a virtual environment's is a link to another
    arguments, environment = list(subject.arguments), dict(subject.environment)
    found: dict[str, Any] = ask(subject.place, python_program.examine, program, arguments, environment)
    diagnosis.need["python"] = {key: found[key] for key in ("kind", "script", "imports")}
    if found["kind"] == "":
        return
    inventory = diagnosis.endpoint.get("inventory", {})
    if not inventory.get("devices") or inventory.get("backend") == "cuda":
        return
    known = [name for name in _COMPILERS if name in found["imports"]]
    for name in known:
        _judge_compiler(subject, diagnosis, name, found)
    for name, package in found["packages"].items():
        if name not in known:
            _judge_files(subject, diagnosis, name, package["libraries"], inventory)


def _judge_compiler(subject: Subject, diagnosis: Diagnosis, name: str, found: dict[str, Any]) -> None:
    compiler = _COMPILERS[name]
    text = f"{name} compiles its kernels to machine code, which the simulator does not execute"
    if compiler.variables:
        unset = [(key, value) for key, value in compiler.variables if subject.environment.get(key) != value]
        if not unset:
            diagnosis.evidence.append(f"{name}: " + " ".join(f"{key}={value}" for key, value in compiler.variables))
            return
        words = " ".join(f"{key}={value}" for key, value in compiler.variables)
        if subject.unit is not None:
            command = mend.set_in_unit(subject.unit, "Environment", words, name)
        else:
            command = f"export {words}"
        diagnosis.add("machine-code-made", f"{text} unless {' '.join(key for key, _ in unset)} says otherwise", command)
        return
    if compiler.installed and not ask(subject.place, _matches, found["sites"], compiler.installed):
        return
    if compiler.source and found["script"] and ask(subject.place, _mentions, found["script"], compiler.source):
        return
    pip = f"{subject.program} -m pip"
    diagnosis.add("machine-code-made", text, advice=compiler.advice.replace("PIP", pip))


def _judge_files(
    subject: Subject, diagnosis: Diagnosis, name: str, libraries: list[str], inventory: dict[str, Any]
) -> None:
    capability = inventory["devices"][0]["compute_capability"]
    place = subject.place.as_administrator()
    for start in range(0, len(libraries), need.FILES_CAP):
        part = libraries[start : start + need.FILES_CAP]
        try:
            entries = ask(place, need.read_all, part, capability, False, timeout_s=_TIMEOUT_S)
        except PlaceError as error:
            diagnosis.warnings.append(f"{name}'s files were not read: {error}")
            return
        useless = [e["file"] for e in entries if e["code"]["containers"] and not e["code"]["usable"]]
        if useless:
            text = (
                f"{name} brings its kernels as machine code alone, which the simulator does not execute: "
                + ", ".join(os.path.basename(file) for file in useless[:4])
            )
            diagnosis.add("no-device-code", text, advice="use an endpoint with that GPU, or a build with PTX")
            return


def _matches(sites: list[str], pattern: str) -> bool:
    return any(next(Path(site).glob(pattern), None) is not None for site in sites)


def _mentions(file: str, word: str) -> bool:
    try:
        with open(file, encoding="utf-8", errors="replace") as source:
            return word in source.read(1 << 20)
    except OSError:
        return False
