"""Unified addressing on a real card: see tests/shim/test_claim.py."""

from __future__ import annotations

import sys

import pytest

from tests.gpu.conftest import RemotedRun
from tests.shim.claim_programs import AROUND, REGION, TOOLS
from tests.shim.client import PRELUDE

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


def test_no_way_to_allocate_gives_what_is_the_programs(remoted_run: RemotedRun) -> None:
    program = f"{PRELUDE}{TOOLS}makers = [linear, pitched, stream_ordered, reserved]\n{AROUND}"
    done = remoted_run([sys.executable, "-c", program])
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_regions_on_both_sides_of_an_allocation_are_left(
    remoted_run: RemotedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Says where the driver puts allocations and reservations, whatever the result."""
    done = remoted_run(["env", "VGPU_LOG=info", sys.executable, "-c", PRELUDE + TOOLS + REGION])
    channel = "shared memory" if remoted_run.shared_memory else "socket"
    with capsys.disabled():
        print(f"\n{channel}:\n{done.stdout}{done.stderr}", flush=True)
    assert done.returncode == 0, (done.stdout, done.stderr)
