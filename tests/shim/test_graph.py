"""Graphs through the guest library, on the simulator."""

from tests.shim.graph_program import NODES, WORK
from tests.shim.simulated import Simulate


def test_nodes_of_every_kind(simulate: Simulate) -> None:
    simulate(
        NODES
        + """
ctx = context()
m = module()
scale, values = function(m, b"scale"), words(N)
p, q, s = upload(values), alloc(4 * N), new(cuda.cuStreamCreate, 1)
pinned = new(cuda.cuMemAllocHost_v2, c_size_t(4 * N))
graph = new(cuda.cuGraphCreate, 0)
args = params(q, c_uint(N), ctypes.c_uint8(3), c_uint64(0))
copy = flat(q, p, 4 * N)
first = add(cuda.cuGraphAddMemcpyNode, graph, [], byref(copy), ctx)
launch = kernel(scale, N, args)
second = add(cuda.cuGraphAddKernelNode_v2, graph, [first], byref(launch))
fill = Memset(q.value, 0, 77, 4, 10, 1)
third = add(cuda.cuGraphAddMemsetNode, graph, [second], byref(fill), None)
fourth = add(cuda.cuGraphAddEmptyNode, graph, [first, third])
back = flat(pinned, q, 4 * N)
fifth = add(cuda.cuGraphAddMemcpyNode, graph, [], byref(back), ctx)
ok(cuda.cuGraphAddDependencies(graph, array(fourth), array(fifth), c_size_t(1)))
assert [h.value for h in nodes(graph)] == [h.value for h in (first, second, third, fourth, fifth)]
assert [type_of(n) for n in nodes(graph)] == [1, 0, 2, 5, 1]
given = Kernel()
ok(cuda.cuGraphKernelNodeGetParams_v2(second, byref(given)))
assert given.func == scale.value and list(given.grid) == [16, 1, 1]
told = ctypes.cast(given.params, ctypes.POINTER(c_void_p))
assert ctypes.cast(told[2], ctypes.POINTER(ctypes.c_uint8))[0] == 3

e = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
def host(): return list((c_uint * N).from_address(pinned.value))
run(e, s)
assert host() == [77] * 10 + [3 * v for v in values[10:]]
assert download(p, N) == values, "the source stays as it is"
# other parameters: of the executable graph, then of the graph
args = params(q, c_uint(500), ctypes.c_uint8(2), c_uint64(0))
launch = kernel(scale, N, args)
ok(cuda.cuGraphExecKernelNodeSetParams_v2(e, second, byref(launch)))
fill = Memset(q.value + 40, 0, 5, 1, 4, 1)
ok(cuda.cuGraphExecMemsetNodeSetParams(e, third, byref(fill), ctx))
run(e, s)
expected = [2 * v for v in values[:500]] + values[500:]
expected[10] = 0x05050505
assert host() == expected
ok(cuda.cuGraphKernelNodeSetParams_v2(second, byref(launch)))
again = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
run(again, s)
assert host() == [77] * 10 + [2 * v for v in values[10:500]] + values[500:]
# the executable graph outlives the graph, whose nodes are gone
ok(cuda.cuGraphDestroy(graph))
kind = c_int()
assert cuda.cuGraphNodeGetType(first, byref(kind)) == 1
assert cuda.cuGraphExecKernelNodeSetParams_v2(e, second, byref(launch)) == 1
run(e, s)
assert host() == expected
"""
    )


