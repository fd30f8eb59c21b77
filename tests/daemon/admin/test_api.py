"""What an administrator sees and does over the admin socket, which the commands use."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from vgpud.cli.admin_client import AdminError
from vgpud.cli.client import RefusedError
from vgpud.cli.main import vgpu

from tests.daemon.running import Running, only, process_exists, start_client, vgpud_with_real_workers, wait_until

SHARES = "[[shares]]\nname = 'two'\nsessions = 2\n"


def invoke(running: Running, *arguments: str) -> str:
    done = CliRunner().invoke(vgpu, [*arguments, "--admin", str(running.admin_path)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("real"))


def test_a_session_is_seen_and_ended(real):
    client = start_client(real)
    session = only(lambda: real.measured_sessions())
    assert session["pid"] == client.pid
    assert session["memory_nbytes"] == [0]
    assert session["memory_limit_nbytes"] is None
    assert session["worker_cpu_s"] >= 0
    number = str(session["session"])
    assert str(client.pid) in invoke(real, "ps")
    assert "CPU%" in invoke(real, "top", "-n", "1")
    assert f'"pid": {client.pid}' in invoke(real, "session", "show", number)
    invoke(real, "session", "kill", number)
    wait_until(lambda: real.admin.get("sessions")["sessions"] == [])
    assert not process_exists(session["worker_pid"])
    with pytest.raises(AdminError, match=f"there is no session {number}"):
        real.admin.request("DELETE", "sessions", number)
    client.communicate()


def test_metrics_are_prometheus(real):
    client = start_client(real)

    def complete() -> dict[str, Metric]:
        done = CliRunner().invoke(vgpu, ["metrics", "--admin", str(real.admin_path)])
        families = {family.name: family for family in text_string_to_metric_families(done.output)}
        memory = families.get("vgpu_session_memory_bytes")
        return families if memory and memory.samples else {}  # none if the worker answered late

    families = wait_until(complete)
    assert families["vgpu_sessions_open"].samples[0].value == 1
    assert families["vgpu_image_held_bytes"].samples[0].value == 0
    [free] = families["DCGM_FI_DEV_FB_FREE"].samples
    assert free.labels["gpu"] == "0"
    assert free.value > 1000
    [memory] = families["vgpu_session_memory_bytes"].samples
    assert memory.labels["tenant"].startswith("uid")
    assert families["vgpu_session_worker_cpu_seconds"].samples
    client.communicate()


def test_a_session_without_a_worker_is_ended(shared):
    with shared.client() as client:
        client.hello()
        session = only(lambda: shared.admin.get("sessions")["sessions"])
        shared.admin.request("DELETE", "sessions", str(session["session"]))
        with pytest.raises(ConnectionError):
            client.ping()
    wait_until(lambda: shared.admin.get("sessions")["sessions"] == [])


def test_what_happens_is_watched(shared):
    events = shared.admin.watch()
    assert next(events)["event"] == "watching"
    with shared.client() as client:
        client.hello()
        opened = next(events)
        client.attach()
        attached = next(events)
    assert [opened["event"], attached["event"], next(events)["event"]] == ["opened", "attached", "closed"]
    assert opened["session"]["worker_pid"] is None
    assert attached["session"]["worker_pid"] > 0


def test_a_token_from_issue_to_revocation(start, tmp_path):
    running = start(extra=SHARES, listen=["tcp://127.0.0.1:0"])
    value = invoke(running, "token", "issue", "job-7", "--share", "two", "--lifetime", "3600").strip()
    assert "job-7" in invoke(running, "token", "list")
    assert value not in running.log
    clients = [running.client(token=value) for _ in range(3)]
    with clients[0], clients[1], clients[2]:
        for client in clients[:2]:
            client.hello()
        with pytest.raises(RefusedError, match=r"all 2 sessions of token:job-7 are in use \(share two\)"):
            clients[2].hello()
        assert invoke(running, "token", "revoke", "job-7") == "2 sessions ended\n"
    with running.client(token=value) as client, pytest.raises(RefusedError, match="a valid token is needed"):
        client.hello()


def test_orders_that_cannot_be_followed(shared):
    for document, why in (
        ({}, "name: a text is needed"),
        ({"name": "a", "share": "none"}, r"no \[\[shares\]\] called 'none'"),
        ({"name": "a", "lifetime_s": 0}, "lifetime_s: a number"),
        ({"name": "a", "lifetime_s": float("nan")}, "lifetime_s: a number"),
        ({"name": "a", "lifetime_s": True}, "lifetime_s: a number"),
        ({"name": "a", "lifetime": 1}, "unknown keys: lifetime"),
    ):
        with pytest.raises(AdminError, match=why):
            shared.admin.request("POST", "tokens", document=document)
    with pytest.raises(AdminError, match="no issued token called"):
        shared.admin.request("DELETE", "tokens", "none")
    assert shared.admin.get("tokens") == {"tokens": []}


def test_quarantine_and_release(shared):
    with shared.client() as client:
        client.hello()
        session = only(lambda: shared.admin.get("sessions")["sessions"])
        tenant = session["tenant"]
        assert invoke(shared, "tenant", "quarantine", tenant) == "1 sessions ended\n"
    with shared.client() as client, pytest.raises(RefusedError, match="administrator has suspended"):
        client.hello()
    assert invoke(shared, "tenant", "list") == f"{tenant}\n"
    invoke(shared, "tenant", "release", tenant)
    with shared.client() as client:
        client.hello()
