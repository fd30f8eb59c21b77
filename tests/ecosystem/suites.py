"""Test suites of other projects: how their tests are found and run. suite_runner.py runs them on simulated devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
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
    gpu: str
    command: tuple[str, ...]  # a program, or pytest without its tests
    folder: Path  # the working directory
    env: Mapping[str, str] = field(default_factory=dict)
    tests: tuple[str, ...] = ()  # files or folders for pytest
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # arguments by test
    expected: str = ""  # the output of a program contains it if all is well
    at_once: int = 20  # how many tests of a file a process runs
    limit_s: int = 600  # of a process
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
