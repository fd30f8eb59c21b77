"""A small system's tree, libraries to install into it, and the vgpu command."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from vgpu_guest.cli import vgpu
from vgpu_guest.layout import PROBE, RELEASE, RUNTIMES, STEMS

from tests.guest.elf_file import compile_c, compile_library

Vgpu = Callable[..., Result]


@pytest.fixture(scope="session")
def payload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small libraries with the names of vgpu's libraries."""
    folder = tmp_path_factory.mktemp("payload")
    for stem in STEMS:
        file = compile_library(folder / f"{stem}.so.1")
        file.rename(folder / f"{stem}.so.{RELEASE}")
    for major, soname in RUNTIMES.items():
        compile_library(folder / "cudart" / major / soname)
    compile_c(folder / PROBE, "int main(void) { return 0; }").chmod(0o644)  # not executable, as a wheel may unpack it
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The parts of a system that an installation uses: the loader's configuration and cache, a service."""
    root = tmp_path / "root"
    for folder in ("etc/ld.so.conf.d", "usr/lib/systemd/system", "usr/lib/x86_64-linux-gnu", "var/lib", "var/cache"):
        (root / folder).mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    (root / "etc/ld.so.conf.d/x86_64-linux-gnu.conf").write_text("/usr/lib/x86_64-linux-gnu\n")
    (root / "usr/lib/systemd/system/llama.service").write_text("[Service]\nExecStart=/opt/llama/serve --port 1\n")
    compile_library(root / "usr/lib/x86_64-linux-gnu/libother.so.1")
    ldconfig(root)
    return root


def ldconfig(root: Path, *options: str) -> str:
    command = ["/sbin/ldconfig", "-r", str(root), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture
def run() -> Vgpu:
    """`run("install", "--root", root, ..., code=0)` runs the command in this process and checks its exit code."""

    def run(*arguments: str | Path, code: int = 0) -> Result:
        result = CliRunner().invoke(vgpu, [str(argument) for argument in arguments], prog_name="vgpu")
        assert result.exit_code == code, (result.exit_code, result.output, result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run
