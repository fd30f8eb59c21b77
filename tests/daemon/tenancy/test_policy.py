"""`deny` of a share: calls of the named groups fail with CUDA_ERROR_NOT_PERMITTED, a line on standard error says why,
and the audit log records who made which of them how often."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from vgpud._gen.api import GROUPS
from vgpud.audit import Audit

from tests.daemon.ipc_client import IpcClient
from tests.daemon.running import ROOT, Running, vgpud_with_real_workers, wait_until
from tests.shim.client import PRELUDE, environment, run

NOT_PERMITTED = 800
# For each group, an expression of IpcClient's that makes one call of the group and gives its result.
CALLS = {
    "ipc": "get_memory(memory(4096))[0]",
    "export": "export_pool(pool()[1])[0]",
    "register": "registered()",
    "vmm": "create()[0]",
    "peer": "pool_access()",
    "graphs": "cuda.cuGraphCreate(byref(c_uint64()), 0)",
    "memops": "write_word()",
    "profiling": "profile()",
}
MORE = f"""
def registered():
    import mmap
    page = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return cuda.cuMemHostRegister_v2(c_void_p(address), c_size_t(4096), 2)

def pool_access():
    return cuda.cuMemPoolSetAccess(c_void_p(pool()[1]), (ctypes.c_int * 3)(1, 0, 3), c_size_t(1))

def write_word():
    return cuda.cuStreamWriteValue32_v2(None, c_uint64(memory(4096)), 1, 0) or cuda.cuCtxSynchronize()

def profile():
    cupti = ctypes.CDLL({str(ROOT / "build/guest/cupti/13/libcupti.so.13")!r})
    enabled = cupti.cuptiActivityEnable(3)  # CUPTI_ACTIVITY_KIND_KERNEL; the next call has the worker measure
    return enabled or cuda.cuMemsetD8_v2(c_uint64(memory(4096)), 0, c_size_t(4096))
"""
CONFIG = """
[log]
audit = '{audit}'
[[shares]]
name = 'denied'
deny = {groups}
[[shares]]
name = 'free'
[[tokens]]
name = 'denied'
value = 'denied-denied-denied-denied'
share = 'denied'
[[tokens]]
name = 'other'
value = 'other-other-other-other'
share = 'denied'
[[tokens]]
name = 'free'
value = 'free-free-free-free'
share = 'free'
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from started(tmp_path_factory.mktemp("policy"))


def started(folder: Path) -> Iterator[Running]:
    yield from vgpud_with_real_workers(folder, CONFIG.format(audit=folder / "audit.jsonl", groups=list(GROUPS)))


def audit_of(host: Running) -> Path:
    return host.config.with_name("audit.jsonl")


