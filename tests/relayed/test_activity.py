"""Profiling over the cuda backend, measured with the host's CUPTI or else with events; tests/shim/cupti/activity.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.conftest import ROOT, merged
from tests.daemon.running import Running
from tests.relayed.conftest import LIBRARIES, WORKER, Relay, start

PROGRAM = ROOT / "tests/shim/cupti/activity.py"


def profile(relay: Relay, scenario: str) -> object:
    done = relay([sys.executable, PROGRAM, 13, scenario])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_records(rows: list[dict]) -> None:
    kernels = [row for row in rows if row["record"] == "Kernel"]
    assert [(k["name"], k["gridX"]) for k in kernels] == [("busy", 3), ("busy", 5)]
    copies = [row for row in rows if row["record"] == "Memcpy"]
    assert [(c["copyKind"], c["bytes"]) for c in copies] == [(1, 3 << 20), (2, 4096)]
    assert [row["bytes"] for row in rows if row["record"] == "Memset"] == [4096]
    calls = {row["correlationId"]: row for row in rows if row["record"] == "API"}
    assert all(k["correlationId"] in calls and k["start"] <= k["end"] for k in [*kernels, *copies])


def test_records(relay: Relay) -> None:
    check_records(profile(relay, "everything"))


def test_a_graph_is_measured_as_a_whole(shared_relay: Relay) -> None:
    rows = profile(shared_relay, "graph")
    launches = [row["correlationId"] for row in rows if row["record"] == "API" and row["cbid"] == 514]
    kernels = [row for row in rows if row["record"] == "Kernel"]
    assert [(k["name"], k["correlationId"]) for k in kernels] == [("[CUDA graph]", i) for i in launches]


def test_graphs_as_a_whole_and_events(shared_relay: Relay) -> None:
    rows = profile(shared_relay, "graph_trace")
    launches = [row["correlationId"] for row in rows if row["record"] == "API" and row["cbid"] == 514]
    assert [row["correlationId"] for row in rows if row["record"] == "GraphTrace"] == launches
    check_events(profile(shared_relay, "events"))


def check_events(rows: list[dict]) -> None:
    kernels = sorted((row for row in rows if row["record"] == "Kernel"), key=lambda row: row["correlationId"])
    events = [row for row in rows if row["record"] == "CudaEvent"]
    assert len(events) == 2
    for event, before in zip(events, kernels[::2], strict=True):
        assert before["start"] < event["deviceTimestamp"]
        assert event["correlationId"] == before["correlationId"] + 1


def test_contexts_that_go(shared_relay: Relay) -> None:
    """Records of a context are read before it is destroyed, because the next context may get the same address."""
    assert profile(shared_relay, "contexts") == {"seen": 3, "dropped": 0}


def test_none_is_lost(shared_relay: Relay) -> None:
    assert profile(shared_relay, "many") == {"launched": 20000, "seen": 20000, "distinct": 20000, "dropped": 0}


def test_by_the_hosts_cupti(driver: Running, tmp_path: Path) -> None:
    """A worker that finds a CUPTI measures with it; here that is vgpu's own, over vgpu's libcuda as the driver."""
    config = (
        f"backend = 'cuda'\nlibcuda = '{LIBRARIES}/libcuda.so.1'\n"
        f"worker_command = {[sys.executable, str(WORKER), '--backend', 'cuda']!r}"
    )
    path = f"{LIBRARIES}:{LIBRARIES}/cupti/13"
    running = start(tmp_path, "b", config, {"VGPU_ENDPOINT": str(driver.endpoint), "LD_LIBRARY_PATH": path})
    relay = Relay(merged({"VGPU_ENDPOINT": str(running.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES)}), True)
    try:
        check_records(profile(relay, "everything"))
        rows = profile(relay, "graph")
        launches = [row["correlationId"] for row in rows if row["record"] == "API" and row["cbid"] == 514]
        kernels = [row for row in rows if row["record"] == "Kernel"]
        assert [(k["correlationId"], k["gridX"]) for k in kernels] == [(i, n) for i in launches for n in (1, 2, 4)]
        rows = profile(relay, "graph_trace")
        assert [row["correlationId"] for row in rows if row["record"] == "GraphTrace"] == [
            row["correlationId"] for row in rows if row["record"] == "API" and row["cbid"] == 514
        ]
        check_events(profile(relay, "events"))
        assert profile(relay, "toggled") == {"answers": [0], "after": 50}
        assert profile(relay, "many") == {"launched": 20000, "seen": 20000, "distinct": 20000, "dropped": 0}
    finally:
        running.end()
