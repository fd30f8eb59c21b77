"""The command line: exit codes and one-line messages on errors, JSON for each table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.running import ENVIRONMENT

VGPU = [sys.executable, "-c", "from vgpud.cli.main import vgpu; vgpu(prog_name='vgpu')"]
VGPUD = [sys.executable, "-m", "vgpud"]


def vgpu(*arguments: str, stdout: object = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in ENVIRONMENT.items() if key != "VGPU_ENDPOINT"}
    return subprocess.run(
        [*VGPU, *arguments], env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60
    )


def test_run_on_a_dead_endpoint_says_so(tmp_path: Path) -> None:
    for url in ("tcp://127.0.0.1:1", f"unix:{tmp_path}/absent.sock"):
        done = vgpu("run", "--endpoint", url, "--", "/bin/true")
        assert done.returncode == 69
        assert url in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_full_disk_is_one_line_and_no_traceback() -> None:
    with open("/dev/full", "w") as full:
        done = vgpu("profiles", stdout=full)
    assert done.returncode == 74
    assert done.stderr == "vgpu: standard output: No space left on device\n"


def test_a_closed_pipe_is_no_traceback() -> None:
    command = "set -o pipefail; " + " ".join(map(repr, VGPU)) + " api | head -n 1"
    done = subprocess.run(["bash", "-c", command], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("FUNCTION")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_change_nothing(closed: str) -> None:
    command = " ".join(map(repr, [*VGPU, "profiles"])) + f" {closed}"
    done = subprocess.run(["sh", "-c", command], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert (done.stdout == "") == (">&-" in closed.replace("2>&-", ""))


@pytest.mark.parametrize("arguments", [("profiles",), ("version",), ("api",), ("api", "--nvml")])
def test_tables_have_json(arguments: tuple[str, ...]) -> None:
    assert json.loads(vgpu(*arguments, "--json").stdout)


def test_GP8_two_daemons_of_one_machine_are_told_how(tmp_path: Path) -> None:
    """The hint in the second daemon's message makes that daemon start."""
    admin = tmp_path / "admin.sock"
    common = [*VGPUD, "--gpus", "t4", "--listen"]
    with subprocess.Popen(
        [*common, f"unix:{tmp_path}/1.sock", "--admin", str(admin)], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as first:
        try:
            assert first.stderr is not None
            assert any(" ready " in line for line in first.stderr)
            command = [*common, f"unix:{tmp_path}/2.sock", "--admin", str(admin)]
            second = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
            assert second.returncode == 75
            assert "--admin PATH" in second.stderr
            checked = [*common, f"unix:{tmp_path}/2.sock", "--admin", "", "--check"]
            assert subprocess.run(checked, env=ENVIRONMENT, capture_output=True, timeout=60).returncode == 0
        finally:
            first.terminate()
