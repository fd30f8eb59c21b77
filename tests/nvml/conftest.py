"""Fixtures that load libnvidia-ml as a program does, connected to a vgpud that the tests start."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vgpud.cli.private_daemon import PrivateDaemon

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "build/guest"
LIBRARY = LIB / "libnvidia-ml.so.1"

# Variables that configure a guest; a developer's own settings must not leak into a test.
VARIABLES = (
    "VGPU_ENDPOINT",
    "VGPU_TOKEN",
    "VGPU_GUEST_CONF",
    "VGPU_LOG",
    "VGPU_LOG_FILE",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
)


def clean_environment(**more: str) -> dict[str, str]:
    """The current environment without the variables that select a vgpud or a library, plus `more`."""
    return {key: value for key, value in os.environ.items() if key not in VARIABLES} | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "daemon"), str(ROOT / "guest"), str(ROOT)]),
        "VGPU_GUEST_CONF": "/nonexistent",
        **more,
    }


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """A vgpud with an H100 and a T4."""
    with PrivateDaemon("h100,t4") as daemon:
        yield str(daemon.endpoint)


@pytest.fixture
def guest(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """The library in this process, configured to reach `endpoint`, not initialised."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VGPU_ENDPOINT", endpoint)
    return ctypes.CDLL(str(LIBRARY))


@pytest.fixture
def nvml(guest: ctypes.CDLL) -> Iterator[ctypes.CDLL]:
    """The library of `guest`, initialised once."""
    assert guest.nvmlInit_v2() == 0
    yield guest
    assert guest.nvmlShutdown() == 0


@pytest.fixture
def in_guest(endpoint: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """in_guest(code, **environment) runs Python code in a fresh process that finds the library by its path."""

    def run(code: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = clean_environment(VGPU_ENDPOINT=endpoint, LD_LIBRARY_PATH=str(LIB), **more)
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    return run
