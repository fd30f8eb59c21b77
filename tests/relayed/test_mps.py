"""[mps]: vgpud asks the control daemon at start, and workers get the variables of its clients. The daemon is a script,
and the driver knows no MPS: no card has been asked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import merged
from tests.daemon.devices.test_selection import start
from tests.daemon.running import Running, only
from tests.relayed import conftest
from tests.relayed.conftest import LIBRARIES, WORKER

CONTROL = """#!/bin/sh
read command
[ "$CUDA_MPS_PIPE_DIRECTORY $command" = "{pipes} get_default_active_thread_percentage" ] && exec echo 100.0
echo "Cannot find MPS control daemon process"
exit 1
"""
SHARES = """
[mps]
pipe_directory = '{pipes}'
[[shares]]
name = 'quarter'
mps_active_thread_percentage = 25
[[tokens]]
name = 'quarter'
value = 'quarter-quarter-quarter'
share = 'quarter'
[[tokens]]
name = 'entire'
value = 'entire-entire-entire'
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mps")
    control = folder / "nvidia-cuda-mps-control"
    control.write_text(CONTROL.format(pipes=folder))
    control.chmod(0o755)
    return folder


def config(shares: str) -> str:
    return (
        f"backend = 'cuda'\nlibcuda = '{LIBRARIES}/libcuda.so.1'\n"
        f"worker_command = {[sys.executable, str(WORKER), '--backend', 'cuda']!r}\n{shares}"
    )


def variables(driver: Running, folder: Path | None) -> dict[str, str]:
    found = {"VGPU_ENDPOINT": str(driver.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES)}
    return found | ({} if folder is None else {"PATH": f"{folder}:{os.environ['PATH']}"})


@pytest.fixture(scope="module")
def host(driver: Running, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    text = config(SHARES.format(pipes=folder))
    running = conftest.start(tmp_path_factory.mktemp("host"), "b", text, variables(driver, folder))
    yield running
    running.end()


@pytest.mark.parametrize(("share", "percentage"), [("quarter", "25"), ("entire", None)])
def test_workers_are_clients_of_the_daemon(host: Running, folder: Path, share: str, percentage: str | None) -> None:
    client = start(host, share)
    session = only(lambda: [each for each in host.admin.get("sessions")["sessions"] if each["worker_pid"] is not None])
    lines = Path(f"/proc/{session['worker_pid']}/environ").read_bytes().decode().split("\0")
    found = dict(line.split("=", 1) for line in lines if line.startswith("CUDA_MPS_"))
    assert found.pop("CUDA_MPS_PIPE_DIRECTORY") == str(folder)
    assert found == ({} if percentage is None else {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percentage})
    client.kill()


@pytest.mark.parametrize("has_program", [True, False])
def test_a_daemon_that_does_not_answer_is_named_with_its_mend(
    driver: Running, folder: Path, tmp_path: Path, has_program: bool
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(config("[mps]\npipe_directory = '/nowhere'\n"))
    command = [sys.executable, "-m", "vgpud", "--config", str(path), "--check"]
    env = merged(variables(driver, folder if has_program else None))
    check = subprocess.run(command, env=env, capture_output=True, text=True)
    assert check.returncode == 78
    assert f"{path}:5: mps.pipe_directory: no control daemon answers there (" in check.stderr
    assert "`CUDA_MPS_PIPE_DIRECTORY=/nowhere nvidia-cuda-mps-control -d`" in check.stderr
