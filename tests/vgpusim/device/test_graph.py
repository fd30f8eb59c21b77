"""Stream capture and graphs, with the results of an H100."""

from __future__ import annotations

import ctypes
import struct

import pytest

from .conftest import Simulator

P, U32, SIZE, U64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_uint64
NON_BLOCKING = 1
RELAXED = 2


class KernelNode(ctypes.Structure):
    _fields_ = [
        ("func", P),
        ("grid", U32 * 3),
        ("block", U32 * 3),
        ("shared", U32),
        ("params", P),
        ("extra", P),
        ("kern", P),
        ("ctx", P),
    ]


class MemsetNode(ctypes.Structure):
    _fields_ = [("dst", U64), ("pitch", SIZE), ("value", U32), ("element", U32), ("width", SIZE), ("height", SIZE)]


def launch(sim: Simulator, stream: P, kernel: P, *params: int, grid: int = 1) -> int:
    values = [U64(value) for value in params]
    pointers = (P * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
    return int(sim.cuLaunchKernel(kernel, grid, 1, 1, 32, 1, 1, 0, stream, pointers, None))


def words(sim: Simulator, address: int, count: int) -> list[int]:
    return list(struct.unpack(f"<{count}Q", sim.read(address, 8 * count)))


def begin(sim: Simulator, stream: P) -> None:
    sim.ok("cuStreamBeginCapture_v2", stream, RELAXED)


def end(sim: Simulator, stream: P) -> P:
    graph = P()
    sim.ok("cuStreamEndCapture", stream, ctypes.byref(graph))
    return graph


def end_fails(sim: Simulator, stream: P) -> int:
    graph = P(1)
    result = int(sim.cuStreamEndCapture(stream, ctypes.byref(graph)))
    assert graph.value is None
    return result


def node_count(sim: Simulator, graph: P) -> int:
    count = SIZE()
    sim.ok("cuGraphGetNodes", graph, None, ctypes.byref(count))
    return count.value


def node_types(sim: Simulator, graph: P) -> list[int]:
    count = SIZE(node_count(sim, graph))
    nodes = (P * count.value)()
    sim.ok("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    kind, types = ctypes.c_int(), []
    for node in nodes:
        sim.ok("cuGraphNodeGetType", P(node), ctypes.byref(kind))
        types.append(kind.value)
    return types


def instantiate(sim: Simulator, graph: P) -> P:
    executable = P()
    sim.ok("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
    return executable


def test_a_captured_stream_replays(sim: Simulator) -> None:
    stream, fill = sim.stream(NON_BLOCKING), sim.kernel("fill")
    a, b = sim.alloc(80), sim.alloc(80)
    host = ctypes.create_string_buffer(80)
    sim.ok("cuMemHostRegister_v2", host, SIZE(80), 0)
    begin(sim, stream)
    assert launch(sim, stream, fill, a, 100, grid=10) == 0
    sim.ok("cuMemsetD8Async", U64(a), 0, SIZE(8), stream)
    sim.ok("cuMemcpyDtoDAsync_v2", U64(b), U64(a), SIZE(80), stream)
    sim.ok("cuMemcpyDtoHAsync_v2", host, U64(b), SIZE(80), stream)
    graph = end(sim, stream)
    assert node_types(sim, graph) == [0, 2, 1, 1]
    executable = instantiate(sim, graph)
    sim.ok("cuGraphDestroy", graph)
    assert words(sim, a, 10) == [0] * 10, "captured work must not run"
    expected = [0, *range(101, 110)]
    for _ in range(3):
        sim.ok("cuMemsetD8_v2", U64(b), 255, SIZE(80))
        ctypes.memset(host, 0, 80)
        sim.ok("cuGraphLaunch", executable, stream)
        sim.ok("cuStreamSynchronize", stream)
        assert words(sim, b, 10) == expected
        assert list(struct.unpack("<10Q", host.raw)) == expected
    sim.ok("cuGraphExecDestroy", executable)
    sim.ok("cuMemHostUnregister", host)


def test_the_source_of_a_captured_copy_is_read_at_each_replay(sim: Simulator) -> None:
    stream, target = sim.stream(NON_BLOCKING), sim.alloc(8)
    host = (ctypes.c_uint64 * 1)(5)
    sim.ok("cuMemHostRegister_v2", host, SIZE(8), 0)
    begin(sim, stream)
    sim.ok("cuMemcpyHtoDAsync_v2", U64(target), host, SIZE(8), stream)
    executable = instantiate(sim, end(sim, stream))
    for value in (7, 9):
        host[0] = value
        sim.ok("cuGraphLaunch", executable, stream)
        sim.ok("cuStreamSynchronize", stream)
        assert words(sim, target, 1) == [value]
    sim.ok("cuMemHostUnregister", host)


def test_fork_and_join(sim: Simulator) -> None:
    left, right, fill = sim.stream(NON_BLOCKING), sim.stream(NON_BLOCKING), sim.kernel("fill")
    fork, join, a = sim.event(), sim.event(), sim.alloc(32)
    begin(sim, left)
    sim.ok("cuEventRecordWithFlags", fork, left, 0)
    sim.ok("cuStreamWaitEvent", right, fork, 0)
    assert launch(sim, left, fill, a, 1) == 0
    assert launch(sim, right, fill, a + 8, 2) == 0
    sim.ok("cuEventRecordWithFlags", join, right, 0)
    assert sim.cuEventQuery(join) == 907
    # The query is not permitted and invalidates the capture.
    assert end_fails(sim, left) == 901
    begin(sim, left)
    sim.ok("cuEventRecordWithFlags", fork, left, 0)
    sim.ok("cuStreamWaitEvent", right, fork, 0)
    assert launch(sim, left, fill, a, 1) == 0
    assert launch(sim, right, fill, a + 8, 2) == 0
    sim.ok("cuEventRecordWithFlags", join, right, 0)
    graph = P()
    assert sim.cuStreamEndCapture(right, ctypes.byref(graph)) == 903, "not where it began"
    sim.ok("cuStreamWaitEvent", left, join, 0)
    assert launch(sim, left, fill, a + 16, 3) == 0
    graph = end(sim, left)
    assert node_count(sim, graph) == 3
    # The forked stream no longer captures.
    assert launch(sim, right, fill, a + 24, 4) == 0
    sim.ok("cuStreamSynchronize", right)
    assert words(sim, a, 4) == [0, 0, 0, 4]
    sim.ok("cuGraphLaunch", instantiate(sim, graph), right)
    sim.ok("cuStreamSynchronize", right)
    assert words(sim, a, 4) == [1, 2, 3, 4]


def test_what_ends_a_capture(sim: Simulator) -> None:
    stream, other = sim.stream(NON_BLOCKING), sim.stream(NON_BLOCKING)
    fill, event, outside, a = sim.kernel("fill"), sim.event(), sim.event(), sim.alloc(8)
    graph = P()
    assert sim.cuStreamEndCapture(stream, ctypes.byref(graph)) == 401
    assert sim.cuStreamBeginCapture_v2(None, RELAXED) == 900
    begin(sim, stream)
    assert sim.cuStreamBeginCapture_v2(stream, RELAXED) == 401
    assert sim.cuStreamSynchronize(stream) == 900
    assert launch(sim, stream, fill, a, 1) == 901
    assert end_fails(sim, stream) == 901
    # Forked work is not joined.
    begin(sim, stream)
    sim.ok("cuEventRecordWithFlags", event, stream, 0)
    sim.ok("cuStreamWaitEvent", other, event, 0)
    assert launch(sim, other, fill, a, 1) == 0
    assert end_fails(sim, stream) == 904
    # an event that was recorded outside the capture
    sim.ok("cuEventRecordWithFlags", outside, other, 0)
    begin(sim, stream)
    assert sim.cuStreamWaitEvent(stream, outside, 0) == 905
    assert end_fails(sim, stream) == 901
    # Two captures meet.
    begin(sim, stream)
    begin(sim, other)
    sim.ok("cuEventRecordWithFlags", event, stream, 0)
    assert sim.cuStreamWaitEvent(other, event, 0) == 902
    assert end_fails(sim, stream) == 901
    assert end_fails(sim, other) == 901
    # The legacy stream would have to wait for the capture.
    begin(sim, stream)
    sim.ok("cuEventRecordWithFlags", event, stream, 0)
    assert sim.cuStreamWaitEvent(None, event, 0) == 906
    assert end_fails(sim, stream) == 901
    assert launch(sim, stream, fill, a, 6) == 0
    sim.ok("cuStreamSynchronize", stream)
    assert words(sim, a, 1) == [6]


def test_the_legacy_stream_is_unusable_while_a_blocking_stream_captures(sim: Simulator) -> None:
    stream, other, fill, a = sim.stream(0), sim.stream(NON_BLOCKING), sim.kernel("fill"), sim.alloc(8)
    event, pointer, host = sim.event(), U64(), ctypes.create_string_buffer(8)
    sim.ok("cuEventRecordWithFlags", event, other, 0)
    for refused in (
        lambda: launch(sim, None, fill, a, 1),
        lambda: sim.cuMemsetD8Async(U64(a), 0, SIZE(8), None),
        lambda: sim.cuMemsetD8_v2(U64(a), 0, SIZE(8)),
        lambda: sim.cuMemcpyDtoH_v2(host, U64(a), SIZE(8)),
        lambda: sim.cuEventRecordWithFlags(event, None, 0),
        lambda: sim.cuStreamWaitEvent(None, event, 0),
        lambda: sim.cuStreamSynchronize(None),
        lambda: sim.cuStreamQuery(None),
        lambda: sim.cuMemAllocAsync(ctypes.byref(pointer), SIZE(64), None),
        lambda: sim.cuMemFreeAsync(U64(a), None),
    ):
        begin(sim, stream)
        assert launch(sim, other, fill, a, 5) == 0
        assert refused() == 906
        assert end_fails(sim, stream) == 901
        sim.ok("cuStreamSynchronize", other)
        sim.ok("cuEventQuery", event)
    assert words(sim, a, 1) == [5], "what was refused has not run"
    begin(sim, stream)
    status, number, graph, count, nodes = ctypes.c_int(), U64(), P(), SIZE(), P()
    told = [ctypes.byref(each) for each in (status, number, graph, nodes, count)]
    assert sim.cuStreamGetCaptureInfo_v2(None, *told) == 906
    assert node_count(sim, end(sim, stream)) == 0, "asking leaves the capture as it is"
    begin(sim, other)
    assert launch(sim, None, fill, a, 6) == 0
    end(sim, other)
    assert words(sim, a, 1) == [6]


def test_a_destroyed_stream_or_event_leaves_the_others_capturing(sim: Simulator) -> None:
    stream, other, event, a = sim.stream(NON_BLOCKING), sim.stream(NON_BLOCKING), sim.event(), sim.alloc(8)
    begin(sim, stream)
    sim.ok("cuEventRecordWithFlags", event, stream, 0)
    sim.ok("cuStreamWaitEvent", other, event, 0)
    sim.ok("cuEventDestroy_v2", event)
    sim.ok("cuStreamDestroy_v2", other)
    assert launch(sim, stream, sim.kernel("fill"), a, 1) == 0
    assert node_count(sim, end(sim, stream)) == 1


def test_launches_of_one_graph_follow_each_other_on_any_stream(sim: Simulator) -> None:
    stream, counter = sim.stream(NON_BLOCKING), P()
    module, nbytes, address = sim.module(), SIZE(), U64()
    sim.ok("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(nbytes), module, b"gv")
    sim.ok("cuModuleGetFunction", ctypes.byref(counter), module, b"count_up")
    begin(sim, stream)
    for _ in range(5):
        assert launch(sim, stream, counter) == 0
    executable = instantiate(sim, end(sim, stream))
    streams = [sim.stream(NON_BLOCKING) for _ in range(4)]
    for number in range(40):
        sim.ok("cuGraphLaunch", executable, streams[number % 4])
    sim.ok("cuGraphExecDestroy", executable)
    sim.ok("cuCtxSynchronize")
    assert struct.unpack("<I", sim.read(address.value, 4)) == (42 + 200,)


def test_a_graph_whose_module_is_unloaded_is_refused(sim: Simulator) -> None:
    stream, module, kernel, a = sim.stream(NON_BLOCKING), sim.module(), P(), sim.alloc(8)
    sim.ok("cuModuleGetFunction", ctypes.byref(kernel), module, b"fill")
    begin(sim, stream)
    assert launch(sim, stream, kernel, a, 1) == 0
    executable = instantiate(sim, end(sim, stream))
    sim.ok("cuGraphLaunch", executable, stream)
    sim.ok("cuModuleUnload", module)
    assert words(sim, a, 1) == [1]
    assert sim.cuGraphLaunch(executable, stream) == 400


def node(kernel: P, *values: int, grid: int = 1) -> tuple[KernelNode, object]:
    held = [U64(value) for value in values]
    pointers = (P * len(held))(*(ctypes.addressof(value) for value in held))
    made = KernelNode(kernel.value, (grid, 1, 1), (32, 1, 1), 0, ctypes.addressof(pointers))
    return made, (held, pointers)


def test_a_graph_built_node_by_node(sim: Simulator) -> None:
    graph, a, fill = P(), sim.alloc(80), sim.kernel("fill")
    sim.ok("cuGraphCreate", ctypes.byref(graph), 0)
    clear, kernel, nothing, late = P(), P(), P(), P()
    zero = MemsetNode(a, 0, 0x1010101, 4, 20, 1)
    params, keep = node(fill, a, 7, grid=9)
    sim.ok("cuGraphAddKernelNode_v2", ctypes.byref(kernel), graph, None, SIZE(0), ctypes.byref(params))
    sim.ok("cuGraphAddMemsetNode", ctypes.byref(clear), graph, None, SIZE(0), ctypes.byref(zero), None)
    del keep
    # The memset node is added later but runs earlier.
    sim.ok("cuGraphAddDependencies", graph, ctypes.byref(clear), ctypes.byref(kernel), SIZE(1))
    assert sim.cuGraphAddDependencies(graph, ctypes.byref(clear), ctypes.byref(kernel), SIZE(1)) == 1
    sim.ok("cuGraphAddEmptyNode", ctypes.byref(nothing), graph, ctypes.byref(kernel), SIZE(1))
    assert sorted(node_types(sim, graph)) == [0, 2, 5]
    executable, stream = instantiate(sim, graph), sim.stream()
    sim.ok("cuGraphLaunch", executable, stream)
    sim.ok("cuStreamSynchronize", stream)
    assert words(sim, a, 10) == [*range(7, 16), 0x101010101010101]
    # Parameters of the executable graph change; those of the graph do not.
    params, _keep = node(fill, a, 50, grid=2)
    sim.ok("cuGraphExecKernelNodeSetParams_v2", executable, kernel, ctypes.byref(params))
    assert sim.cuGraphExecKernelNodeSetParams_v2(executable, clear, ctypes.byref(params)) == 1
    sim.ok("cuGraphLaunch", executable, stream)
    sim.ok("cuStreamSynchronize", stream)
    assert words(sim, a, 3) == [50, 51, 0x101010101010101]
    sim.ok("cuGraphLaunch", instantiate(sim, graph), stream)
    sim.ok("cuStreamSynchronize", stream)
    assert words(sim, a, 3) == [7, 8, 9]
    # a cycle cannot be instantiated
    sim.ok("cuGraphAddDependencies", graph, ctypes.byref(nothing), ctypes.byref(clear), SIZE(1))
    assert sim.cuGraphInstantiateWithFlags(ctypes.byref(late), graph, U64(0)) == 1


def test_an_executable_graph_takes_over_a_graph_of_the_same_shape(sim: Simulator) -> None:
    class Info(ctypes.Structure):
        _fields_ = [("result", ctypes.c_int), ("node", P), ("from_node", P)]

    left, right, fill = sim.stream(NON_BLOCKING), sim.stream(NON_BLOCKING), sim.kernel("fill")
    fork, join, a, info = sim.event(), sim.event(), sim.alloc(32), Info()

    def captured(value: int, joined_early: bool = False, memset: bool = False) -> P:
        begin(sim, left)
        sim.ok("cuEventRecordWithFlags", fork, left, 0)
        sim.ok("cuStreamWaitEvent", right, fork, 0)
        assert launch(sim, right, fill, a, value) == 0
        sim.ok("cuEventRecordWithFlags", join, right, 0)
        if joined_early:
            sim.ok("cuStreamWaitEvent", left, join, 0)
        if memset:
            sim.ok("cuMemsetD8Async", U64(a + 8), 0, SIZE(8), left)
        else:
            assert launch(sim, left, fill, a + 8, value + 1) == 0
        sim.ok("cuStreamWaitEvent", left, join, 0)
        assert launch(sim, left, fill, a + 16, value + 2) == 0
        return end(sim, left)

    def update(graph: P) -> int:
        return int(sim.cuGraphExecUpdate_v2(executable, graph, ctypes.byref(info)))

    executable = instantiate(sim, captured(10))
    for value in (20, 30):
        graph = captured(value)
        assert update(graph) == 0
        sim.ok("cuGraphDestroy", graph)
        sim.ok("cuGraphLaunch", executable, left)
        sim.ok("cuStreamSynchronize", left)
        assert words(sim, a, 3) == [value, value + 1, value + 2]
    assert update(captured(40, joined_early=True)) == 910
    assert info.result == 2
    assert update(captured(40, memset=True)) == 910
    assert info.result == 3
    sim.ok("cuGraphLaunch", executable, left)
    sim.ok("cuStreamSynchronize", left)
    assert words(sim, a, 3) == [30, 31, 32], "as it was"


@pytest.mark.parametrize(("field", "value"), [("element", 3), ("dst", 0), ("width", 1 << 62)])
def test_wrong_memset_parameters(sim: Simulator, field: str, value: int) -> None:
    graph, made = P(), P()
    sim.ok("cuGraphCreate", ctypes.byref(graph), 0)
    params = MemsetNode(sim.alloc(80), 0, 1, 4, 20, 1)
    setattr(params, field, value)
    assert sim.cuGraphAddMemsetNode(ctypes.byref(made), graph, None, SIZE(0), ctypes.byref(params), None) == 1
    assert node_count(sim, graph) == 0
