"""The end of tests that take longer than `make worker-lines` allows them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.daemon.running import ENVIRONMENT, ROOT

# A test process that ignores SIGINT, and a child of it in a process session of its own, as tests start vgpud.
STARTED = "import subprocess; it = subprocess.Popen(['cat'], start_new_session=True); print(it.pid, flush=True)"
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
# In a process of its own, which becomes the parent of orphans.
ENDS = """
import subprocess, sys
from tests.daemon.running import process_exists
from tests.fuzz import worker_lines

worker_lines.REPORT_S = 0.1
below = worker_lines.Descendants()
process = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child = int(process.stdout.readline())
worker_lines.end(process, below)
print(process_exists(child), process.returncode)
"""


@pytest.mark.parametrize("setup", ["", DEAF], ids=["reports", "deaf"])
def test_what_a_test_has_started_ends_with_it(setup: str) -> None:
    program = f"{setup}\n{STARTED}\nit.wait()"
    command = [sys.executable, "-c", ENDS, program]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout in (f"False {-signal.SIGINT}\n", f"False {-signal.SIGKILL}\n")
