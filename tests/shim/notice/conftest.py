"""Fixtures for tests of the notice: replacement drivers, programs that load them, the notice in front of a driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
OURS = ROOT / "build/guest/libcuda.so.1"
MESSAGE = "GPUs are reserved for the course."
# The notice as written to a file or pipe; on a terminal a frame replaces the words before the message.
LINE = f"GPU access: {MESSAGE}\n"


@dataclass
class Installed:
    """The notice in front of one driver: `folder` is in a blocked user's LD_LIBRARY_PATH."""

    folder: Path
    driver: Path


@dataclass
class Machine:
    """A user's environment on a machine with or without a marker file; each machine has its own session record."""

    home: Path
    marked: bool = True
    conf: str = ""
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.home.chmod(0o700)
        self.marker = self.home / "marker"
        if self.marked:
            self.marker.write_text(MESSAGE)
        (self.home / "notice.conf").write_text(self.conf)

    def environment(self, libraries: Path | None, visible: str | None = "", **more: str) -> dict[str, str]:
        """The program's variables; `visible` is the value of CUDA_VISIBLE_DEVICES (None: unset)."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("VGPU_", "CUDA_", "LC_", "LANG", "LD_"))}
        env |= {"VGPU_NOTICE_CONF": str(self.home / "notice.conf"), "VGPU_NOTICE_FILE": str(self.marker)}
        env |= {"XDG_RUNTIME_DIR": str(self.home), "VGPU_GUEST_CONF": "/nonexistent"}
        env |= {} if libraries is None else {"LD_LIBRARY_PATH": str(libraries)}
        env |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        return env | self.env | more

    def run(
        self, command: list[str | Path], libraries: Path | None, visible: str | None = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        env = self.environment(libraries, visible, **more)
        return subprocess.run(
            [str(part) for part in command], env=env, capture_output=True, text=True, timeout=60, check=False
        )


def compiled(target: Path, source: Path, *options: str) -> Path:
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", str(target), str(source), *options]
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, check=True, timeout=60)
    return target


def stand_in(folder: Path, *options: str) -> Path:
    return compiled(folder / "libcuda.so.1", HERE / "vgt_libcuda.c", "-shared", "-fPIC", "-Wl,-Bsymbolic", *options)


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Installed]:
    """`install(driver)` puts the notice in front of that libcuda, in a new folder."""

    def put(driver: Path) -> Installed:
        folder = tmp_path_factory.mktemp("notice")
        (folder / "next").mkdir()
        (folder / "next/libcuda.so.1").symlink_to(driver)
        command = [sys.executable, str(ROOT / "shim/build_notice.py"), "--out", str(folder)]
        subprocess.run([*command, "--next", str(folder / "next/libcuda.so.1")], check=True, timeout=120)
        (folder / "libcuda.so.1").symlink_to("libvgpu-notice.so")
        (folder / "libcuda.so").symlink_to("libcuda.so.1")
        return Installed(folder, driver)

    return put


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_in(tmp_path_factory.mktemp("driver"), "-Wl,-soname,libcuda.so.1")


@pytest.fixture(scope="session")
def installed(install: Callable[[Path], Installed], driver: Path) -> Installed:
    """The notice in front of the replacement driver."""
    return install(driver)


@pytest.fixture(scope="session")
def before_ours(install: Callable[[Path], Installed]) -> Installed:
    """The notice in front of vgpu's own libcuda, which also contains the notice."""
    return install(OURS)


@pytest.fixture(scope="session")
def loader(tmp_path_factory: pytest.TempPathFactory, driver: Path) -> Callable[[str], list[str | Path]]:
    """`loader(way)` is the command of a program that finds cuInit in that way and calls it."""
    folder = tmp_path_factory.mktemp("loader")
    program = compiled(folder / "load", HERE / "vgt_load.c", "-ldl", "-pthread")
    linked = compiled(folder / "linked", HERE / "vgt_load.c", "-DLINKED", str(driver))
    now = compiled(folder / "linked-now", HERE / "vgt_load.c", "-DLINKED", "-Wl,-z,now", str(driver))
    programs = {"linked": linked, "linked-now": now}
    return lambda way: [programs.get(way, program), way]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")
