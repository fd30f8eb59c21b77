"""Residue between tenants on a real card: as tests/daemon/tenancy/test_residue.py, in up to 16 GiB of free memory."""

from __future__ import annotations

import sys

import pytest

from tests.daemon.tenancy.test_residue import LEAVE, SEARCH
from tests.gpu.conftest import RemotedRun
from tests.shim.client import PRELUDE

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

# Searches the free memory in pieces, so that pages which another process has freed are among them.
LOOK = f"""
context()
{SEARCH}
free, total = c_size_t(), c_size_t()
ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
piece, hits, looked = 256 << 20, 0, 0
while looked + 2 * piece < min(free.value, 16 << 30):
    hits += found(alloc(piece), piece)
    looked += piece
print(hits, looked)
"""


def test_the_next_session_finds_nothing_of_the_last_on_a_card(remoted_run: RemotedRun) -> None:
    left = remoted_run([sys.executable, "-c", PRELUDE + LEAVE])
    assert left.returncode == 0, left.stderr
    looked = remoted_run([sys.executable, "-c", PRELUDE + LOOK], timeout_s=500)
    assert looked.returncode == 0, looked.stderr
    hits, nbytes = map(int, looked.stdout.split())
    assert nbytes >= 1 << 30
    assert hits == 0
