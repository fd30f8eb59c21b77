"""Unmodified torch.profiler: Kineto's whole path over vgpu's libcupti, although NVIDIA's is installed."""

import json
from pathlib import Path

from tests.chrome_trace import problems
from tests.torch.conftest import RunTorch


def test_a_profile_shows_the_kernels(run_torch: RunTorch, tmp_path: Path) -> None:
    """Two active steps of a schedule: their kernels and copies, linked to the calls that they belong to."""
    result = run_torch("profiled.py", str(tmp_path))
    assert result.returncode == 0, result.stderr
    events = json.loads(result.stdout.splitlines()[-1])
    kernels = [e for e in events if e["cat"] == "kernel"]
    assert [e["name"] for e in kernels] == ["busy"] * 6
    assert sorted(e["args"]["grid"][0] for e in kernels) == [4, 4, 4, 5, 5, 5]  # the first two steps are not active
    launches = {e["args"]["correlation"] for e in events if e["cat"] == "cuda_driver" and "Launch" in e["name"]}
    assert {e["args"]["correlation"] for e in kernels} == launches
    assert launches <= {e["id"] for e in events if e["cat"] == "ac2g"}  # the arrows that Perfetto draws
    copies = sorted(e["name"] for e in events if e["cat"] == "gpu_memcpy")
    assert copies == ["Memcpy DtoH (Device -> Pageable)"] * 2 + ["Memcpy HtoD (Pageable -> Device)"] * 2
    assert len([e for e in events if e["cat"] == "gpu_user_annotation" and e["name"] == "mine"]) == 2
    # NVIDIA's runtime made these calls by one driver call each.
    calls = {e["args"]["correlation"]: e["name"] for e in events if e["cat"] == "cuda_runtime"}
    assert [calls[e["args"]["correlation"]] for e in events if e["cat"] == "gpu_memcpy"] == ["cudaMemcpyAsync"] * 4
    waits = sorted(number for number, name in calls.items() if name.endswith("Synchronize"))
    assert len(waits) >= 4
    # Each arrow has two ends, but Kineto begins one at each wait, which leads nowhere.
    found = problems(json.loads((tmp_path / "trace.json").read_text()))
    assert sorted(found) == sorted(f"flow ('ac2g', 'ac2g', {number}) has 1 beginnings and 0 ends" for number in waits)
    assert result.stderr.count("calls of NVIDIA's CUDA runtime") == 1


def test_without_ours_the_reason_is_said(run_torch: RunTorch, tmp_path: Path) -> None:
    """NVIDIA's libcupti does not start over vgpu's driver: the profile then has no kernel."""
    result = run_torch("profiled.py", str(tmp_path), options=("--no-cupti",))
    assert result.returncode == 0, result.stderr
    assert [e for e in json.loads(result.stdout.splitlines()[-1]) if e["cat"] == "kernel"] == []
