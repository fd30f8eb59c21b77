"""Translating the worker's clock to the profiler's: offset and drift, over networks with latency."""

import itertools
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from vgpud.bench.side import Host

from tests.bench.delay import Delay
from tests.conftest import ROOT

SOURCE = Path(__file__).with_name("vgt_cupti_clock.c")
PROGRAM = Path(__file__).with_name("activity.py")
INCLUDES = ["build/gen", "build/gen/cupti", "protocol/c", "shim/base", "shim/cupti"]


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("clock") / "clock"
    flags = [*(f"-I{ROOT / folder}" for folder in INCLUDES), "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    library = ROOT / "shim/cupti/vgs_cupti_clock.c"
    part = program.with_suffix(".o")
    subprocess.run(["cc", *flags, "-Dclock_gettime=fake_clock_gettime", "-c", library, "-o", part], check=True)
    subprocess.run(["cc", *flags, SOURCE, part, "-o", program], check=True)
    return program


@pytest.mark.parametrize("ppm", [0, 200, -200])
@pytest.mark.parametrize(
    ("up_us", "down_us", "jitter_us"),
    [(2500, 2500, 0), (2500, 2500, 2000), (4000, 1000, 0), (1000, 4000, 500), (30, 30, 20)],
)
def test_error(clock: Path, up_us: int, down_us: int, jitter_us: int, ppm: int) -> None:
    """The error is at most half a round trip, however the two ways share the latency, and drift is corrected.

    For the first records, over 20 ms, drift is not corrected; jitter counts as part of a round trip's time.
    """
    command = [clock, str(up_us), str(down_us), str(jitter_us), str(ppm)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    largest_ns, later_ns, ordered = map(int, result.stdout.split())
    bound_ns = 1000 * (up_us + down_us + 2 * jitter_us) / 2
    assert largest_ns <= bound_ns + 20000
    assert later_ns <= bound_ns + 20000
    assert ordered
    if not jitter_us:
        assert largest_ns == pytest.approx(1000 * abs(up_us - down_us) / 2, abs=20000)


def test_order_over_a_network(tmp_path: Path) -> None:
    """With a 5 ms round trip each kernel begins after its launch began and ends before the wait for it ends."""
    with ExitStack() as stack:
        host = stack.enter_context(Host("tcp", tmp_path, "simulator", "h100", "libcuda.so.1"))
        delay = stack.enter_context(Delay(host.side.environment["VGPU_ENDPOINT"], 5000))
        env = host.side.of_program() | {"VGPU_ENDPOINT": delay.endpoint}
        command = [sys.executable, str(PROGRAM), "13", "everything"]
        result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    calls = {row["correlationId"]: row for row in rows if row["record"] == "API"}
    work = [row for row in rows if row["record"] in ("Kernel", "Memcpy", "Memset")]
    assert len(work) == 5
    work.sort(key=lambda row: row["correlationId"])
    assert all(calls[row["correlationId"]]["start"] <= row["start"] <= row["end"] for row in work)
    assert all(a["end"] <= b["start"] for a, b in itertools.pairwise(work))
    waits = [row for row in rows if row["record"] == "Synchronization" and row["type"] == 4]
    assert work[-1]["end"] <= waits[-1]["end"]
