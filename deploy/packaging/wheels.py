"""vgpud's dependencies from PyPI, in the tested versions: those of the build environment."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

from .source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_PIP_TIMEOUT_S = 600
# Platform tags of wheels name the glibc that they need (PEP 600); pip compares these names literally.
_PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in range(35, 4, -1)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"),
]
SIMULATOR = ("llvmlite",)


class WheelError(Exception):
    """pip failed; the text ends with pip's error output."""


def install_wheels(target: Path, python_version: str, *, simulator: bool, scratch: Path) -> dict[str, str]:
    """Install the dependencies in pyproject.toml into `target`, for a Python that may differ from the running version.

    Args:
        simulator: whether to install llvmlite, which compiles kernels: LLVM is most of the bundle.
    Returns:
        The distributions and their versions.
    Raises:
        WheelError: pip failed: there is no network, or no wheel.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [str(text) for text in project["dependencies"]]
    if not simulator:
        names = [text for text in names if not text.startswith(SIMULATOR)]
    constraints = scratch / "constraints.txt"
    installed = importlib.metadata.distributions()
    constraints.write_text("".join(f"{one.name}=={one.version}\n" for one in installed if one.name != project["name"]))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--target", str(target), "--constraint", str(constraints), "--only-binary", ":all:"]
    abi = "cp" + python_version.replace(".", "")
    command += ["--implementation", "cp", "--python-version", python_version, "--abi", abi]
    command += ["--abi", "abi3", "--abi", "none", *(f"--platform={name}" for name in _PLATFORMS)]
    result = subprocess.run([*command, *names], capture_output=True, text=True, timeout=_PIP_TIMEOUT_S)
    if result.returncode:
        raise WheelError(f"pip could not install {' '.join(names)}:\n{result.stderr[-2000:]}")
    shutil.rmtree(target / "bin", ignore_errors=True)  # the scripts refer to the build machine's Python
    return {one.name: one.version for one in importlib.metadata.distributions(path=[str(target)])}