def test_what_is_refused(simulate: Simulate) -> None:
    simulate(
        NODES
        + """
ctx = context()
m = module()
scale, q = function(m, b"scale"), alloc(4 * N)
graph, other = new(cuda.cuGraphCreate, 0), new(cuda.cuGraphCreate, 0)
a, b = add(cuda.cuGraphAddEmptyNode, graph, []), add(cuda.cuGraphAddEmptyNode, graph, [])
stranger, made, e = add(cuda.cuGraphAddEmptyNode, other, []), c_void_p(), c_void_p()
args = params(q, c_uint(N), ctypes.c_uint8(3), c_uint64(0))
launch = kernel(scale, N, args)
def adding(function, after, *p):
    return function(byref(made), graph, array(*after), c_size_t(len(after)), *p)
assert adding(cuda.cuGraphAddEmptyNode, [c_void_p(12345)]) == 1
assert adding(cuda.cuGraphAddEmptyNode, [stranger]) == 1, "a node of another graph"
assert adding(cuda.cuGraphAddKernelNode_v2, [a], None) == 1
launch.block[0] = 2000
assert adding(cuda.cuGraphAddKernelNode_v2, [a], byref(launch)) == 1
launch.block[0], launch.func = 64, 1
assert adding(cuda.cuGraphAddKernelNode_v2, [a], byref(launch)) == 400
copy = flat(q, c_uint64(q.value + 4), 4 * N)
assert adding(cuda.cuGraphAddMemcpyNode, [a], byref(copy), ctx) == 1, "beyond the allocation"
fill = Memset(q.value, 0, 77, 4, N + 1, 1)
assert adding(cuda.cuGraphAddMemsetNode, [a], byref(fill), ctx) == 1
assert made.value is None
ok(cuda.cuGraphAddDependencies(graph, array(a), array(b), c_size_t(1)))
assert cuda.cuGraphAddDependencies(graph, array(a), array(b), c_size_t(1)) == 1, "twice"
ok(cuda.cuGraphAddDependencies(graph, array(b), array(a), c_size_t(1)))
assert cuda.cuGraphInstantiateWithFlags(byref(e), graph, c_uint64(0)) == 1, "a cycle"
"""
    )


def test_nodes_of_a_captured_graph(simulate: Simulate) -> None:
    simulate(
        NODES
        + """
context()
scale, values = function(module(), b"scale"), words(N)
p, s = upload(values), new(cuda.cuStreamCreate, 1)
args = params(p, c_uint(N), ctypes.c_uint8(3), c_uint64(0))
ok(launch(scale, N, s, args))
ok(cuda.cuStreamSynchronize(s))
ok(cuda.cuStreamBeginCapture_v2(s, 0))
ok(launch(scale, N, s, args))
ok(cuda.cuMemsetD32Async(p, 9, c_size_t(3), s))
graph = new(lambda made, stream: cuda.cuStreamEndCapture(stream, made), s)
found = nodes(graph)
assert [type_of(n) for n in found] == [0, 2]
assert [n.value for n in nodes(graph)] == [n.value for n in found]
padded, room = (c_void_p * 4)(1, 1, 1, 1), c_size_t(4)
ok(cuda.cuGraphGetNodes(graph, padded, byref(room)))
assert room.value == 2 and list(padded) == [found[0].value, found[1].value, None, None]
e = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
other = params(p, c_uint(N), ctypes.c_uint8(5), c_uint64(0))
changed = kernel(scale, N, other)
ok(cuda.cuGraphExecKernelNodeSetParams_v2(e, found[0], byref(changed)))
run(e, s)
assert download(p, N) == [9] * 3 + [(15 * v) % 2**32 for v in values[3:]]
given = kernel(scale, 1, other)
ok(cuda.cuGraphKernelNodeGetParams_v2(found[0], byref(given)))
assert bytes(given)[8:36] == bytes(kernel(scale, N, other))[8:36]  # the graph's own stay
assert given.func == scale.value and cuda.cuGraphKernelNodeGetParams_v2(found[1], byref(given)) == 1
"""
    )


