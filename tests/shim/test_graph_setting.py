"""Events, enabled nodes and attributes of kernels in graphs, on the simulator."""

from tests.shim.graph_program import WORK
from tests.shim.simulated import Simulate

SETTINGS = (
    WORK
    + """
EMPTY, WAIT, RECORD = 5, 6, 7
NOT_READY, INVALID_VALUE, INVALID_HANDLE, CAPTURED = 600, 1, 400, 907
def event(flags=0): return new(cuda.cuEventCreate, flags)
def graph(): return new(cuda.cuGraphCreate, 0)
def fill(g, after, p, value):
    node = Memset(p.value, 0, value, 4, N, 1)
    return add(cuda.cuGraphAddMemsetNode, g, after, byref(node), ctx)
def gate():
    '''A host function that waits until the second value is set; the first is set once it runs.'''
    begun, may_end = threading.Event(), threading.Event()
    f = HOST_FUNCTION(lambda _: (begun.set(), may_end.wait(60)))
    kept.append(f)
    return f, begun, may_end
def scaling(p, factor):
    values = p, c_uint(N), ctypes.c_uint8(factor), c_uint64(0)
    arguments = params(*values)
    kept.extend([values, arguments])  # nodes are given their addresses
    return kernel(scale, N, arguments)
def host(g, after, f):
    node = host_node(f, None)
    return add(cuda.cuGraphAddHostNode, g, after, byref(node))
"""
)


def test_launches_record_events(simulate: Simulate) -> None:
    """An event is complete when a launch reaches its node, not before, and not only when the launch ends."""
    simulate(
        SETTINGS
        + """
s, other, p = stream(), stream(), alloc(4 * N)
first, middle, last = event(), event(), event()
before, before_begun, before_end = gate()
after, after_begun, after_end = gate()
g = graph()
a = host(g, [], before)
r = add(cuda.cuGraphAddEventRecordNode, g, [a], middle)
b = host(g, [r], after)
end_node = add(cuda.cuGraphAddEventRecordNode, g, [b], last)
assert [type_of(n) for n in nodes(g)] == [3, RECORD, 3, RECORD]
found = c_void_p()
ok(cuda.cuGraphEventRecordNodeGetEvent(r, byref(found)))
assert found.value == middle.value
assert cuda.cuGraphEventWaitNodeGetEvent(r, byref(found)) == INVALID_VALUE
e = executable(g)
ok(cuda.cuEventQuery(middle))  # never recorded: complete
ok(cuda.cuEventRecord(first, s))
launch_graph(e, s)
assert before_begun.wait(60)
assert cuda.cuEventQuery(middle) == NOT_READY and cuda.cuEventQuery(last) == NOT_READY
milliseconds = c_float()
assert cuda.cuEventElapsedTime_v2(byref(milliseconds), first, last) == NOT_READY
before_end.set()
ok(cuda.cuEventSynchronize(middle))
assert after_begun.wait(60)
ok(cuda.cuEventQuery(middle))
assert cuda.cuEventQuery(last) == NOT_READY
# another stream waits for what the launch records
ok(cuda.cuStreamWaitEvent(other, last, 0))
ok(cuda.cuMemsetD32Async(p, c_uint(4), c_size_t(N), other))
assert cuda.cuStreamQuery(other) == NOT_READY
after_end.set()
sync(other)
ok(cuda.cuEventQuery(last))
ok(cuda.cuEventElapsedTime_v2(byref(milliseconds), first, last))
assert milliseconds.value > 0
ok(cuda.cuEventElapsedTime_v2(byref(milliseconds), middle, last))
assert milliseconds.value >= 0
# another event for later launches, and for graphs made executable later
fourth = event()
ok(cuda.cuGraphExecEventRecordNodeSetEvent(e, end_node, fourth))
launch_graph(e, s)
ok(cuda.cuEventSynchronize(fourth))
sync(s)
ok(cuda.cuEventElapsedTime_v2(byref(milliseconds), last, fourth))
assert milliseconds.value > 0
ok(cuda.cuGraphEventRecordNodeSetEvent(r, fourth))
ok(cuda.cuGraphEventRecordNodeGetEvent(r, byref(found)))
assert found.value == fourth.value
assert cuda.cuGraphExecEventWaitNodeSetEvent(e, end_node, fourth) == INVALID_VALUE
# a graph keeps the event that the program destroys
for each in (middle, last, fourth):
    ok(cuda.cuEventDestroy_v2(each))
launch_graph(e, s)
sync(s)
ok(cuda.cuGraphExecDestroy(e))
ok(cuda.cuGraphDestroy(g))
"""
    )


