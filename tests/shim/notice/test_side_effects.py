"""Programs that never ask for a GPU behave the same with the notice (cases G03, L14)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.shim.notice.conftest import Installed, Machine
from tests.shim.notice.debian import unpacked

COMMANDS = {
    "true": ["/bin/true"],
    "bash": ["bash", "-c", "echo $((6 * 7)); type cd"],
    "git": ["git", "--version"],
    "ssh": ["ssh", "-V"],
    "python-ssl": ["python3", "-c", "import ssl, ctypes; print(ssl.OPENSSL_VERSION, ctypes.CDLL(None).getpid() > 0)"],
    "sshd": ["sshd", "-t", "-f", "/dev/null"],
    "lspci": ["lspci", "-A", "linux-sysfs"],
    "systemctl": ["systemctl", "--version"],
}
PACKAGES = {"sshd": ("openssh-server", "libwrap0"), "lspci": ("pciutils", "libpci3", "libkmod2")}


def command(name: str) -> tuple[list[str], list[str]]:
    """The command line, and the folders of the libraries that the program needs besides the system's."""
    first, *rest = COMMANDS[name]
    found = shutil.which(first, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is not None:
        return [found, *rest], []
    if name not in PACKAGES:
        pytest.skip(f"{first} is not here")
    root = unpacked(*PACKAGES[name])
    program = next(path for path in root.rglob(first) if path.parent.name in ("bin", "sbin") and path.is_file())
    folders = sorted({str(path.parent) for path in root.rglob("lib*.so*")})
    return [str(program), *rest], folders


def searched(*folders: str) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}


@pytest.mark.parametrize("name", COMMANDS)
def test_g03_same_output_with_the_notice_in_the_environment(installed: Installed, machine: Machine, name: str) -> None:
    """The notice in LD_LIBRARY_PATH, as docs/notice.md sets it up, and in LD_PRELOAD, which is not recommended."""
    words, folders = command(name)
    given: list[str | Path] = [*words]
    plain = machine.run(given, None, **searched(*folders))
    assert "error while loading" not in plain.stderr
    for env in (
        searched(str(installed.folder), *folders),
        searched(*folders) | {"LD_PRELOAD": str(installed.folder / "libvgpu-notice.so")},
    ):
        done = machine.run(given, None, **env)
        assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def need_strace() -> None:
    if not shutil.which("strace") and os.geteuid() == 0 and shutil.which("apt-get"):
        for words in (["update"], ["install", "-y", "-q", "--no-install-recommends", "strace"]):
            subprocess.run(["apt-get", *words], capture_output=True, timeout=100, check=False)
    if not shutil.which("strace"):
        pytest.skip("strace is not here: apt-get install strace")


def traced(machine: Machine, words: list[str], trace: Path, **env: str) -> list[str]:
    """Trace lines of calls that open files or use sockets, without numbers that differ from run to run."""
    strace = ["strace", "-f", "-qq", "-e", "trace=open,openat,openat2,connect,socket,ioctl", "-o", str(trace)]
    done = machine.run([*strace, *(f"-E{key}={value}" for key, value in env.items()), *words], None)
    if "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    lines = [re.sub(r"^\d+ +", "", line) for line in trace.read_text().splitlines()]
    assert len(lines) > 1
    return [re.sub(r"0x[0-9a-f]+|\d{4,}", "N", line) for line in lines]


def outside(lines: list[str], folder: Path) -> list[str]:
    """The trace lines that name no file of that folder."""
    return [line for line in lines if f'"{folder}/' not in line]


@pytest.mark.parametrize("name", ["true", "bash", "ssh", "sshd", "lspci"])
def test_l14_strace_shows_nothing_more(installed: Installed, machine: Machine, tmp_path: Path, name: str) -> None:
    """In LD_LIBRARY_PATH: the loader looks for each library in that folder too, and finds none there. Preloaded: both
    libraries are opened. Through the loader's configuration: nothing at all (test_deploy.py).
    """
    need_strace()
    words, folders = command(name)
    plain = traced(machine, words, tmp_path / "plain", **searched("/nonexistent", *folders))
    noticed = traced(machine, words, tmp_path / "noticed", **searched(str(installed.folder), *folders))
    inside = [line for line in noticed if f'"{installed.folder}/' in line]
    assert outside(noticed, installed.folder) == outside(plain, Path("/nonexistent"))
    assert all("= -1 ENOENT" in line for line in inside)
    preload = {"LD_PRELOAD": str(installed.folder / "libvgpu-notice.so")}
    preloaded = traced(machine, words, tmp_path / "preloaded", **searched("/nonexistent", *folders), **preload)
    own = [line for line in preloaded if "/libvgpu-next.so" not in line]  # searched for in all folders
    assert outside(outside(own, installed.folder), Path("/nonexistent")) == outside(plain, Path("/nonexistent"))