def test_a_capture_that_is_lost(simulate: Simulate) -> None:
    simulate(
        """
context()
p, s, other, event, outside = alloc(4), new(cuda.cuStreamCreate, 1), new(cuda.cuStreamCreate, 1), c_void_p(), c_void_p()
ok(cuda.cuEventCreate(byref(event), 0))
ok(cuda.cuEventCreate(byref(outside), 0))
ok(cuda.cuEventRecord(outside, other))
def end(stream):
    graph = c_void_p(1)
    result = cuda.cuStreamEndCapture(stream, byref(graph))
    assert result not in (901, 904) or graph.value is None
    return result
def begin(): ok(cuda.cuStreamBeginCapture_v2(s, 0))
begin()
assert cuda.cuStreamWaitEvent(s, outside, 0) == 905
status = c_int()
ok(cuda.cuStreamIsCapturing(s, byref(status)))
assert status.value == 2, "invalidated"
assert end(s) == 901
begin()
ok(cuda.cuEventRecord(event, s))
ok(cuda.cuStreamWaitEvent(other, event, 0))
ok(cuda.cuMemsetD32Async(p, 1, c_size_t(1), other))
assert end(other) == 903, "it did not begin there"
assert end(s) == 904, "forked work that was not joined"
ok(cuda.cuStreamIsCapturing(other, byref(status)))
assert status.value == 0
begin()
ok(cuda.cuEventRecord(event, s))
assert cuda.cuEventQuery(event) == 907
assert end(s) == 901, "asking was wrong"
begin()
extra = c_uint64()
assert cuda.cuMemAlloc_v2(byref(extra), c_size_t(16)) == 900
assert end(s) == 901
begin()
assert end(s) == 0, "an empty graph"
"""
    )


def test_an_executable_graph_is_updated_by_captures(simulate: Simulate) -> None:
    """llama.cpp does this for each token."""
    simulate(
        NODES
        + """
class Info(ctypes.Structure):
    _fields_ = [("result", c_int), ("node", c_void_p), ("from_node", c_void_p)]
context()
scale, values = function(module(), b"scale"), words(N)
p, s, info = upload(values), new(cuda.cuStreamCreate, 1), Info(99)
def captured(factor, launches=1):
    ok(cuda.cuStreamBeginCapture_v2(s, 2))
    for _ in range(launches):
        ok(launch(scale, N, s, params(p, c_uint(N), ctypes.c_uint8(factor), c_uint64(0))))
    return new(lambda made, stream: cuda.cuStreamEndCapture(stream, made), s)
graph = captured(2)
e = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
run(e, s)
ok(cuda.cuGraphExecUpdate_v2(e, captured(5), byref(info)))
assert info.result == 0
run(e, s)
assert cuda.cuGraphExecUpdate_v2(e, captured(7, launches=2), byref(info)) == 910
assert info.result == 2, "another topology"
run(e, s)
assert download(p, N) == [2 * 5 * 5 * v % 2**32 for v in values]
assert cuda.cuGraphExecUpdate_v2(e, None, byref(info)) == 1
failed, reason = c_void_p(1), c_int()
assert cuda.cuGraphExecUpdate(e, captured(7, launches=2), byref(failed), byref(reason)) == 910
assert (failed.value, reason.value) == (None, 2)
"""
    )