def test_launches_wait_for_events(simulate: Simulate) -> None:
    simulate(
        SETTINGS
        + """
s, other, p, q = stream(), stream(), alloc(4 * N), alloc(4 * N)
reached, unrecorded = event(2), event(2)
hold, begun, may_end = gate()
g = graph()
f = fill(g, [], p, 1)
w = add(cuda.cuGraphAddEventWaitNode, g, [f], reached)
fill(g, [w], q, 2)
assert type_of(w) == WAIT
e = executable(g)
launch_graph(e, s)  # the event was never recorded: nothing to wait for
sync(s)
assert download(q, N) == [2] * N
ok(cuda.cuMemsetD32Async(q, c_uint(0), c_size_t(N), s))
sync(s)
ok(cuda.cuLaunchHostFunc(other, hold, None))
ok(cuda.cuMemsetD32Async(p, c_uint(9), c_size_t(N), other))
ok(cuda.cuEventRecord(reached, other))
assert begun.wait(60)
launch_graph(e, s)
done = event(2)
ok(cuda.cuEventRecord(done, s))
for _ in range(20):
    assert cuda.cuEventQuery(done) == NOT_READY
may_end.set()
sync(s)
assert download(p, N) == [9] * N, "the fill before the wait came first"
assert download(q, N) == [2] * N
# for later launches it waits for an event that was never recorded
hold, begun, may_end = gate()
ok(cuda.cuGraphExecEventWaitNodeSetEvent(e, w, unrecorded))
ok(cuda.cuLaunchHostFunc(other, hold, None))
ok(cuda.cuEventRecord(reached, other))
launch_graph(e, s)
sync(s)
assert cuda.cuEventQuery(reached) == NOT_READY
may_end.set()
sync(other)
# a graph that waits for what an earlier launch of another graph records
hold, begun, may_end = gate()
g2 = graph()
h = host(g2, [], hold)
add(cuda.cuGraphAddEventRecordNode, g2, [h], reached)
e2 = executable(g2)
ok(cuda.cuGraphExecEventWaitNodeSetEvent(e, w, reached))
launch_graph(e2, other)
launch_graph(e, s)
ok(cuda.cuEventRecord(done, s))
assert begun.wait(60)
assert cuda.cuEventQuery(done) == NOT_READY
may_end.set()
sync(s)
"""
    )


def test_external_events_in_captures(simulate: Simulate) -> None:
    """The external form of recording and waiting becomes a node; the event is not part of the capture."""
    simulate(
        SETTINGS
        + """
EXTERNAL = 1
s, other, p = stream(), stream(), alloc(4 * N)
ready, recorded = event(2), event()
begin(s)
ok(cuda.cuStreamWaitEvent(s, ready, EXTERNAL))
ok(cuda.cuMemsetD32Async(p, c_uint(3), c_size_t(N), s))
ok(cuda.cuEventRecordWithFlags(recorded, s, EXTERNAL))
ok(cuda.cuEventQuery(recorded))  # of the program's, not of the capture's
g = end(s)
assert [type_of(n) for n in nodes(g)] == [WAIT, 2, RECORD]
e = executable(g)
hold, begun, may_end = gate()
ok(cuda.cuLaunchHostFunc(other, hold, None))
ok(cuda.cuEventRecord(ready, other))
launch_graph(e, s)
assert begun.wait(60)
assert cuda.cuEventQuery(recorded) == NOT_READY
may_end.set()
ok(cuda.cuEventSynchronize(recorded))
assert download(p, N) == [3] * N
# a captured launch records the event, too
begin(s)
launch_graph(e, s)
outer = executable(end(s))
hold, begun, may_end = gate()
ok(cuda.cuLaunchHostFunc(s, hold, None))
launch_graph(outer, s)
assert cuda.cuEventQuery(recorded) == NOT_READY
may_end.set()
ok(cuda.cuEventSynchronize(recorded))
"""
    )


