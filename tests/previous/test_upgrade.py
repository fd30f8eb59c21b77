"""Upgrade from the build of the previous commit, with twenty programs running: `vgpu restart` takes them over, or
refuses with a reason where the two versions' data about sessions differ; in both cases no program fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from vgpud.cli.main import vgpu

from tests.daemon.at_work import AtWork
from tests.daemon.running import ROOT, Running
from tests.previous.build import build, why_not

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(1800)]
PROGRAMS = 20
COMMIT = os.environ.get("VGPU_TEST_UPGRADE_FROM", "HEAD^")


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Running]:
    """A vgpud of the previous commit, which runs from tmp_path/installed."""
    if reason := why_not(COMMIT):
        pytest.skip(reason)
    build(COMMIT, tmp_path / "before")
    folder = tmp_path / "installed"
    folder.symlink_to("before")
    config = tmp_path / "vgpud.toml"
    config.write_text(f"listen = ['unix:{tmp_path}/s']\nadmin = '{tmp_path}/admin.sock'\ncache_dir = '{tmp_path}'\n")
    running = Running.start(config, tmp_path, "log", {"PYTHONPATH": f"{folder}/daemon:{folder}/guest"})
    running.wait_ready()
    yield running
    running.end()


def test_from_the_commit_before(installed: Running, tmp_path: Path) -> None:
    programs = AtWork(installed, PROGRAMS)
    (tmp_path / "installed").unlink()
    (tmp_path / "installed").symlink_to(ROOT)
    programs.mark()
    done = CliRunner().invoke(vgpu, ["restart", "--admin", str(installed.admin_path)])
    if done.exit_code == 0:
        assert len(installed.admin.get("sessions")["sessions"]) == PROGRAMS
    else:
        assert "takes over no sessions from the one that runs" in done.output
    result = programs.end()
    assert result.failed == 0, installed.log
    print(done.output.strip())
    print(f"longest turn: {result.longest_before_ms:.0f} ms before, {result.longest_after_ms:.0f} ms from then on")
