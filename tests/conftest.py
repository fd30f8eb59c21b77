"""Fixtures that run a command as a user would: under `vgpu run`, or natively on a machine with a GPU."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

ROOT = Path(__file__).resolve().parents[1]
VGPU = [sys.executable, "-c", "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu())"]
RUN_TIMEOUT_S = 100

Command = Sequence[str | int | Path]
Run = Callable[..., CompletedProcess[str]]


def merged(env: Mapping[str, str] | None) -> dict[str, str]:
    """This process's environment with `env` on top; the parts of vgpu come from this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT / "daemon"), str(ROOT / "guest"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **(env or {})}


def run_command(command: Command, env: Mapping[str, str] | None, timeout_s: float) -> CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout_s, env=env)


@pytest.fixture(scope="session")
def vgpu_run() -> Run:
    """`vgpu_run(command, gpu="h100", env=None, timeout_s=100)` runs it under `vgpu run` on a simulated GPU.

    `options` are further options of `vgpu run`.
    """

    def run(
        command: Command,
        gpu: str = "h100",
        env: Mapping[str, str] | None = None,
        timeout_s: float = RUN_TIMEOUT_S,
        options: Sequence[str] = (),
    ) -> CompletedProcess[str]:
        return run_command([*VGPU, "run", "--gpu", gpu, *options, "--", *command], merged(env), timeout_s)

    return run


@pytest.fixture(scope="session")
def native_run() -> Run:
    """`native_run(command, env=None, timeout_s=100)` runs it on the driver that the machine has."""

    def run(
        command: Command, env: Mapping[str, str] | None = None, timeout_s: float = RUN_TIMEOUT_S
    ) -> CompletedProcess[str]:
        return run_command(command, {**os.environ, **(env or {})}, timeout_s)

    return run
