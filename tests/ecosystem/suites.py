"""Test suites of other projects: how their tests are found and run. suite_runner.py runs them on simulated devices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
ON_CARD = "samples on the card"
# The word "fox", by hashcat's number of the kind of hash.
HASHES = {
    "0": "2b95d1f09b8b66c5c43622a4d9ec9a04",  # MD5
    "100": "ff0f0a8b656f0b44c26933acd2e367b6c1211290",  # SHA-1
    "1000": "49ba3d3dd1d22b22152812fb31aa6174",  # NTLM
    "1400": "776cb326ab0cd5f0a974c1b9606044d8485201f2db19cf8e3749bdee5f36e200",  # SHA-256
}


@dataclass(frozen=True)
class Suite:
    """Tests that pytest collects, or a program that is run with the arguments of each test."""

    name: str
    gpu: str  # of `vgpu run`, or "" if the command itself starts it
    command: tuple[str, ...]  # a program, or pytest without its tests
    folder: Path  # the working directory
    env: Mapping[str, str] = field(default_factory=dict)
    tests: tuple[str, ...] = ()  # files or folders for pytest
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # arguments by test
    expected: str = ""  # if all is well, the output of a program contains it; else the exit code is 0
    at_once: int = 20  # how many tests of a file a process runs
    limit_s: int = 600  # of a process
    is_sampled: bool = False  # too large to be run whole: in random order, the same each time
    options: tuple[str, ...] = ("--no-torch",)  # of `vgpu run`


def pytest_command(python: Path, root: Path, *options: str) -> tuple[str, ...]:
    fixed = ("-c", os.devnull, "-p", "no:cacheprovider", "-p", "suite_report", f"--rootdir={root}", "-q", "--tb=short")
    return (str(python), "-m", "pytest", *fixed, *options)


def python_path(*folders: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(map(str, (PROGRAMS, *folders)))}


def numba_cuda(python: Path, site: Path) -> Suite:
    """The tests in numba-cuda's package in `site`, without its benchmarks and the tests of its own simulator.

    On `forward`, NUMBA_FORCE_CUDA_CC answers in the place of the capability that two tests ask for.
    """
    tests = site / "numba_cuda/numba/cuda/tests"
    folders = tuple(str(tests / name) for name in ("cudadrv", "cudapy", "core", "nocuda", "nrt", "doc_examples"))
    command = pytest_command(
        python, site, "-o", "consider_namespace_packages=true", "--timeout=300", "--timeout-method=thread"
    )
    return Suite("numba-cuda", "h100", command, site, env=python_path(), tests=folders)


def tinygrad(python: Path, checkout: Path, libraries: Path, *paths: Path) -> Suite:
    """test_ops of a checkout of tinygrad, as its package has no tests.

    Args:
        libraries: the folder of NVRTC.
        paths: further folders with the packages of the tests, for one compares with torch.
    """
    env = python_path(checkout, *paths)
    env |= {"DEV": "CUDA", "CACHELEVEL": "0", "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": str(libraries)}
    tests = (str(checkout / "test/backend/test_ops.py"),)
    command = pytest_command(python, checkout, "--timeout=200", "--timeout-method=thread")
    return Suite("tinygrad", "h100", command, checkout, env=env, tests=tests, at_once=8)


def hashcat(program: Path, python: Path, libraries: Path | None = None) -> Suite:
    """hashcat's self-test of kinds of hashes, each followed by an attack on three letters.

    With more work for a launch than the least (-n 1 -u 1 -T 32), it finds the simulated device too slow.

    Args:
        python: one with NVIDIA's NVRTC, which `vgpu run` finds if this Python is the first on PATH.
        libraries: a folder of its shared libraries, if it has one.
    """
    options = ("-a", "3", "--force", "-n", "1", "-u", "1", "-T", "32", "--potfile-disable", "--logfile-disable")
    programs = {
        f"-m {mode}": ("-m", mode, "--session", f"m{mode}", *options, HASHES[mode], "?l?l?l") for mode in HASHES
    }
    env = {"LD_LIBRARY_PATH": str(libraries or ""), "PATH": os.pathsep.join((str(python.parent), os.environ["PATH"]))}
    return Suite(
        "hashcat",
        "h100",
        (str(program),),
        program.parent,
        env=env,
        programs=programs,
        expected="Status...........: Cracked",
        at_once=1,
    )


def ffmpeg(python: Path, program: Path) -> Suite:
    """ffmpeg's CUDA filters beside those on the CPU."""
    command = (str(python), str(PROGRAMS / "with_ffmpeg.py"))
    programs = {"filters": (str(program),)}
    return Suite("ffmpeg", "forward", command, program.parent, programs=programs, expected="ok ffmpeg in", at_once=1)


