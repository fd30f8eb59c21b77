"""A session whose recording nobody reads goes on (daemon/executor/vgx_recording.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.daemon.running import ROOT
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent


def test_a_pipe_that_nobody_reads_ends_the_recording_alone(tmp_path: Path) -> None:
    program = tmp_path / "recording"
    sources = [HERE / "vgt_recording.c", ROOT / "daemon/executor/vgx_recording.c"]
    includes = [f"-I{ROOT / folder}" for folder in ("daemon/executor", "protocol/c", "build/gen")]
    flags = ["-O1", "-Wall", "-Werror", "-pthread", "-DVGX_RECORDING_TIMEOUT_MS=10"]
    subprocess.run(["cc", *flags, *includes, "-o", program, *sources], check=True, timeout=PATIENCE_S)
    subprocess.run([program], check=True, timeout=PATIENCE_S)
