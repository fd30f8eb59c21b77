"""Situations of a process: no driver, no device, forks, unloading, threads, several devices."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import run_on, vgpud_of
from tests.cudart.runtimes import MAJORS, Major

Run = Callable[..., CompletedProcess[str]]
PROGRAM = Path(__file__).parent / "programs/process.py"
each = pytest.mark.parametrize("major", MAJORS, ids=lambda major: str(major.number))


@pytest.fixture(scope="module")
def run_on_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """`vgpu_run` on one vgpud with two devices of two kinds."""
    with vgpud_of("h100,t4", tmp_path_factory.mktemp("two")) as endpoint:
        yield run_on(endpoint)


def assert_ok(result: CompletedProcess[str]) -> None:
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
    assert result.stdout.splitlines()[-1:] == ["ok"]


@each
@pytest.mark.parametrize(
    "situation",
    [
        "fork_before",
        "fork_after",
        "fork_while_others_work",
        "unload",
        "threads",
        "variables_of_two_devices",
        "context_of_the_driver",
        "bad_image",
    ],
)
def test_situation(run_on_two: Run, major: Major, situation: str) -> None:
    assert_ok(run_on_two([sys.executable, PROGRAM, major.ours, situation]))


@each
def test_D10_no_visible_device(h100_run: Run, major: Major) -> None:
    assert_ok(h100_run([sys.executable, PROGRAM, major.ours, "no_device"], env={"CUDA_VISIBLE_DEVICES": "-1"}))


@each
def test_no_driver(major: Major) -> None:
    if (
        subprocess.run(
            [sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], capture_output=True
        ).returncode
        == 0
    ):
        pytest.skip("this machine has a driver library")
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    command = [sys.executable, str(PROGRAM), str(major.ours), "no_driver"]
    assert_ok(subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment))


@each
def test_D11_codes_of_cuinit_come_out_unchanged(major: Major) -> None:
    """The driver's library exists, but no daemon runs."""
    library = major.ours.parents[2]
    code = (
        "import ctypes, sys; n = ctypes.c_int(-7); driver = ctypes.CDLL('libcuda.so.1').cuInit(0); "
        "runtime = ctypes.CDLL(sys.argv[1]).cudaGetDeviceCount(ctypes.byref(n)); print(driver, runtime, n.value)"
    )
    environment = os.environ | {"LD_LIBRARY_PATH": str(library), "VGPU_ENDPOINT": "unix:/nonexistent/socket"}
    result = subprocess.run(
        [sys.executable, "-c", code, str(major.ours)], capture_output=True, text=True, timeout=60, env=environment
    )
    driver, runtime, count = map(int, result.stdout.split())
    assert driver not in (0, 3)
    assert runtime == driver
    assert count == -7


@each
def test_L03_a_name_without_a_body_is_not_supported_and_logged_once(h100_run: Run, major: Major) -> None:
    result = h100_run([sys.executable, PROGRAM, major.ours, "unsupported"], env={"VGPU_LOG": "error"})
    assert_ok(result)
    lines = [line for line in result.stderr.splitlines() if "cudaMallocArray" in line]
    assert len(lines) == 1
    assert "NOT_SUPPORTED" in lines[0]