def test_edge_data_in_a_capture(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
s, p, q = stream(), upload(words(N)), upload(words(N))
scale = function(module(), b"scale")
def queue(at): ok(launch(scale, N, s, params(at, c_uint(N), ctypes.c_uint8(3), c_uint64(0))))
EARLY, ORDERED = bytes([1, 0, 1, 0, 0, 0, 0, 0]), bytes([2, 0, 0, 0, 0, 0, 0, 0])
def then(node, data, flags=1):
    return cuda.cuStreamUpdateCaptureDependencies_v2(s, byref(node), data, c_size_t(1), flags)
def info(version):
    status, before, edges, count = c_int(), ctypes.POINTER(c_void_p)(), c_void_p(), c_size_t()
    data = (byref(edges),) if version == 3 else ()
    ask = getattr(cuda, f"cuStreamGetCaptureInfo_v{version}")
    result = ask(s, byref(status), None, None, byref(before), *data, byref(count))
    return result or ([before[i] for i in range(count.value)], ctypes.string_at(edges.value, 8 * count.value))
def edges(graph):
    first, second, data, count = (c_void_p * 4)(), (c_void_p * 4)(), create_string_buffer(32), c_size_t(4)
    ok(cuda.cuGraphGetEdges_v2(graph, first, second, data, byref(count)))
    return [(first[i], second[i], data.raw[8 * i:8 * i + 8]) for i in range(count.value)]
begin(s)
queue(p)
before, data = info(3)
first = c_void_p(before[0])
assert len(before) == 1 and data == bytes(8)
# a port, a port to, a type, a reserved byte
for wrong in (b"\\3", b"\\1\\1", b"\\0\\0\\1", b"\\1\\0\\0\\1"):
    assert then(first, wrong.ljust(8, b"\\0")) == 1
assert then(first, EARLY, 2) == 1
ok(then(first, EARLY))
assert info(3) == ([first.value], EARLY) and info(2) == 402, "the older form cannot tell"
assert cuda.cuStreamGetCaptureInfo_v3(s, byref(c_int()), None, None, None, byref(c_void_p()), None) == 1
queue(q)
second = c_void_p(info(3)[0][0])
assert info(3)[1] == bytes(8)
queue(q)
third = c_void_p(info(3)[0][0])
graph = end(s)
assert edges(graph) == [(first.value, second.value, EARLY), (second.value, third.value, bytes(8))]
run(executable(graph), s)
assert download(p, N) == scaled(words(N), 3) and download(q, N) == scaled(words(N), 9)
# from the beginning of a capture into a graph
def into(data): return cuda.cuStreamBeginCaptureToGraph(s, graph, byref(third), data, c_size_t(1), 2)
assert into(b"\\3".ljust(8, b"\\0")) == 1
ok(into(ORDERED))
assert info(3) == ([third.value], ORDERED)
text = create_string_buffer(4 * N)  # a copy of pageable memory waits for all of it
ok(cuda.cuMemcpyDtoHAsync_v2(text, q, c_size_t(4 * N), s))
copied = info(3)[0]
ok(cuda.cuStreamEndCapture(s, None))
assert edges(graph)[2] == (third.value, copied[0], bytes(8)) and type_of(c_void_p(copied[0])) == 1
run(executable(graph), s)
assert list(struct.unpack(f"<{N}I", text.raw)) == scaled(words(N), 81)
"""
    )


def test_the_legacy_stream_is_unusable_while_a_blocking_stream_captures(simulate: Simulate) -> None:
    simulate(
        """
context()
p, other = alloc(8), new(cuda.cuStreamCreate, 1)
blocking, apart, again = new(cuda.cuStreamCreate, 0), new(cuda.cuStreamCreate, 1), new(cuda.cuStreamCreate, 0)
event, elsewhere, status, m = new(cuda.cuEventCreate, 0), new(cuda.cuEventCreate, 0), c_int(), module()
ok(cuda.cuEventRecord(elsewhere, other))
count = function(m, b"count")
host, back = (c_uint * 2)(), (c_uint * 2)()
work = {
    "launch": lambda s: cuda.cuLaunchKernel(count, *[1] * 6, 0, s, None, None),
    "fill": lambda s: cuda.cuMemsetD32Async(p, 1, c_size_t(1), s),
    "copy": lambda s: cuda.cuMemcpyHtoDAsync_v2(p, host, c_size_t(8), s),
    "record": lambda s: cuda.cuEventRecord(event, s),
    "wait": lambda s: cuda.cuStreamWaitEvent(s, elsewhere, 0),
    "query": lambda s: cuda.cuStreamQuery(s),
    "synchronise": lambda s: cuda.cuStreamSynchronize(s),
    "allocate": lambda s: cuda.cuMemAllocAsync(byref(c_uint64()), c_size_t(64), s),
    "host function": lambda s: cuda.cuLaunchHostFunc(s, HOST, None),
}
HOST = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None)
def begin(stream, mode=2): ok(cuda.cuStreamBeginCapture_v2(stream, mode))
def end(stream):
    graph = c_void_p(1)
    return cuda.cuStreamEndCapture(stream, byref(graph))
