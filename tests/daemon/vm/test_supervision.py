"""A VM's device process and its vgpud: which of them starts, finds, replaces and outlives the other."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from vgpud.cli.main import vgpu

from tests.daemon.running import ENVIRONMENT, Running, process_exists, wait_until
from tests.patience import PATIENCE_S

Start = Callable[..., Running]
COMMAND = [sys.executable, "-c", "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu())", "vm", "device"]


def vm(directory: Path, cid: int = 3) -> str:
    return f"[[vm]]\nname = 'one'\ncid = {cid}\nvsock = '{directory}/one.sock'\n"


def device_pid(running: Running) -> int | None:
    (device,) = running.status()["vms"]
    return device["pid"]


@pytest.fixture
def vmm() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        yield sock


def test_a_device_without_a_vm_ends_with_its_vgpud(start: Start, tmp_path: Path) -> None:
    running = start(extra=vm(tmp_path))
    pid = device_pid(running)
    running.end()
    wait_until(lambda: not process_exists(pid))
    assert not (tmp_path / "one.sock").exists()


def test_a_device_that_dies_is_started_again(start: Start, tmp_path: Path) -> None:
    running = start(extra=vm(tmp_path))
    pid = device_pid(running)
    os.kill(pid, signal.SIGKILL)
    running.wait_log("vm device ended .*signal 9")
    wait_until(lambda: device_pid(running) not in (None, pid))
    running.end()


def test_a_device_with_a_vm_is_found_by_the_next_vgpud(start: Start, tmp_path: Path, vmm: socket.socket) -> None:
    first = start(extra=vm(tmp_path))
    pid = device_pid(first)
    vmm.connect(str(tmp_path / "one.sock"))
    first.wait_log("vm connected")
    first.end()
    second = start(extra=vm(tmp_path))
    second.wait_log("vm device found again")
    wait_until(lambda: second.status()["vms"][0]["connected"])
    assert process_exists(pid)
    second.end()
    vmm.close()
    wait_until(lambda: not process_exists(pid))


def test_a_device_of_another_configuration_is_replaced(start: Start, tmp_path: Path, vmm: socket.socket) -> None:
    first = start(extra=vm(tmp_path))
    pid = device_pid(first)
    vmm.connect(str(tmp_path / "one.sock"))
    first.wait_log("vm connected")
    first.end()
    second = start(extra=vm(tmp_path, cid=4))
    second.wait_log("of another configuration and is replaced")
    wait_until(lambda: not process_exists(pid))
    wait_until(lambda: device_pid(second))
    second.end()


def test_a_socket_that_is_taken(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "one.sock"))
        other.listen()
        command = [sys.executable, "-m", "vgpud.vm.device", "--name", "one", "--cid", "3", "--control-fd", "0"]
        done = subprocess.run(
            [*command, "--socket", f"{tmp_path}/one.sock"],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 1
        assert done.stderr == f"vm one: another server answers on unix:{tmp_path}/one.sock\n"


def test_a_device_of_its_own_unit(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "vms.toml"
    config.write_text(vm(tmp_path))
    process = subprocess.Popen([*COMMAND, "--config", str(config), "one"], env=ENVIRONMENT)
    try:
        wait_until((tmp_path / "one.sock.control").exists)
        for _ in range(2):
            running = start(extra=vm(tmp_path))
            running.wait_log("vm device found again")
            running.end()
        assert process.poll() is None
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert not (tmp_path / "one.sock").exists()
    finally:
        process.kill()
        process.wait()


def test_a_vm_that_is_not_configured(tmp_path: Path) -> None:
    config = tmp_path / "vms.toml"
    config.write_text(vm(tmp_path))
    said = CliRunner().invoke(vgpu, ["vm", "device", "--config", str(config), "two"])
    assert said.exit_code == 78
    assert said.output == f"vgpu vm device: {config}: no [[vm]] 'two' with a vsock socket\n"
