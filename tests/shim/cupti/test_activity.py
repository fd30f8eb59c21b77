"""vgpu's libcupti on the simulator: records for a program that profiles itself as Kineto does, and calls that
are refused. The program is activity.py."""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.gen.cupti import RUNTIME, callback_ids
from tests.conftest import ROOT, VGPU, Run, merged
from tests.cudart.runtimes import BY_NUMBER, compared

PROGRAM = Path(__file__).with_name("activity.py")
LAUNCH, COPY_TO, COPY_FROM, FILL, RECORD = 307, 277, 279, 216, 119


def profile(run: Run, scenario: str, major: int = 13, **options: object) -> object:
    result = run([sys.executable, PROGRAM, major, scenario], **options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def of(rows: list[dict], record: str) -> list[dict]:
    return [row for row in rows if row["record"] == record]


@pytest.mark.parametrize("major", [12, 13])
def test_records(h100_run: Run, major: int) -> None:
    """NR21: CUPTI works over vgpu's driver, for the kinds of record that Kineto enables."""
    rows = profile(h100_run, "everything", major)
    calls = {row["correlationId"]: row for row in of(rows, "API")}
    kernels = of(rows, "Kernel")
    assert [(k["name"], k["gridX"], k["blockX"], k["streamId"] > 7) for k in kernels] == [
        ("busy", 3, 32, True),
        ("busy", 5, 32, True),
    ]
    assert [calls[k["correlationId"]]["cbid"] for k in kernels] == [LAUNCH, LAUNCH]
    to, back = of(rows, "Memcpy")
    assert (to["copyKind"], to["srcKind"], to["dstKind"], to["bytes"]) == (1, 1, 3, 3 << 20)  # copied in pieces
    assert (back["copyKind"], back["srcKind"], back["dstKind"], back["bytes"]) == (2, 3, 1, 4096)
    (fill,) = of(rows, "Memset")
    assert (fill["bytes"], fill["value"]) == (4096, 5)
    assert [calls[r["correlationId"]]["cbid"] for r in (to, fill, back)] == [COPY_TO, FILL, COPY_FROM]
    (outside,) = of(rows, "ExternalCorrelation")
    assert (outside["externalId"], outside["correlationId"]) == (77, kernels[0]["correlationId"])
    assert sorted(row["type"] for row in of(rows, "Synchronization")) == [3, 4]
    # Work of one stream does not overlap, and begins after its call began, on the clock of calls.
    work = sorted([*kernels, to, back, fill], key=lambda row: row["correlationId"])
    assert all(a["start"] <= a["end"] <= b["start"] for a, b in itertools.pairwise(work))
    assert all(calls[row["correlationId"]]["start"] <= row["start"] for row in work)


@pytest.mark.parametrize("major", [12, 13])
def test_runtime(h100_run: Run, major: int) -> None:
    """A call of vgpu's runtime, the driver call inside it and the work on the device have one correlation id."""
    rows = profile(h100_run, "runtime", major)
    ids = callback_ids(RUNTIME)
    calls = {row["cbid"]: row["correlationId"] for row in of(rows, "API") if row["kind"] == 5}
    assert calls.keys() >= {ids["cudaMemcpy_v3020"], ids["cudaMemset_v3020"], ids["cudaDeviceSynchronize_v3020"]}
    (copy,), (fill,) = of(rows, "Memcpy"), of(rows, "Memset")
    assert copy["correlationId"] == calls[ids["cudaMemcpy_v3020"]]
    assert fill["correlationId"] == calls[ids["cudaMemset_v3020"]]
    assert {row["correlationId"] for row in of(rows, "API") if row["kind"] == 4} <= set(calls.values())
    outside = {row["correlationId"]: row["externalId"] for row in of(rows, "ExternalCorrelation")}
    assert outside[copy["correlationId"]] == 88


@pytest.mark.parametrize("major", [12, 13])
def test_nvidias_runtime(h100_run: Run, major: int) -> None:
    """A driver call by which NVIDIA's runtime copies, fills or waits is recorded as the runtime's call."""
    rows = profile(h100_run, "runtime", major, env={"VGT_CUDART": str(compared(BY_NUMBER[major]))})
    ids = callback_ids(RUNTIME)
    calls = {row["cbid"]: row for row in of(rows, "API") if row["kind"] == 5}
    copied, filled, waited = (ids[f"{name}_v3020"] for name in ("cudaMemcpy", "cudaMemset", "cudaDeviceSynchronize"))
    assert calls.keys() == {copied, filled, waited}
    (copy,), (fill,) = of(rows, "Memcpy"), of(rows, "Memset")
    assert copy["correlationId"] == calls[copied]["correlationId"]
    assert fill["correlationId"] == calls[filled]["correlationId"]
    assert all(call["start"] <= call["end"] for call in calls.values())
    drivers = [row["correlationId"] for row in of(rows, "API") if row["kind"] == 4]
    assert not {copy["correlationId"], fill["correlationId"]} & set(drivers)
    outside = {row["correlationId"]: row["externalId"] for row in of(rows, "ExternalCorrelation")}
    assert outside[copy["correlationId"]] == 88


@pytest.mark.parametrize(("mark", "lines"), [("", 1), (str(ROOT / "shim/base/vgs_mark.c"), 0)])
def test_another_runtime_is_named(h100_run: Run, tmp_path: Path, mark: str, lines: int) -> None:
    """NVIDIA's runtime reports calls only to NVIDIA's CUPTI; a line says which calls are seen all the same, unless the
    library has vgpu's mark."""
    library, source = tmp_path / "libcudart.so.13", tmp_path / "empty.c"
    source.write_text("int nothing;\n")
    includes = [
        f"-I{ROOT / folder}" for folder in ("shim/base", "shim/connect", "shim/channel", "protocol/c", "build/gen")
    ]
    subprocess.run(["cc", "-shared", "-fPIC", *includes, "-o", library, source, *filter(None, [mark])], check=True)
    code = (
        f"import ctypes; ctypes.CDLL({str(library)!r}); "
        f"c = ctypes.CDLL({str(ROOT / 'build/guest/cupti/13/libcupti.so.13')!r}); "
        "print([c.cuptiActivityEnable(kind) for kind in (4, 5, 5)])"
    )
    result = h100_run([sys.executable, "-c", code])
    assert result.stdout == "[0, 0, 0]\n", result.stderr
    assert result.stderr.count(f"of the calls of NVIDIA's CUDA runtime ({library}) a profile shows those") == lines


def test_graph(h100_run: Run) -> None:
    rows = profile(h100_run, "graph")
    launches = [row["correlationId"] for row in of(rows, "API") if row["cbid"] == 514]
    kernels = of(rows, "Kernel")
    assert [(k["correlationId"], k["gridX"]) for k in kernels] == [(i, n) for i in launches for n in (1, 2, 4)]
    (asked,) = of(rows, "nodes")  # results of cuptiGetGraphNodeId and cuptiGetGraphExecId
    work = [k["graphNodeId"] for k in kernels[:3]] + [f["graphNodeId"] for f in of(rows, "Memset")[:1]]
    assert work == asked["numbers"]
    assert len(set(work)) == 4
    assert {k["graphId"] for k in kernels} == {asked["graph"]}
    assert [f["correlationId"] for f in of(rows, "Memset")] == launches


def test_graph_as_a_whole(h100_run: Run) -> None:
    """XLA can enable this kind: one record for each launch of a graph, and none for the graph's nodes."""
    rows = profile(h100_run, "graph_trace")
    launches = {row["correlationId"]: row for row in of(rows, "API") if row["cbid"] == 514}
    whole = of(rows, "GraphTrace")
    assert [row["correlationId"] for row in whole] == list(launches)
    assert len({row["graphId"] for row in whole}) == 1
    assert all(launches[row["correlationId"]]["start"] <= row["start"] < row["end"] for row in whole)
    assert not of(rows, "Kernel")
    assert not of(rows, "Memset")


@pytest.mark.parametrize("major", [12, 13])
def test_events(h100_run: Run, major: int) -> None:
    """A wait's record names the record of its event; the event's device time lies between the kernels around it."""
    rows = profile(h100_run, "events", major)
    first, second = recorded = of(rows, "CudaEvent")  # the captured event has no record
    calls = {row["correlationId"]: row["cbid"] for row in of(rows, "API")}
    assert [calls[row["correlationId"]] for row in recorded] == [RECORD, RECORD]
    kernels = sorted(of(rows, "Kernel"), key=lambda row: row["correlationId"])
    for record, before, behind in ((first, *kernels[:2]), (second, *kernels[2:])):
        assert record["streamId"] == before["streamId"] != behind["streamId"]
        assert before["end"] <= record["deviceTimestamp"] <= behind["start"]
    waits = [row for row in of(rows, "Synchronization") if row["type"] in (1, 2)]
    assert [(row["type"], row["cudaEventSyncId"]) for row in waits] == [
        (2, first["cudaEventSyncId"]),
        (2, second["cudaEventSyncId"]),
        (1, second["cudaEventSyncId"]),
    ]
    assert {row["cudaEventId"] for row in waits} == {first["eventId"]} == {second["eventId"]}


def test_none_is_lost(h100_run: Run) -> None:
    assert profile(h100_run, "many") == {"launched": 20000, "seen": 20000, "distinct": 20000, "dropped": 0}


def test_small_buffers(h100_run: Run) -> None:
    """Buffers too small for a record are an error, no buffers are none; in both cases all records are dropped."""
    found = profile(h100_run, "small_buffers")
    assert found["tiny"] == [10, 0, 5, 0]  # PARAMETER_SIZE_NOT_SUFFICIENT; every buffer came back
    assert found["one"][:3] == [0, 5, 0]
    assert found["none"][:3] == [0, 0, 5]


def test_subscribers(h100_run: Run) -> None:
    found = profile(h100_run, "subscribers")
    assert found["second"] == 39
    assert found["third"] == 0
    assert found["never"] == 27
    assert found["wrong"] == [1, 1]
    domain, number, *_ = found["seen"][0]
    assert (domain, number) == (3, 1)  # a context was created
    before, after = found["seen"][1:]
    assert before[2:4] == [0, "cuMemFree_v2"]
    assert after[2:4] == [1, "cuMemFree_v2"]
    assert before[4] == after[4] != 0
    assert found["after"] == 0


def test_finalize_while_active(h100_run: Run) -> None:
    found = profile(h100_run, "finalize")
    assert "Kernel" in found["kinds"]
    assert found["quiet"] == 0
    assert found["again"] == 1


def test_fork(h100_run: Run) -> None:
    found = profile(h100_run, "fork")
    assert found["child"] == [0, 0, 3, 0, 0]  # the launch returns NOT_INITIALIZED; no records
    assert found["parent"] == 2


def test_contexts_that_go(h100_run: Run) -> None:
    assert profile(h100_run, "contexts") == {"seen": 3, "dropped": 0}


def test_cupti_is_called_by_its_callbacks(h100_run: Run) -> None:
    """INVALID_OPERATION while a buffer is returned; a subscriber's callback can flush and unsubscribe."""
    found = profile(h100_run, "calls_inside")
    assert found["sites"] == [0, 1, 0]
    assert found["answers"] == [0, 0]
    assert found["asked"]
    assert all(answer == [7, 7] for answer in found["asked"])
    assert found["third"] == 0
    assert found["seen"] == 4


def test_misaligned_buffers(h100_run: Run) -> None:
    assert profile(h100_run, "misaligned") == [[0, 0, 1], [0, 1, 0]]


def test_two_threads_enable_and_disable(h100_run: Run) -> None:
    assert profile(h100_run, "toggled") == {"answers": [0], "after": 50}


def test_records_that_nobody_takes(h100_run: Run) -> None:
    assert profile(h100_run, "left_behind") == "ended"


def test_wrong_calls(h100_run: Run) -> None:
    assert profile(h100_run, "wrong_calls") == {
        "kind": [21, 27, 21],
        "callbacks": 1,
        "empty": 12,
        "unknown kind": 21,
        "outside": 1,
        "flag": 1,
        "pop": 18,
        "push": 1,
        "attribute": [10, 27],
        "unsupported": 27,
        "period": [0, 27],
        "last": [27, 0],
    }


def test_worker_dies_while_records_are_out() -> None:
    """One flush returns the error, the next one succeeds; delivered records remain."""
    command = [*VGPU, "run", "--gpu", "h100", "--", sys.executable, str(PROGRAM), "13", "worker_dies"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=merged(None)
    ) as process:
        assert process.stdout.readline() == "ready\n"
        for worker in workers_below(process.pid):
            os.kill(worker, signal.SIGKILL)
        out, err = process.communicate("go\n", timeout=60)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["delivered"] == 1
    assert found["seen"] == 1
    assert (found["first"], found["second"]) == (999, 0)
    assert "what it measured since the last flush is lost" in err


def workers_below(root: int) -> list[int]:
    """Process ids of vgpud's workers among a process and its descendants."""
    children: dict[int, list[int]] = {}
    names = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            name, _, rest = text.partition("(")[2].rpartition(")")
            children.setdefault(int(rest.split()[1]), []).append(int(entry.name))
            names[int(entry.name)] = name
    found, left = [], [root]
    while left:
        pid = left.pop()
        left += children.get(pid, [])
        found.append(pid)
    return [pid for pid in found if "worker" in names.get(pid, "")]


def test_another_libcuda(tmp_path: Path) -> None:
    """With a libcuda that is not vgpu's, nothing is profiled, and stderr says why."""
    source = tmp_path / "empty.c"
    source.write_text("int cuInit(unsigned flags) { return 100; }\n")
    subprocess.run(["cc", "-shared", "-o", tmp_path / "libcuda.so.1", "-Wl,-soname,libcuda.so.1", source], check=True)
    library = ROOT / "build/guest/cupti/13/libcupti.so.13"
    code = f"import ctypes; c = ctypes.CDLL({str(library)!r}); print(c.cuptiActivityEnable(10))"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert result.stdout == "15\n"
    assert "another: nothing can be profiled" in result.stderr


def test_nsight_is_told_where_it_works(h100_run: Run) -> None:
    code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    result = h100_run([sys.executable, "-c", code], env={"CUDA_INJECTION64_PATH": "/opt/nsight/libinjection.so"})
    assert result.stdout == "0\n"
    assert result.stderr.count("profile a vGPU on the host") == 1
