"""Interprocess events are unmapped when nobody uses them, and not under a lock that their work needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.daemon.running import ROOT
from tests.patience import PATIENCE_S

INCLUDES = [f"-I{ROOT / name}" for name in ("daemon/executor", "protocol/c", "build/gen")]


def test_unused_events_are_unregistered_without_the_lock(tmp_path: Path) -> None:
    program = tmp_path / "ipc_event"
    source = Path(__file__).with_name("vgt_ipc_event.c")
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", *INCLUDES, "-o", program, source]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    subprocess.run([program], check=True, timeout=PATIENCE_S)
