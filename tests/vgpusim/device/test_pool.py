"""The threads that run a launch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .conftest import ROOT

LAUNCH = """
import os, sys
from tests.vgpusim.device.conftest import PRIVATE, on_device, open_simulator
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[2])])
library = open_simulator(sys.argv[1])
library.vgx_sim_set_threads(0)
for sim in on_device(library, PRIVATE):
    kernel, address = sim.kernel("fill"), sim.alloc(64)
    before = len(os.listdir("/proc/self/task"))
    assert sim.launch(kernel, address, 5, grid=8) == 0
    sim.ok("cuCtxSynchronize")
    print(len(os.listdir("/proc/self/task")) - before)
"""


def threads_started(library_path: Path, processors: int) -> int:
    """How many threads a process starts for its first launch, if it may use this many processors."""
    command = [sys.executable, "-c", LAUNCH, str(library_path), str(processors)]
    return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def test_threads_of_the_processors_that_the_process_may_use(library_path: Path) -> None:
    usable = len(os.sched_getaffinity(0))
    alone, all_of_them = threads_started(library_path, 1), threads_started(library_path, usable)
    assert all_of_them == alone + usable - 1
