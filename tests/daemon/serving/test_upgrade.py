"""An upgrade as a package does it: the running vgpud's files are replaced, then `vgpu restart`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from vgpud.cli.main import vgpu

from tests.daemon.at_work import AtWork
from tests.daemon.running import ROOT, Running

PROGRAMS = 20
OTHER = "0.1.0+other"


def install(target: Path, version: str | None = None) -> None:
    """Copy vgpud to `target`, with `version` as its version."""
    for name in ("daemon", "guest"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "build").symlink_to(ROOT / "build")
    if version is not None:
        path = target / "daemon/vgpud/__init__.py"
        path.write_text(re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', path.read_text(), flags=re.M))


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Running]:
    """A vgpud that runs from tmp_path/installed."""
    folder = tmp_path / "installed"
    install(folder)
    config = tmp_path / "vgpud.toml"
    config.write_text(f"listen = ['unix:{tmp_path}/s']\nadmin = '{tmp_path}/admin.sock'\ncache_dir = '{tmp_path}'\n")
    running = Running.start(config, tmp_path, "log", {"PYTHONPATH": f"{folder}/daemon:{folder}/guest"})
    running.wait_ready()
    yield running
    running.end()


def test_no_program_notices(installed: Running, tmp_path: Path) -> None:
    before = installed.status()["version"]
    programs = AtWork(installed, PROGRAMS)
    workers = {session["worker_pid"] for session in installed.admin.get("sessions")["sessions"]}
    assert len(workers) == PROGRAMS
    install(tmp_path / "next", OTHER)
    (tmp_path / "installed").rename(tmp_path / "previous")
    (tmp_path / "next").rename(tmp_path / "installed")
    programs.mark()
    done = CliRunner().invoke(vgpu, ["restart", "--admin", str(installed.admin_path)])
    assert done.exit_code == 0, done.output + installed.log
    assert before != OTHER
    assert installed.status()["version"] == OTHER
    assert {session["worker_pid"] for session in installed.admin.get("sessions")["sessions"]} == workers
    result = programs.end()
    assert result.failed == 0, installed.log
    assert result.turns > PROGRAMS
    print(f"longest turn: {result.longest_before_ms:.0f} ms before, {result.longest_after_ms:.0f} ms from then on")
    assert installed.status()["metrics"]["workers_failed"] == 0