def test_disabled_nodes(simulate: Simulate) -> None:
    simulate(
        SETTINGS
        + """
s, p = stream(), upload(words(N))
scale = function(module(), b"scale")
g = graph()
three = scaling(p, 3)
k = add(cuda.cuGraphAddKernelNode_v2, g, [], byref(three))
h = host(g, [k], says("host"))
z = fill(g, [h], p, 7)
inner = graph()
node = Memset(p.value, 0, 8, 4, N, 1)
add(cuda.cuGraphAddMemsetNode, inner, [], byref(node), ctx)
c = add(cuda.cuGraphAddChildGraphNode, g, [z], inner)
copy = new(lambda out: cuda.cuGraphChildGraphNodeGetGraph(c, out))
(in_child,) = nodes(copy)
e, twin = executable(g), executable(g)
enabled = c_uint(9)
def is_enabled(node):
    ok(cuda.cuGraphNodeGetEnabled(e, node, byref(enabled)))
    return enabled.value
assert is_enabled(k) == is_enabled(z) == 1
for node in (h, c):
    assert cuda.cuGraphNodeSetEnabled(e, node, 0) == INVALID_VALUE
    assert cuda.cuGraphNodeGetEnabled(e, node, byref(enabled)) == INVALID_VALUE
ok(cuda.cuGraphNodeSetEnabled(e, z, 0))
ok(cuda.cuGraphNodeSetEnabled(e, in_child, 0))
assert is_enabled(z) == 0 and is_enabled(k) == 1
run(e, s)
assert download(p, N) == scaled(words(N), 3)
ok(cuda.cuGraphNodeSetEnabled(e, k, 0))
run(e, s)
assert download(p, N) == scaled(words(N), 3) and len(said) == 2
# parameters set meanwhile count once the node is enabled again
five = scaling(p, 5)
ok(cuda.cuGraphExecKernelNodeSetParams_v2(e, k, byref(five)))
run(e, s)
assert download(p, N) == scaled(words(N), 3)
ok(cuda.cuGraphNodeSetEnabled(e, k, 1))
run(e, s)
assert download(p, N) == scaled(words(N), 15)
# a captured launch takes what is enabled then
begin(s)
launch_graph(e, s)
captured = executable(end(s))
ok(cuda.cuGraphNodeSetEnabled(e, z, 1))
run(captured, s)
assert download(p, N) == scaled(words(N), 75)
run(twin, s)
assert download(p, N) == [8] * N, "another executable graph is not affected"
run(e, s)
assert download(p, N) == [7] * N
ok(cuda.cuGraphExecDestroy(twin))
"""
    )


def test_attributes_of_kernel_nodes(simulate: Simulate) -> None:
    simulate(
        SETTINGS
        + """
WINDOW, COOPERATIVE, SYNCHRONIZATION, CLUSTER, PRIORITY, DOMAIN_MAP, UPDATABLE, CARVEOUT = 1, 2, 3, 4, 8, 9, 13, 14
s, p = stream(), upload(words(N))
scale = function(module(), b"scale")
three = scaling(p, 3)
g = graph()
k = add(cuda.cuGraphAddKernelNode_v2, g, [], byref(three))
twin = add(cuda.cuGraphAddKernelNode_v2, g, [k], byref(three))
z = fill(g, [], alloc(4 * N), 0)
def value(node, attribute, count=1):
    v = (c_int * 16)(*[77] * 16)
    ok(cuda.cuGraphKernelNodeGetAttribute(node, attribute, v))
    return list(v[:count])
def put(node, attribute, *values):
    return cuda.cuGraphKernelNodeSetAttribute(node, attribute, (c_int * 16)(*values))
assert value(k, COOPERATIVE) == value(k, PRIORITY) == value(k, CARVEOUT) == [0] and value(k, CLUSTER, 3) == [0, 0, 0]
ok(put(k, PRIORITY, -2))
ok(put(k, CARVEOUT, 50))
ok(put(k, WINDOW, p.value & 0xffffffff, p.value >> 32, 4 * N, 0, 0x3f800000, 2, 1))
ok(put(k, COOPERATIVE, 1))
assert value(k, PRIORITY) == [-2] and value(k, CARVEOUT) == [50] and value(k, COOPERATIVE) == [1]
assert value(k, WINDOW, 3) == [ctypes.c_int(p.value & 0xffffffff).value, p.value >> 32, 4 * N]
for attribute in (SYNCHRONIZATION, 7, 99, -1):
    assert put(k, attribute, 1) == INVALID_VALUE, attribute
assert put(z, PRIORITY, 1) == INVALID_VALUE and cuda.cuGraphKernelNodeCopyAttributes(z, k) == INVALID_VALUE
assert value(twin, PRIORITY) == [0]
ok(cuda.cuGraphKernelNodeCopyAttributes(twin, k))
assert value(twin, PRIORITY) == [-2] and value(twin, COOPERATIVE) == [1]
# new parameters leave attributes alone
five = scaling(p, 5)
ok(cuda.cuGraphKernelNodeSetParams_v2(twin, byref(five)))
assert value(twin, COOPERATIVE) == [1] and value(twin, PRIORITY) == [-2]
clone = new(cuda.cuGraphClone, g)
assert value(nodes(clone)[0], PRIORITY) == [-2]
run(executable(g), s)
assert download(p, N) == scaled(words(N), 15)
"""
    )
