"""Frameworks as PyPI ships them, with NVIDIA's libraries below them, on simulated devices; compared with the CPU.

`make test-ecosystem` runs them: they take gigabytes and minutes. docs/simulator.md keeps the last results.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import merged
from tests.ecosystem import record
from tests.ecosystem.requirements import CUBLAS_WITH_PTX, CUDNN, NCCL, NPP, REQUIREMENTS
from tests.pypi import SITE, environment, packages

Run = Callable[..., CompletedProcess[str]]
PROGRAMS = Path(__file__).parent / "programs"
CARD = Path(__file__).parent / "card.json"
TIMEOUT_S = 1500

GPU = {"warp": "forward-next"}
ARGUMENTS = {"triton": ["torch"]}

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(TIMEOUT_S + 60)]


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_installs(name: str) -> None:
    """A test of its own, so that no other test's time limit includes a download."""
    assert (environment(*REQUIREMENTS[name]) / "bin/python").exists()


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_framework(vgpu_run: Run, tmp_path: Path, name: str) -> None:
    python = environment(*REQUIREMENTS[name]) / "bin/python"
    own = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "CUPY_CACHE_DIR": str(tmp_path / "cupy")}
    command = [python, PROGRAMS / f"with_{name}.py", *ARGUMENTS.get(name, ())]
    result = vgpu_run(command, gpu=GPU.get(name, "forward"), env=own, timeout_s=TIMEOUT_S)
    print(result.stdout)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    assert f"ok {name} in" in result.stdout


def test_half_products_of_cublas(vgpu_run: Run) -> None:
    """cuBLAS up to 13.8, because the heuristics of 13.10 offer only Tile IR for devices that they do not know."""
    python = environment(*CUBLAS_WITH_PTX) / "bin/python"
    result = vgpu_run([python, PROGRAMS / "with_cublas.py"], gpu="forward", timeout_s=TIMEOUT_S)
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    assert "ok cublas in" in result.stdout


@pytest.mark.parametrize("ranks", ["1", "2", "2 processes"])
def test_nccl(vgpu_run: Run, ranks: str) -> None:
    """NCCL's collectives with one rank, with two devices in one process, and with a process for each device."""
    python = environment(*NCCL) / "bin/python"
    result = vgpu_run([python, PROGRAMS / "with_nccl.py", *ranks.split()], gpu="forward:2", timeout_s=TIMEOUT_S)
    print(result.stdout)
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    assert "ok nccl in" in result.stdout


def test_jax_on_two_devices(vgpu_run: Run) -> None:
    """JAX's collectives use NCCL."""
    python = environment(*REQUIREMENTS["jax"]) / "bin/python"
    result = vgpu_run([python, PROGRAMS / "with_jax.py", "two_devices"], gpu="forward:2", timeout_s=TIMEOUT_S)
    print(result.stdout)
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    assert "ok jax in" in result.stdout


# Calls that the simulator refuses or does not end: a pattern of their names for each part.
REFUSED = {
    "blas": r"s8 to",  # cuBLAS has no algorithm for devices that it does not know
    "blas_lt": r"s8 to",
}


@pytest.mark.parametrize("part", record.PARTS)
def test_calls_of_libraries(vgpu_run: Run, tmp_path: Path, part: str) -> None:
    """Results of calls agree with numpy's, and with a card's where tests/ecosystem/card.json has them."""
    python = environment(*CUBLAS_WITH_PTX) / "bin/python"
    cupy = environment(*REQUIREMENTS["cupy"]) / SITE
    # The first entry that has a library wins, and CuPy's environment has a newer cuBLAS.
    other = packages(*{"dnn": CUDNN, "npp": NPP}[part]) if part in ("dnn", "npp") else cupy
    path = ":".join(map(str, (environment(*CUBLAS_WITH_PTX) / SITE, cupy, other, merged(None)["PYTHONPATH"])))
    results = tmp_path / "results.json"
    command = [python, Path(record.__file__), "check", CARD, part, "--results", results]
    done = vgpu_run(command, gpu="forward", env={"PYTHONPATH": path}, timeout_s=TIMEOUT_S)
    print(done.stdout)
    answers = json.loads(results.read_text())["results"]
    wrong = {
        name: answer
        for name, answer in answers.items()
        if answer["verdict"] != "right"
        and not (answer["verdict"] in ("refused", "died") and re.search(REFUSED.get(part, "$^"), name))
    }
    assert not wrong, wrong
    assert " 0 different" in done.stdout or not CARD.exists(), done.stdout[-2000:]


def test_census_of_cublas(vgpu_run: Run) -> None:
    """At least 99 of 100 sampled kernels of cuBLAS and cuRAND would run."""
    site = environment(*REQUIREMENTS["cupy"])
    libraries = [next(site.glob(f"{SITE}/nvidia/*/lib/{name}")) for name in ("libcublas.so.13", "libcurand.so.10")]
    vgpu = shutil.which("vgpu")
    assert vgpu
    result = vgpu_run([vgpu, "sim", "census", "--json", "--sample", "100", *libraries], timeout_s=TIMEOUT_S)
    for library in json.loads(result.stdout):
        assert library["read"] >= 20
        assert library["accepted"] >= 0.99 * library["read"], library["refused"]
