"""One vgpud with simulated GPUs for all of the doctor's tests, on a unix socket and on TCP."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.daemon.running import Running
from tests.guest.doctor.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def vgpud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("doctor-vgpud")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = directory / "vgpud.toml"
    config.write_text(
        f"listen = ['unix:{directory}/vgpud.sock', 'tcp://127.0.0.1:{port}']\nadmin = '{directory}/admin.sock'\n"
        "gpus = 'h100'\n"
    )
    running = Running.start(config, directory, "log")
    running.wait_ready()
    yield running
    running.end()


@pytest.fixture(scope="session")
def tcp(vgpud: Running) -> str:
    """TCP endpoint of that vgpud, which programs in a tree's chroot can reach."""
    return next(line for line in vgpud.config.read_text().split("'") if line.startswith("tcp://"))


@pytest.fixture(scope="session")
def unix(vgpud: Running) -> str:
    return str(vgpud.endpoint)


@pytest.fixture
def tree(tmp_path: Path, tcp: str) -> Tree:
    """A system without faults, so that what a test breaks is the only fault."""
    if os.geteuid() != 0:
        pytest.skip("the doctor's chroots need root (or `unshare -r` around pytest)")
    tmp_path.chmod(0o755)
    return Tree(tmp_path / "root", {"VGPU_ENDPOINT": tcp})
