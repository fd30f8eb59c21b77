"""Interprocess events are unmapped when nobody uses them, and neither that nor an export holds a lock that the events'
work needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.daemon.running import ROOT
from tests.patience import PATIENCE_S

FOLDERS = [ROOT / name for name in ("daemon/executor", "protocol/c", "build/gen")]


def status(name: str, folder: Path, *first: Path) -> int:
    """Compile vgt_NAME.c in `folder`, with headers and sources of `first` in front, and run it; return its status."""
    program, source = folder / name, Path(__file__).with_name(f"vgt_{name}.c")
    includes = [f"-I{path}" for path in (*first, *FOLDERS)]
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", *includes, "-o", program, source]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    return subprocess.run([program], check=False, timeout=PATIENCE_S).returncode


def test_unused_events_are_unregistered_without_the_lock(tmp_path: Path) -> None:
    assert status("ipc_event", tmp_path) == 0


def test_memory_is_exported_without_the_lock(tmp_path: Path) -> None:
    assert status("ipc_export", tmp_path) == 0


def test_an_export_with_the_lock_is_noticed(tmp_path: Path) -> None:
    for name in ("vgx_ipc.c", "vgx_share.c"):
        text = (ROOT / "daemon/executor" / name).read_text()
        (tmp_path / name).write_text(text.replace("export_lock", "ipc_lock"))
    assert status("ipc_export", tmp_path, tmp_path) > 0
