"""Other projects' own test suites, as their packages ship them, on simulated devices.

What fails is compared with suites.tsv: suite, pattern of a test's name, reason. `make test-ecosystem` runs as many
processes as there are processors; elsewhere.py runs the same on a machine without a network.
"""

import fnmatch
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ecosystem import suites
from tests.ecosystem.requirements import NUMBA, TINYGRAD
from tests.ecosystem.suite_runner import Runner
from tests.pypi import SITE, environment
from tests.torch.conftest import torch_python

Record = Callable[[str, object], None]  # pytest's record_property: docs/ecosystem.md shows "counts"
EXPECTED = Path(__file__).parent / "suites.tsv"
TIMEOUT_S = 7200

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(TIMEOUT_S + 60)]


def expected(suite: str) -> list[str]:
    """Patterns of the names of the tests of a suite that may fail."""
    rows = [line.split("\t") for line in EXPECTED.read_text().splitlines() if not line.startswith("#")]
    assert all(len(row) == 3 for row in rows), "suite, test, reason"
    return [test for name, test, _ in rows if name == suite]


def run(suite: suites.Suite, record_property: Record) -> None:
    """Run a suite. No test fails but those that suites.tsv names, and all are run."""
    runner = Runner(os.cpu_count() or 1, time.monotonic() + TIMEOUT_S)
    runner.run(runner.collect([suite]))
    counts = Counter(result.outcome for result in runner.results)
    record_property("counts", ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    failed = [result for result in runner.results if not result.is_well]
    print(*(f"{result.row}\n{result.text}" for result in failed), sep="\n")
    known = expected(suite.name)
    assert not [each.test for each in failed if not any(fnmatch.fnmatch(each.test, pattern) for pattern in known)]


def program(name: str) -> Path:
    """A program that the machine has, as of a distribution's package."""
    found = shutil.which(name)
    if not found:
        pytest.skip(f"no {name} on PATH")
    return Path(found)


def test_numba_cuda(record_property: Record) -> None:
    python = environment(*NUMBA)
    run(suites.numba_cuda(python / "bin/python", python / SITE), record_property)


def test_tinygrad(record_property: Record) -> None:
    """test_ops of a checkout of tinygrad at v0.13.0, which VGPU_TINYGRAD names: its package has no tests."""
    checkout = os.environ.get("VGPU_TINYGRAD")
    if not checkout:
        pytest.skip("VGPU_TINYGRAD does not name a checkout of tinygrad v0.13.0")
    python, torch = environment(*TINYGRAD), torch_python().parents[1] / SITE
    libraries = python / SITE / "nvidia/cu13/lib"
    run(suites.tinygrad(python / "bin/python", Path(checkout), libraries, torch), record_property)


def test_hashcat(record_property: Record) -> None:
    """hashcat of a distribution, and NVRTC of PyPI."""
    run(suites.hashcat(program("hashcat"), environment(*TINYGRAD) / "bin/python"), record_property)


def test_ffmpeg(record_property: Record) -> None:
    run(suites.ffmpeg(Path(sys.executable), program("ffmpeg")), record_property)
