"""Perfetto opens the traces of profilers and of `vgpu sim profile`: no slice is lost, and arrows have both ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.requirements import JAX
from tests.conftest import ROOT, VGPU, Run, merged
from tests.perfetto import ERRORS, FLOWS, SLICES, ask
from tests.pypi import environment
from tests.torch.conftest import OTHER_VERSIONS, VERSION, build_core, torch_python

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(1800)]


def by_category(rows: list[dict]) -> dict[str, int]:
    return {row["category"]: row["number"] for row in rows}


@pytest.mark.parametrize("version", [VERSION, *OTHER_VERSIONS])
def test_torch(vgpu_run: Run, tmp_path: Path, version: str) -> None:
    python = torch_python(version)
    build_core(python)
    command = [python, ROOT / "tests/torch/programs/profiled.py", tmp_path]
    result = vgpu_run(command, env={"OMP_NUM_THREADS": "1"}, timeout_s=400)
    assert result.returncode == 0, result.stderr
    slices, flows, errors = ask(tmp_path / "trace.json", SLICES, FLOWS, ERRORS)
    assert errors == []
    found = by_category(slices)
    assert (found["kernel"], found["gpu_memcpy"], found["cuda_driver"]) == (6, 4, 6)
    assert {(row["begins"], row["ends"]): row["number"] for row in flows} == {
        ("cuda_driver", "kernel"): 6,
        ("cuda_runtime", "gpu_memcpy"): 4,
    }


def test_jax(vgpu_run: Run, tmp_path: Path) -> None:
    """XLA ends its list with an empty event, natively, too: that is the one error."""
    command = [environment(*JAX) / "bin/python", ROOT / "tests/clients/programs/profiled_jax.py", tmp_path]
    result = vgpu_run(command, gpu="forward", timeout_s=400)
    assert result.returncode == 0, result.stderr[-4000:]
    (trace,) = tmp_path.rglob("*.trace.json.gz")
    streams = """select slice.name, count(*) as number from slice join thread_track on slice.track_id = thread_track.id
                 join thread using (utid) where thread.name like 'Stream%' group by 1"""
    kernels, errors = ask(trace, streams, ERRORS)
    assert kernels
    assert {row["number"] for row in kernels} == {3}
    assert errors == [{"name": "json_tokenizer_failure", "value": 1}]


def test_sim_profile(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    program = [sys.executable, str(ROOT / "tests/shim/cupti/activity.py"), "13", "graph"]
    command = [*VGPU, "sim", "profile", "--trace", str(trace), "--", *program]
    done = subprocess.run(command, env=merged(None), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    slices, errors = ask(trace, "select name, count(*) as number from slice group by 1", ERRORS)
    assert slices == [{"name": "busy", "number": 6}]
    assert errors == []


def test_one_call(vgpu_run: Run, tmp_path: Path) -> None:
    """The example of docs/operations.md."""
    trace = tmp_path / "trace.json"
    result = vgpu_run([sys.executable, ROOT / "docs/example/one_call.py", trace])
    assert result.returncode == 0, result.stderr
    slices, flows, errors = ask(trace, SLICES, FLOWS, ERRORS)
    assert errors == []
    assert by_category(slices) == {"cuda_driver": 2, "kernel": 2}
    assert flows == [{"begins": "cuda_driver", "ends": "kernel", "number": 2}]