for mode in range(3):
    for name, call in work.items():
        for legacy in (None, c_void_p(1)):
            begin(blocking, mode)
            assert call(legacy) == 906, (mode, name)
            assert end(blocking) == 901, (mode, name)
            assert name == "query" or call(legacy) == 0, name
    begin(apart, 2)
    for name, call in work.items():
        assert call(None) in (0, 600) and call(c_void_p(2)) in (0, 600), (mode, name)
    assert end(apart) == 0, "a stream that is not blocking leaves the legacy stream alone"

# a synchronous copy is work in the legacy stream
begin(blocking)
assert cuda.cuMemcpyDtoH_v2(back, p, c_size_t(8)) == 906 and cuda.cuMemsetD32_v2(p, 1, c_size_t(1)) == 906
assert end(blocking) == 901

# A question leaves the capture as it is, and so does what is only asked of the stream.
begin(blocking)
id = c_uint64()
assert cuda.cuStreamIsCapturing(None, byref(status)) == 906
assert cuda.cuStreamGetCaptureInfo(None, byref(status), byref(id)) == 906
flags = c_uint()
ok(cuda.cuStreamGetFlags(None, byref(flags)))
# Other streams work on.
assert all(call(other) in (0, 600) for name, call in work.items())
ok(cuda.cuStreamSynchronize(other))
# An event that is refused keeps what it was recorded at.
ok(cuda.cuEventRecord(elsewhere, other))
ok(cuda.cuStreamSynchronize(other))
assert end(blocking) == 0

# The stream that joins a capture counts, not only where it began.
begin(apart)
ok(cuda.cuEventRecord(event, apart))
ok(cuda.cuMemsetD32Async(p, 1, c_size_t(1), None))
ok(cuda.cuStreamWaitEvent(blocking, event, 0))
assert cuda.cuMemsetD32Async(p, 1, c_size_t(1), None) == 906
assert end(apart) == 901
assert cuda.cuMemsetD32Async(p, 1, c_size_t(1), None) == 0

# A stream that is destroyed while it captures takes the capture with it.
begin(again)
ok(cuda.cuStreamDestroy_v2(again))
ok(cuda.cuMemsetD32Async(p, 1, c_size_t(1), None))

# each context has a legacy stream of its own
begin(blocking)
second = c_void_p()
ok(cuda.cuCtxCreate_v2(byref(second), 0, 0))
ok(cuda.cuStreamSynchronize(None))
ok(cuda.cuCtxDestroy_v2(second))
assert end(blocking) == 0
"""
    )


def test_what_an_update_could_not_take(simulate: Simulate) -> None:
    """The reason, and the node of the new graph that does not fit."""
    simulate(
        WORK
        + """
class Info(ctypes.Structure):
    _fields_ = [("result", c_int), ("node", c_void_p), ("origin", c_void_p)]
TOPOLOGY, TYPE, PARAMETERS, FUNCTION, ATTRIBUTES = 2, 3, 5, 7, 8
s, p, q = stream(), alloc(4 * N), alloc(4 * N)
scale = function(module(), b"scale")
args = params(p, c_uint(N), ctypes.c_uint8(3), c_uint64(0))
source = create_string_buffer(4 * N)
at_source = c_void_p(ctypes.addressof(source))
def fill(height=1, width=N): return lambda g, after: add(
    cuda.cuGraphAddMemsetNode, g, after, byref(Memset(p.value, 4 * width, 5, 4, width, height)), None)
def scales(g, after): return add(cuda.cuGraphAddKernelNode_v2, g, after, byref(kernel(scale, N, args)))
def empty(g, after): return add(cuda.cuGraphAddEmptyNode, g, after)
def copies(src): return lambda g, after: add(
    cuda.cuGraphAddMemcpyNode, g, after, byref(flat(p, src, 4 * N)), None)
