"""CuPy, JAX and Triton on the default device of `vgpu run`; `make test-ecosystem` runs the other frameworks."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.chrome_trace import problems
from tests.clients.requirements import CUPY, JAX, TRITON
from tests.pypi import environment

Run = Callable[..., CompletedProcess[str]]
CLIENTS = Path(__file__).parent / "programs"
ECOSYSTEM = Path(__file__).parents[1] / "ecosystem/programs"
REQUIREMENTS = {"cupy": CUPY, "jax": JAX, "triton": TRITON}
COMMANDS: dict[str, list[str | Path]] = {
    "cupy": [CLIENTS / "with_cupy.py"],
    "jax": [ECOSYSTEM / "with_jax.py", "small"],
    "triton": [ECOSYSTEM / "with_triton.py", "small"],
}

pytestmark = pytest.mark.client


@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", REQUIREMENTS)
def test_framework_installs(name: str) -> None:
    """A test of its own, so that no other test's time limit includes a download."""
    assert (environment(*REQUIREMENTS[name]) / "bin/python").exists()


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_framework(vgpu_run: Run, tmp_path: Path, name: str) -> None:
    python = environment(*REQUIREMENTS[name]) / "bin/python"
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "CUPY_CACHE_DIR": str(tmp_path / "cupy")}
    result = vgpu_run([python, *COMMANDS[name]], gpu="forward", env=caches, timeout_s=200)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    assert f"ok {name}" in result.stdout, result.stdout


@pytest.mark.parametrize("name", ["default", "graphs", "command-buffers"])
def test_jax_profiler(vgpu_run: Run, tmp_path: Path, name: str) -> None:
    """JAX's own profiler shows the kernels of each run, in a valid trace; also those of XLA's command buffers, which
    are CUDA graphs."""
    options = {"gpu_enable_cupti_activity_graph_trace": True} if name == "graphs" else {}
    flags = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS --xla_gpu_graph_min_graph_size=1"
    command = [environment(*JAX) / "bin/python", CLIENTS / "profiled_jax.py", tmp_path, json.dumps(options)]
    env = {"XLA_FLAGS": flags} if name == "command-buffers" else {}
    result = vgpu_run(command, gpu="forward", timeout_s=200, env=env)
    assert result.returncode == 0, result.stderr[-4000:]
    assert "CUPTI_ERROR" not in result.stderr
    trace = json.loads(result.stdout.splitlines()[-1])
    assert problems(trace) == []
    events = [event for event in trace["traceEvents"] if event]
    devices = {e["pid"] for e in events if e["name"] == "process_name" and "GPU" in e["args"]["name"]}
    streams = {
        (e["pid"], e["tid"])
        for e in events
        if e["pid"] in devices and e["name"] == "thread_name" and "Stream" in e["args"]["name"]
    }
    runs = Counter(e["name"] for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) in streams)
    assert runs
    assert set(runs.values()) == {3}
    launches = [e for e in events if e["ph"] == "X" and e["name"].startswith("cuGraphLaunch")]
    assert name != "command-buffers" or len(launches) == 3


def test_cupy_as_it_comes(vgpu_run: Run, tmp_path: Path) -> None:
    """CuPy asks NVRTC for the device's own machine code; vgpu's library in front of NVRTC returns PTX."""
    env = {"CUPY_COMPILE_WITH_PTX": "0", "CUPY_CACHE_DIR": str(tmp_path)}
    result = vgpu_run([environment(*CUPY) / "bin/python", *COMMANDS["cupy"]], gpu="forward", env=env, timeout_s=200)
    assert "ok cupy" in result.stdout, result.stderr[-4000:]
