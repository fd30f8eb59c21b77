"""The daemon as a service: readiness, reload, second instance, stale socket, the unit file."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from vgpud.cli.client import RefusedError
from vgpud.cli.status import ExitStatus

from tests.daemon.running import ENVIRONMENT, ROOT, Running, wait_until
from tests.patience import PATIENCE_S


def run_vgpud(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vgpud", *arguments],
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_second_instance_says_so_in_one_line(start):
    running = start()
    second = run_vgpud("--config", str(running.config))
    assert second.returncode == ExitStatus.ALREADY_RUNNING
    assert second.stderr == f"vgpud: another vgpud is serving {running.endpoint}\n"
    with running.client() as client:
        client.hello()


def test_a_killed_predecessors_socket_is_taken_over(start):
    running = start()
    running.process.kill()
    running.process.wait()
    assert os.path.exists(running.endpoint.path)
    again = start()
    with again.client() as client:
        client.hello()


def test_a_bad_configuration_is_told_by_line(tmp_path):
    config = tmp_path / "bad.toml"
    config.write_text("gpus = 'h100'\n[limits]\nmax_sesions = 3\n")
    ended = run_vgpud("--config", str(config))
    assert ended.returncode == ExitStatus.CONFIG
    assert ended.stderr == f"vgpud: {config}:3: limits.max_sesions: unknown key\n"


def test_an_unknown_gpu_is_told():
    ended = run_vgpud("--gpus", "h1000", "--check")
    assert ended.returncode == ExitStatus.CONFIG
    assert "h1000" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_check_reads_only(tmp_path):
    ended = run_vgpud("--gpus", "h100:2,t4", "--listen", f"unix:{tmp_path}/v.sock", "--check")
    assert ended.returncode == 0
    assert ended.stdout == f"good: 3 devices, listening on unix:{tmp_path}/v.sock\n"
    assert list(tmp_path.iterdir()) == []


def test_ready_watchdog_and_stopping_are_notified(start, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        monkeypatch.setitem(ENVIRONMENT, "NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setitem(ENVIRONMENT, "WATCHDOG_USEC", "200000")
        running = start()
        assert manager.recv(1000).startswith(b"READY=1\nSTATUS=3 devices")
        assert [manager.recv(1000) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        running.end()
        while not (stopping := manager.recv(1000)).startswith(b"STOPPING=1\nEXTEND_TIMEOUT_USEC="):
            pass
        assert int(stopping.rpartition(b"=")[2]) >= 5_000_000  # at least drain_timeout_s (GP7)


def test_sighup_takes_limits_and_tokens_anew(start):
    running = start()
    running.config.write_text(
        running.config.read_text().replace("h100:2,t4", "t4") + "[limits]\nsessions_per_client = 1\nspare_workers = 3\n"
    )
    running.process.send_signal(signal.SIGHUP)
    running.wait_log("need a restart keys=.*gpus")
    running.wait_log("reloaded changed=.*limits")
    wait_until(lambda: len(running.status()["spare_workers"]) == 3)
    with running.client() as first, running.client() as second:
        first.hello()
        with pytest.raises(RefusedError, match="all 1 sessions of uid:"):
            second.hello()


def test_a_broken_file_changes_nothing_on_sighup(start):
    running = start()
    running.config.write_text("oops")
    running.process.send_signal(signal.SIGHUP)
    running.wait_log("reload refused")
    with running.client() as client:
        client.hello()


def test_the_admin_socket_is_the_owners(start):
    running = start()
    assert os.stat(running.admin_path).st_mode & 0o777 == 0o600
    status = running.status()
    assert status["devices"] == ["NVIDIA H100 PCIe", "NVIDIA H100 PCIe", "Tesla T4"]
    assert status["metrics"]["workers_started"] == 1


def test_it_runs_without_uvloop(start, tmp_path, monkeypatch):
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "uvloop.py").write_text("raise ImportError('not here')")
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", f"{blocker}:{ENVIRONMENT['PYTHONPATH']}")
    running: Running = start()
    with running.client() as client:
        client.hello()
        client.ping()
        client.attach()
        client.detach().sendall(b"x")
        assert client.detach().recv(1) == b"x"
    running.end()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_is_accepted_by_systemd(tmp_path):
    unit = (ROOT / "deploy/vgpud.service").read_text()
    (tmp_path / "vgpud.service").write_text(unit.replace("/usr/bin/vgpud", "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "vgpud.service")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert [line for line in checked.stderr.splitlines() if "vgpud.service" in line] == []


def test_at18_a_host_without_descriptors_says_so(start):
    """The refusal and the log name the resource that vgpud lacks; the next client is served."""
    running = start()
    with running.client() as client:
        client.hello()
        before = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
        # No number above those of the standard streams: whatever is open now, nothing more is opened.
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with pytest.raises(RefusedError, match="the host is short of something: Too many open files"):
            client.attach()
    running.wait_log("refused .*Too many open files")
    resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, before)
    with running.client() as client:
        client.hello()
        assert client.attach().worker
