"""The launcher's n-th fork fails, as where the host has no process left: a client is told, and the next is served."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from vgpud.cli.client import RefusedError

from tests.daemon.running import ENVIRONMENT, Running, wait_until

# Found through PYTHONPATH by every Python that vgpud starts; the launcher alone is changed.
SITE = """
import errno, itertools, os, sys
if "vgpud.worker.loader" in sys.orig_argv:
    real, counts = os.fork, itertools.count(1)
    def fork():
        if next(counts) == NUMBER:
            os.write(2, b"<6>this fork fails\\n")
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return real()
    os.fork = fork
"""


@pytest.mark.parametrize("number", range(1, 7))
def test_a_fork_that_fails_harms_one_client_at_most(tmp_path: Path, number: int) -> None:
    """The first fork is the launcher; the next are trials of what the kernel permits, and what they could not test is
    reported as missing."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(f"NUMBER = {number}\n{SITE}")
    config = tmp_path / "vgpud.toml"
    config.write_text(
        f"listen = ['unix:{tmp_path}/vgpud.sock']\nadmin = '{tmp_path}/admin.sock'\ncache_dir = '{tmp_path}'\n"
        "limits.spare_workers = 0\n"
    )
    path = f"{tmp_path}/site:{ENVIRONMENT['PYTHONPATH']}"
    running = Running.start(config, tmp_path, "log", env={"PYTHONPATH": path})
    try:
        running.wait_ready()
        refused = []
        for _ in range(3):
            with running.client() as client:
                client.hello()
                try:
                    assert client.attach().worker
                except RefusedError as error:
                    refused.append(error.reason)
        assert len(refused) <= 1
        assert all("Resource temporarily unavailable" in reason for reason in refused)
        running.wait_log("this fork fails")
        wait_until(lambda: running.status()["sessions"] == [])
        wait_until(lambda: running.status()["workers"] == 0)
    finally:
        with contextlib.suppress(Exception):
            running.end()