def chain(*makes):
    graph, after = new(cuda.cuGraphCreate, 0), []
    for make in makes:
        after = [make(graph, after)]
    return graph
def update(e, graph):
    info = Info(99, 1, 1)
    result = cuda.cuGraphExecUpdate_v2(e, graph, byref(info))
    assert result == (910 if info.result else 0) and not info.origin
    node, reason = c_void_p(1), c_int()
    assert cuda.cuGraphExecUpdate(e, graph, byref(node), byref(reason)) == result
    assert (node.value, reason.value) == (info.node, info.result)
    places = [n.value for n in nodes(graph)]
    return info.result, places.index(info.node) if info.node else None
e = executable(chain(fill(), scales, empty))
assert update(e, chain(fill(), scales, empty)) == (0, None)
assert update(e, chain(fill(), scales)) == (TOPOLOGY, None), "another number of nodes"
assert update(e, chain(fill(), scales, scales)) == (TYPE, 2)
forked = new(cuda.cuGraphCreate, 0)
first = fill()(forked, [])
scales(forked, [first])
empty(forked, [first])
assert update(e, forked) == (TOPOLOGY, 2), "another dependency"
e = executable(chain(scales, fill(5, 40)))
assert update(e, chain(scales, fill(5, 40))) == (0, None)
assert update(e, chain(scales, fill(4, 40))) == (PARAMETERS, 1)
child = chain(scales, empty)
def inside(graph): return lambda g, after: add(cuda.cuGraphAddChildGraphNode, g, after, graph)
e = executable(chain(empty, inside(child)))
assert update(e, chain(empty, inside(chain(scales, empty)))) == (0, None)
assert update(e, chain(empty, inside(chain(scales, scales))))[0] == TYPE
assert update(e, chain(empty, inside(chain(scales)))) == (TOPOLOGY, 1)
# a copy that the worker makes in two halves is one node, and a captured graph's nodes get handles when one is named
e = executable(chain(scales, copies(q)))
assert update(e, chain(scales, copies(at_source))) == (TYPE, 1)
def captured(pageable):
    begin(s)
    ok(launch(scale, N, s, args))
    if pageable:
        ok(cuda.cuMemcpyHtoDAsync_v2(p, source, c_size_t(4 * N), s))
    else:
        ok(cuda.cuMemcpyDtoDAsync_v2(p, q, c_size_t(4 * N), s))
    return end(s)
assert update(e, captured(True)) == (TYPE, 1)
assert update(e, captured(False)) == (0, None)
run(e, s)
"""
    )


def test_a_destroyed_stream_leaves_the_program_the_graph_that_it_captured_into(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
p, graph = alloc(64), new(cuda.cuGraphCreate, 0)
first = add(cuda.cuGraphAddMemsetNode, graph, [], byref(Memset(p.value, 0, 5, 4, 4, 1)), None)
for flags in (0, 1):
    s = new(cuda.cuStreamCreate, flags)
    ok(cuda.cuStreamBeginCaptureToGraph(s, graph, None, None, c_size_t(0), 2))
    ok(cuda.cuStreamDestroy_v2(s))
    assert [n.value for n in nodes(graph)] == [first.value]
run(executable(graph), None)
assert download(p, 4) == [5] * 4
ok(cuda.cuGraphDestroy(graph))
"""
    )


def test_captures_end_with_their_context(simulate: Simulate) -> None:
    """Before, the 65th capture was refused, and a capture in global mode forbade cuMemAlloc for ever."""
    simulate(
        NODES
        + """
lasting = context()
for _ in range(70):
    passing = c_void_p()
    ok(cuda.cuCtxCreate_v2(byref(passing), 0, 0))
    ok(cuda.cuStreamBeginCapture_v2(new(cuda.cuStreamCreate, 0), 0))
    ok(cuda.cuCtxDestroy_v2(passing))
ok(cuda.cuCtxSetCurrent(lasting))
p = alloc(64)
ok(cuda.cuMemsetD32_v2(p, 1, c_size_t(1)))
"""
    )
