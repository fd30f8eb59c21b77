"""On a real card: programs with machine code for it through vgpud. Frameworks: tests/conformance."""

from pathlib import Path

import pytest

from tests.gpu.conftest import RemotedRun

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

PROGRAMS = sorted(p.stem for p in (Path(__file__).parents[1] / "programs").glob("*.cu") if "." not in p.stem)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(remoted_run: RemotedRun, programs: Path, name: str) -> None:
    done = remoted_run([programs / name])
    if name == "pinned" and not remoted_run.shared_memory:  # the one thing that needs memory in common: it is said so
        assert "cudaErrorNotSupported" in done.stdout
        return
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert f"ok {name}" in done.stdout