def own(python: Path, root: Path) -> Suite:
    """The tests of this project that run programs of others, on the packages that `python` has (tests/pypi.py)."""
    command = (str(python), "-m", "pytest", "-p", "no:cacheprovider", "-p", "suite_report", "-q", "--tb=short")
    tests = ("tests/ecosystem/test_ecosystem.py", "tests/torch")
    env = {"VGPU_TEST_INSTALLED": "1", "OMP_NUM_THREADS": "1", **python_path()}
    left_out = [f"--deselect={tests[0]}::{name}" for name in ("test_installs", "test_framework")]
    command = (*command, "-m", "ecosystem", *left_out, "--ignore=tests/torch/test_versions.py")
    return Suite("vgpu", "", command, root, env=env, tests=tests, at_once=1, limit_s=1800)


def frameworks(python: Path) -> Suite:
    """The programs of test_ecosystem.py, part by part."""
    parts = {
        "cupy": ("elementwise", "reductions", "linalg", "fft", "random", "sparse"),
        "jax": ("small", "arrays", "grad", "convolution", "transformer"),
        "triton": ("torch",),
    }
    programs = {f"{name} {part}": (str(PROGRAMS / f"with_{name}.py"), part) for name in parts for part in parts[name]}
    programs["demo"] = (str(ROOT / "tests/clients/programs/with_cupy.py"),)  # what `make demo` runs after set-up
    return Suite(
        "frameworks",
        "forward",
        (str(python),),
        ROOT,
        env=python_path(),
        programs=programs,
        at_once=1,
        options=(),
    )


def samples(python: Path, checkout: Path, names: Iterable[str]) -> Suite:
    """NVIDIA's samples on the simulator, each by itself."""
    command = (str(python), "tests/ecosystem/samples.py", str(checkout))
    env = {"VGPU_TEST_INSTALLED": "1"}
    programs = {name: (name, "--document", os.devnull) for name in names}
    return Suite("samples", "", command, ROOT, env=env, programs=programs, expected="| right |", at_once=1)


def samples_on_card(python: Path, checkout: Path, names: Iterable[str]) -> Suite:
    """NVIDIA's samples on a card, natively and remoted.

    Args:
        checkout: another copy than that of `samples`, for both put images into its folders.
    """
    command = (str(python), "tests/gpu/samples.py", str(checkout))
    programs = {name: (name, "--all") for name in names}
    return Suite(ON_CARD, "", command, ROOT, programs=programs, expected="| 0 | 0 |", at_once=1, limit_s=120)


def cupy(python: Path, checkout: Path) -> dict[str, Suite]:
    """CuPy's own tests, of a checkout of its version."""
    parts = {name: f"cupy_tests/{name}_tests" for name in ("core", "fft", "linalg", "random")}
    parts["sparse"] = "cupyx_tests/scipy_tests/sparse_tests"
    command = pytest_command(python, checkout / "tests", "--timeout=200", "--timeout-method=thread")
    return {
        f"cupy {part}": Suite(
            f"cupy {part}",
            "forward",
            command,
            checkout / "tests",
            env=python_path(),
            tests=(folder,),
            at_once=60,  # a process takes seconds to collect a file
            is_sampled=True,
        )
        for part, folder in parts.items()
    }


def tutorials(python: Path, folder: Path) -> Suite:
    """Triton's tutorials, without their measurements."""
    programs = {path.name: (str(path),) for path in sorted(folder.glob("0*.py"))}
    command = (str(python), str(PROGRAMS / "with_tutorial.py"))
    return Suite(
        "tutorials",
        "h100",
        command,
        folder,
        env=python_path(),
        programs=programs,
        expected="ok ",
        at_once=1,
        options=(),
    )


def ggml(program: Path) -> Suite:
    """llama.cpp's library of operators, by its own test program: each on CUDA beside the CPU."""
    names = ("MUL_MAT_ID", "SOFT_MAX", "ROPE", "RMS_NORM", "ADD", "MUL", "GET_ROWS", "CPY", "ARGSORT", "IM2COL")
    programs = {name: ("test", "-b", "CUDA0", "-o", name) for name in names}
    for kind in ("f32", "f16", "bf16", "q4_0", "q8_0", "q4_K", "q6_K"):
        products = ("test", "-b", "CUDA0", "-o", "MUL_MAT", "-p", f"type_a={kind},")
        programs[f"MUL_MAT {kind}"] = products
    attention = ("test", "-b", "CUDA0", "-o", "FLASH_ATTN_EXT", "-p", "hsk=64,hsv=64,nh=4,nr23=.1,1.,kv=113")
    programs["FLASH_ATTN_EXT"] = attention
    return Suite("ggml", "forward", (str(program),), program.parent, programs=programs, at_once=1, limit_s=400)