Start = Callable[[Running, str], IpcClient]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(host, token)` starts a client with that token, which is ended after the test."""
    with ExitStack() as clients:

        def started(host: Running, token: str) -> IpcClient:
            client = IpcClient(str(host.endpoint), VGPU_TOKEN="-".join([token] * 4))
            clients.callback(client.kill)
            client(f"exec({MORE!r})")
            return client

        yield started


def lines(audit: Path) -> list[dict[str, Any]]:
    """All records; one that is being written is left out."""
    return [json.loads(line) for line in audit.read_text().split("\n")[:-1]]


def records(audit: Path, event: str) -> list[dict[str, Any]]:
    return [each for each in lines(audit) if each["event"] == event]


def test_each_group_is_denied_and_audited(shared: Running, start: Start) -> None:
    host, audit = shared, audit_of(shared)
    free, denied = start(host, "free"), start(host, "denied")
    assert set(CALLS) == set(GROUPS)
    for group, call in CALLS.items():
        assert free(call) == 0, group
        # CUPTI goes on without records of the device; standard error and the audit log say why.
        assert denied(call) == (0 if group == "profiling" else NOT_PERMITTED), group
    for _ in range(10):
        assert denied(CALLS["graphs"]) == NOT_PERMITTED
    wait_until(lambda: any(each["count"] == 10 for each in records(audit, "call denied")))
    found = [each for each in records(audit, "call denied") if each["tenant"] == "token:denied"]
    assert {each["group"] for each in found} == set(GROUPS)
    assert [each["count"] for each in found if each["group"] == "graphs"] == [1, 10]
    [session] = [each for each in host.admin.get("sessions")["sessions"] if each["token"] == "denied"]
    assert session["denied"] == list(GROUPS)
    for each in found:
        assert (each["tenant"], each["session"], each["share"]) == ("token:denied", session["session"], "denied")
        assert each["function"] in GROUPS[each["group"]]
    [documented] = re.findall(r"```json\n(.*?)```", (ROOT / "docs/operations.md").read_text(), re.DOTALL)
    assert [*json.loads(documented)] == [*found[0]]
    page = host.admin.metrics()
    assert 'vgpu_tenant_denied_calls_total{group="graphs",tenant="token:denied"} 11.0' in page
    assert 'denied_calls_total{group="graphs",tenant="token:free"}' not in page
    denied.kill()
    ended = "calls denied in a session that has ended"
    [total] = wait_until(lambda: [each for each in records(audit, ended) if each["tenant"] == "token:denied"])
    assert total["graphs"] == 11
    assert total["ipc"] == 1


def test_a_denied_program_computes_otherwise_and_reads_why_once(shared: Running) -> None:
    program = """
context()
for _ in range(50):
    graph = c_uint64(7)
    assert cuda.cuGraphCreate(byref(graph), 0) == 800
    assert graph.value == 7
held = alloc(4096)
ok(cuda.cuMemcpyHtoD_v2(held, b"12345678", c_size_t(8)))
back = create_string_buffer(8)
ok(cuda.cuMemcpyDtoH_v2(back, held, c_size_t(8)))
assert back.raw == b"12345678"
print("computed")
"""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program],
        env=environment(str(shared.endpoint), VGPU_TOKEN="other-other-other-other"),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "computed\n", done.stderr
    [line] = [line for line in done.stderr.splitlines() if "not permitted" in line]
    assert "cuGraphCreate is not permitted here: share denied of vgpud's configuration denies graphs" in line
    assert run(str(shared.endpoint), "context(); print('served')", VGPU_TOKEN="free-free-free-free") == "served\n"


def test_what_administrators_do_is_recorded(shared: Running, start: Start) -> None:
    admin, audit = shared.admin, audit_of(shared)
    before = len(lines(audit))
    admin.request("POST", "tokens", document={"name": "job", "share": "free"})
    admin.request("DELETE", "tokens", "job")
    admin.request("PUT", "quarantine", "uid:65534")
    admin.request("DELETE", "quarantine", "uid:65534")
    admin.request("DELETE", "devices", "0", "service", document={"why": "repair"})
    admin.request("PUT", "devices", "0", "service")
    start(shared, "free")
    session = max(each["session"] for each in admin.get("sessions")["sessions"])
    admin.request("DELETE", "sessions", str(session))
    found = [each for each in lines(audit)[before:] if "by" in each]
    assert [each["event"] for each in found] == [
        "token issued",
        "token revoked",
        "tenant quarantined",
        "tenant released",
        "device withdrawn",
        "device restored",
        "session ended by the administrator",
    ]
    assert all(re.fullmatch(r"uid:\d+ pid \d+", each["by"]) for each in found)
    assert found[-1]["tenant"] == "token:free"
    assert "value" not in found[0]
    assert audit.stat().st_mode & 0o777 == 0o600
    assert len(re.findall(r" by=.* audit=True", shared.log)) == len(found)


def test_a_reload_is_for_new_sessions_and_opens_the_file_again(tmp_path: Path, start: Start) -> None:
    for host in started(tmp_path):
        audit = audit_of(host)
        before = start(host, "denied")
        assert before(CALLS["graphs"]) == NOT_PERMITTED
        host.config.write_text(host.config.read_text().replace(f"deny = {list(GROUPS)}", "deny = ['vmm']"))
        moved = audit.rename(audit.with_suffix(".1"))
        host.process.send_signal(signal.SIGHUP)
        wait_until(lambda audit=audit: audit.exists() and records(audit, "reloaded"))
        assert records(audit, "reloaded")[0]["changed"] == ["shares"]
        after = start(host, "denied")
        assert after(CALLS["graphs"]) == 0
        assert after(CALLS["vmm"]) == NOT_PERMITTED
        assert before(CALLS["graphs"]) == NOT_PERMITTED
        assert records(moved, "call denied")


def test_a_flood_of_denied_calls_is_bounded(tmp_path: Path) -> None:
    log, audit = Audit(), tmp_path / "audit.jsonl"
    log.open(audit)
    for number in range(1000):
        log.denial("call denied", "token:loud", function="cuGraphCreate", count=number + 1)
    log.denial("call denied", "token:quiet", function="cuGraphCreate", count=1)
    found = records(audit, "call denied")
    assert 60 <= len(found) - 1 < 100
    assert found[-1]["tenant"] == "token:quiet"
    log.close()
