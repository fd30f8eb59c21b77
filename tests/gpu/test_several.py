"""Two GPUs: frameworks compute the same through vgpud as natively (`python3 tests/gpu/run.py --only several`).

`pytest -s` shows the rates of both sides. A lower rate is not a failure here, a different result is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import merged
from tests.gpu.conftest import RemotedRun
from tests.gpu.several import TASKS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).with_name("several.py")
LIMIT_S = 75.0
OVER_SOCKETS = {"nccl_ranks"}  # what is compared without shared memory, too
ENVIRONMENT = {"NCCL_DEBUG": "WARN", "PYTHONPATH": ""}


def device_count() -> int:
    """The number of devices of this machine, according to nvidia-smi."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except OSError:
        return 0
    return done.stdout.count("GPU ")


def run(env: dict[str, str], task: str) -> dict[str, Any]:
    """Run a task; returns its report, or the end of its output if the task fails or takes too long."""
    try:
        done = subprocess.run([sys.executable, SCRIPT, task], env=env, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as late:
        said = [(part or b"").decode(errors="replace")[-3000:] for part in (late.stdout, late.stderr)]
        return {"failed": f"no end after {LIMIT_S} s", "said": said}
    if done.returncode:
        return {"failed": f"exit {done.returncode}", "said": [done.stdout[-1000:], done.stderr[-5000:]]}
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.parametrize("task", [task.__name__ for task in TASKS])
def test_two_devices_as_natively(remoted_run: RemotedRun, task: str) -> None:
    if device_count() < 2:
        pytest.skip("this machine has one device")
    if not remoted_run.shared_memory and task not in OVER_SOCKETS:
        pytest.skip("compared over shared memory alone")
    native = run(merged({**ENVIRONMENT, "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}), task)
    if "failed" in native:
        pytest.skip(f"natively: {native}")
    remoted = run(remoted_run.env | ENVIRONMENT, task)
    assert "failed" not in remoted, "\n".join([str(remoted["failed"]), *remoted["said"]])
    for what, rate in native["rates"].items():
        ratio = remoted["rates"][what] / rate
        name = task if remoted_run.shared_memory else f"{task}_over_a_socket"
        print(f"\n{name}: {what}: native {rate}, remoted {remoted['rates'][what]}, ratio {ratio:.3f}", flush=True)
    assert remoted["results"] == native["results"]
