"""Unmodified programs from PyPI and npm that are linked to the shared runtime, run with vgpu's runtime.

The programs also need libcublas; c/vgt_cublas.c replaces it and computes the only matrix product that they call.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cudart.runtimes import BY_NUMBER
from tests.npm import npm_package
from tests.pypi import environment, packages

Run = Callable[..., CompletedProcess[str]]
HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
OURS = ("--cudart", "vgpu")
GPT4ALL_GPUS = "from gpt4all import GPT4All; print('gpus', GPT4All.list_gpus())"

pytestmark = [pytest.mark.client, pytest.mark.timeout(700)]


@pytest.fixture(scope="session")
def cublas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-ins for libcublas and libcublasLt, under each major's name and version tag."""
    folder = tmp_path_factory.mktemp("cublas")
    for stem, source in (("libcublas", "vgt_cublas.c"), ("libcublasLt", "vgt_cublaslt.c")):
        for major in (11, 12, 13):
            soname = f"{stem}.so.{major}"
            script = folder / f"{soname}.map"
            script.write_text(f"{soname} {{ global: cublas*; local: *; }};\n")
            command = ["cc", "-O2", "-shared", "-fPIC", f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}"]
            subprocess.run([*command, "-o", str(folder / soname), str(HERE / "c" / source)], check=True, timeout=60)
    return folder


@pytest.fixture(scope="session")
def ggml() -> Path:
    """llama.cpp as node-llama-cpp ships it: linked to runtime 13, with PTX for compute capabilities 7.5 and 8.0."""
    return npm_package("@node-llama-cpp/linux-x64-cuda", "3.14.5") / "bins/linux-x64-cuda"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    python = environment("gguf==0.17.1", "numpy") / "bin/python"
    subprocess.run([str(python), str(PROGRAMS / "tiny_llama.py"), str(path)], check=True, timeout=120)
    return path


def assert_done(result: CompletedProcess[str]) -> None:
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-3000:]}"


@pytest.mark.parametrize("gpu", ["h100", "t4"])
def test_llama_cpp_13_binds_finds_the_device_and_computes(vgpu_run: Run, cublas: Path, ggml: Path, gpu: str) -> None:
    env = {"LD_LIBRARY_PATH": str(cublas)}  # the h100 uses CUDA graphs: capability 8.0 and newer
    result = vgpu_run([sys.executable, PROGRAMS / "with_ggml.py", ggml, "compute"], gpu=gpu, env=env, options=OURS)
    assert_done(result)
    assert "devices 1" in result.stdout.splitlines()
    assert "ok ggml" in result.stdout.splitlines()
    assert "vgpu[" not in result.stderr, "the shim printed between the program's lines (case D05)"


def test_ctransformers_12_says_on_the_gpu_what_it_says_on_the_cpu(vgpu_run: Run, cublas: Path, model: Path) -> None:
    python = environment("ctransformers==0.2.27") / "bin/python"
    command = [str(python), str(PROGRAMS / "with_ctransformers.py"), str(model)]
    expected = subprocess.run([*command, "basic"], capture_output=True, text=True, timeout=120)
    assert_done(expected)
    assert re.search(r"^said b'.+'$", expected.stdout, re.MULTILINE)
    for gpu in ("h100", "t4"):
        run = ["env", "-u", "PYTHONPATH", *command, "cuda"]
        result = vgpu_run(run, gpu=gpu, env={"LD_LIBRARY_PATH": str(cublas)}, options=OURS)
        assert_done(result)
        assert result.stdout == expected.stdout


def test_gpt4all_11_binds_and_finds_the_device(vgpu_run: Run, cublas: Path) -> None:
    python = environment("gpt4all==2.8.2") / "bin/python"
    command = ["env", "-u", "PYTHONPATH", python, "-c", GPT4ALL_GPUS]
    result = vgpu_run(command, gpu="t4", env={"LD_LIBRARY_PATH": str(cublas)}, options=OURS)
    assert_done(result)
    assert "gpus ['cuda:Tesla T4']" in result.stdout.splitlines()


@pytest.mark.parametrize(("gpus", "count"), [("h100", 1), ("t4,h100", 2)])
def test_D03_D04_D05_D07_ollama_finds_all(vgpu_run: Run, cublas: Path, ggml: Path, gpus: str, count: int) -> None:
    """Ollama's three ways of finding GPUs, one with a second pass by UUID, agree on each device's address and UUID."""
    command = [sys.executable, PROGRAMS / "discover.py", ggml]
    result = vgpu_run(command, gpu=gpus, env={"LD_LIBRARY_PATH": str(cublas)}, options=OURS)
    assert_done(result)
    assert result.stdout.splitlines() == [f"{way} accepted {count}" for way in "ABC"]


@pytest.mark.parametrize(
    ("build", "major", "task"),
    [
        ("cuda118", 11, "compute"),
        ("cuda126", 12, "compute"),
        ("cuda130", 13, "bind"),  # the PTX needs a newer device than any simulated one
    ],
)
def test_bitsandbytes_of_three_majors(vgpu_run: Run, cublas: Path, build: str, major: int, task: str) -> None:
    library = packages("bitsandbytes==0.50.2") / f"bitsandbytes/libbitsandbytes_{build}.so"
    command = [sys.executable, PROGRAMS / "with_bitsandbytes.py", library, BY_NUMBER[major].soname, task]
    result = vgpu_run(command, env={"LD_LIBRARY_PATH": str(cublas)}, options=OURS)
    assert_done(result)
    assert result.stdout.splitlines()[-1:] == ["ok bitsandbytes"]
