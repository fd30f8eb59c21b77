"""Programs with machine code for a real card run through vgpud on that card. Frameworks: tests/conformance."""

import subprocess
from pathlib import Path

import pytest

from tests.gpu.conftest import RemotedRun

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

PROGRAMS = sorted(p.stem for p in (Path(__file__).parents[1] / "programs").glob("*.cu") if "." not in p.stem)
POLLING = {"order", "words"}  # the host and a running kernel write to each other, which needs shared memory


def natively(program: Path) -> str:
    """What a program prints when it runs natively on the card."""
    return subprocess.run([program], capture_output=True, text=True, timeout=120, check=False).stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(remoted_run: RemotedRun, programs: Path, name: str) -> None:
    if name in POLLING and not remoted_run.shared_memory:
        pytest.skip("it polls memory while a kernel runs")
    done = remoted_run([programs / name])
    if "needs two devices" in done.stdout:
        pytest.skip("this machine has one device")
    if done.returncode == 1 and natively(programs / name) == done.stdout:
        pytest.xfail(f"the card itself does not do what the program expects: {done.stdout}")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert f"ok {name}" in done.stdout
