"""Work that graphs have the client do at each launch (host functions, pageable copies), on the simulator."""

from tests.shim.graph_program import WORK
from tests.shim.simulated import Simulate


def test_a_host_function_in_a_capture_runs_at_each_launch(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
s, p = stream(), alloc(4 * N)
first, second = says("first"), says("second")
begin(s)
ok(cuda.cuLaunchHostFunc(s, first, c_void_p(1)))
ok(cuda.cuMemsetD32Async(p, c_uint(5), c_size_t(N), s))
ok(cuda.cuLaunchHostFunc(s, second, c_void_p(2)))
graph = end(s)
assert not said
assert [type_of(n) for n in nodes(graph)] == [3, 2, 3]
params = HostNode()
ok(cuda.cuGraphHostNodeGetParams(nodes(graph)[2], byref(params)))
assert (params.fn, params.data) == (ctypes.cast(second, c_void_p).value, 2)
e = executable(graph)
ok(cuda.cuGraphDestroy(graph))  # the executable graph keeps what it needs
for _ in range(3):
    launch_graph(e, s)
sync(s)
assert said == [("first", 1), ("second", 2)] * 3
assert download(p, N) == [5] * N
# what comes after in the stream waits for the function
gate = threading.Event()
slow = HOST_FUNCTION(lambda _: (gate.wait(), said.append("slow")))
said.clear()
begin(s)
ok(cuda.cuLaunchHostFunc(s, slow, None))
g = end(s)
e2 = executable(g)
launch_graph(e2, s)
event = new(cuda.cuEventCreate, 2)
ok(cuda.cuEventRecord(event, s))
assert cuda.cuEventQuery(event) == 600
gate.set()
ok(cuda.cuEventSynchronize(event))
assert said == ["slow"]
# destroyed while it runs: it runs to its end
said.clear()
gate.clear()
launch_graph(e2, s)
launch_graph(e, s)
ok(cuda.cuGraphExecDestroy(e2))
ok(cuda.cuGraphExecDestroy(e))
gate.set()
sync(s)
assert said == ["slow", ("first", 1), ("second", 2)]
"""
    )


def test_what_a_capture_does_not_take(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
s = stream()
old = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)(lambda *_: said.append("old"))
begin(s)
assert cuda.cuStreamAddCallback(s, old, None, 0) == 900, "the older form"
assert cuda.cuLaunchHostFunc(s, says("late"), None) == 901
text = create_string_buffer(64)
assert cuda.cuMemcpyHtoDAsync_v2(alloc_before, text, c_size_t(64), s) == 901
graph = c_void_p(1)
assert cuda.cuStreamEndCapture(s, byref(graph)) == 901 and graph.value is None
sync(s)
assert not said
assert cuda.cuLaunchHostFunc(s, says("well"), None) == 0
sync(s)
assert said == [("well", None)]
""".replace("s = stream()", "s, alloc_before = stream(), alloc(64)", 1)
    )


def test_host_nodes(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
s = stream()
a, b, c = says("a"), says("b"), says("c")
graph = new(cuda.cuGraphCreate, 0)
first = add(cuda.cuGraphAddHostNode, graph, [], byref(host_node(a, 1)))
second = add(cuda.cuGraphAddHostNode, graph, [first], byref(host_node(b, 2)))
assert [type_of(n) for n in nodes(graph)] == [3, 3]
e = executable(graph)
run(e, s)
assert said == [("a", 1), ("b", 2)]
said.clear()
for i in range(4):  # for later launches of one executable graph, while others are under way
    ok(cuda.cuGraphExecHostNodeSetParams(e, second, byref(host_node(c, i))))
    launch_graph(e, s)
sync(s)
assert said == [x for i in range(4) for x in (("a", 1), ("c", i or None))]
params = HostNode()
ok(cuda.cuGraphHostNodeGetParams(second, byref(params)))
assert params.data == 2, "the graph's own node is as it was"
said.clear()
ok(cuda.cuGraphHostNodeSetParams(first, byref(host_node(b, 7))))
ok(cuda.cuGraphHostNodeGetParams(first, byref(params)))
assert params.data == 7
run(executable(graph), s)
run(e, s)
assert said == [("b", 7), ("b", 2), ("a", 1), ("c", 3)]
made = c_void_p()
assert cuda.cuGraphAddHostNode(byref(made), graph, None, c_size_t(0), None) == 1
assert cuda.cuGraphAddHostNode(byref(made), graph, None, c_size_t(0), byref(HostNode())) == 1
assert cuda.cuGraphHostNodeGetParams(c_void_p(5), byref(params)) == 1
empty = add(cuda.cuGraphAddEmptyNode, graph, [])
assert cuda.cuGraphHostNodeGetParams(empty, byref(params)) == 1
assert cuda.cuGraphHostNodeSetParams(empty, byref(host_node(a, 1))) == 1
assert cuda.cuGraphExecHostNodeSetParams(e, empty, byref(host_node(a, 1))) == 1
said.clear()
run(e, s)
assert said == [("a", 1), ("c", 3)], "what failed has changed nothing"
"""
    )


def test_pageable_copies_in_a_capture_happen_at_each_launch(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
s, p, q = stream(), alloc(4 * N), alloc(4 * N)
scale = function(module(), b"scale")
source, back, copy = (create_string_buffer(4 * N) for _ in range(3))
def fill(values): ctypes.memmove(source, pack(values), 4 * N)
def read(buffer): return list(struct.unpack(f"<{N}I", buffer.raw))
args = params(p, c_uint(N), ctypes.c_uint8(3), c_uint64(0))
fill([9] * N)
begin(s)
ok(cuda.cuMemcpyHtoDAsync_v2(p, source, c_size_t(4 * N), s))
ok(launch(scale, N, s, args))
ok(cuda.cuMemcpyDtoHAsync_v2(back, p, c_size_t(4 * N), s))
ok(cuda.cuMemcpyAsync(c_uint64(ctypes.addressof(copy)), c_uint64(ctypes.addressof(back)), c_size_t(4 * N), s))
graph = end(s)
assert read(back) == [0] * N
e = executable(graph)
assert [type_of(n) for n in nodes(graph)] == [1, 0, 1, 1]
for seed in range(3):
    values = words(N, seed)
    fill(values)
    launch_graph(e, s)
    sync(s)
    assert read(back) == read(copy) == scaled(values, 3)
# a host function of the graph writes what its copy reads
writes = HOST_FUNCTION(lambda _: fill([said[-1]] * N))
checks = HOST_FUNCTION(lambda _: said.append(read(back)[N - 1]))
kept.extend((writes, checks))
said.append(1)
begin(s)
ok(cuda.cuLaunchHostFunc(s, writes, None))
ok(cuda.cuMemcpyHtoDAsync_v2(p, source, c_size_t(4 * N), s))
ok(launch(scale, N, s, args))
ok(cuda.cuMemcpyDtoHAsync_v2(back, p, c_size_t(4 * N), s))
ok(cuda.cuLaunchHostFunc(s, checks, None))
e2 = executable(end(s))
for _ in range(4):
    launch_graph(e2, s)
ok(cuda.cuCtxSynchronize())
assert said == [1, 3, 9, 27, 81]
# updated by another capture, with other memory
other = create_string_buffer(pack([4] * N), 4 * N)
begin(s)
ok(cuda.cuMemcpyHtoDAsync_v2(p, other, c_size_t(4 * N), s))
ok(launch(scale, N, s, args))
ok(cuda.cuMemcpyDtoHAsync_v2(copy, p, c_size_t(4 * N), s))
ok(cuda.cuMemcpyAsync(c_uint64(ctypes.addressof(back)), c_uint64(ctypes.addressof(copy)), c_size_t(4 * N), s))
newer = end(s)
info = (c_uint64 * 3)()
launch_graph(e, s)
ok(cuda.cuGraphExecUpdate_v2(e, newer, info))
ok(cuda.cuGraphDestroy(newer))
ok(cuda.cuGraphDestroy(graph))
sync(s)
run(e, s)
assert read(copy) == [12] * N
ok(cuda.cuGraphExecDestroy(e))
# what the capture goes on after, other edges, and a node destroyed
begin(s)
ok(cuda.cuMemcpyDtoHAsync_v2(back, p, c_size_t(4 * N), s))
status, before, count = c_int(), ctypes.POINTER(c_void_p)(), c_size_t()
ok(cuda.cuStreamGetCaptureInfo_v2(s, byref(status), None, None, byref(before), byref(count)))
after = before[0]
assert count.value == 1
ok(cuda.cuMemsetD32Async(p, c_uint(5), c_size_t(N), s))
g = end(s)
copied, filled = nodes(g)
assert copied.value == after and [type_of(n) for n in (copied, filled)] == [1, 2]
first = add(cuda.cuGraphAddMemsetNode, g, [], byref(Memset(p.value, 0, 8, 4, N, 1)), None)
ok(cuda.cuGraphAddDependencies(g, byref(first), byref(copied), c_size_t(1)))
last = add(cuda.cuGraphAddHostNode, g, [copied], byref(host_node(checks, 0)))
e3 = executable(g)
del said[:]
run(e3, s)
assert said == [8] and download(p, N) == [5] * N
ok(cuda.cuGraphRemoveDependencies(g, byref(first), byref(copied), c_size_t(1)))
ok(cuda.cuGraphDestroyNode(copied))
assert len(nodes(g)) == 3
"""
    )


def test_large_copies_and_rectangles_in_a_capture(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
s, big = stream(), (5 << 20) + 12
source, back = create_string_buffer(big), create_string_buffer(big)
p, q = alloc(big), alloc(64 * 300)
class Copy2D(ctypes.Structure):
    _fields_ = [(n + k, t) for n in ("src", "dst") for k, t in (
        ("X", c_size_t), ("Y", c_size_t), ("Type", c_uint), ("Host", c_void_p), ("Device", c_uint64),
        ("Array", c_void_p), ("Pitch", c_size_t))] + [("width", c_size_t), ("height", c_size_t)]
rows, out = create_string_buffer(100 * 40), create_string_buffer(bytes([255]) * (90 * 40), 90 * 40)
to = Copy2D(srcX=7, srcY=2, srcType=1, srcHost=ctypes.addressof(rows), srcPitch=100, dstType=2, dstDevice=q.value,
            dstPitch=64, width=33, height=30)
fro = Copy2D(srcType=2, srcDevice=q.value, srcPitch=64, dstX=1, dstType=1, dstHost=ctypes.addressof(out), dstPitch=90,
             width=33, height=30)
begin(s)
ok(cuda.cuMemcpyHtoDAsync_v2(p, source, c_size_t(big), s))
ok(cuda.cuMemcpyDtoHAsync_v2(back, p, c_size_t(big), s))
ok(cuda.cuMemcpy2DAsync_v2(byref(to), s))
ok(cuda.cuMemcpy2DAsync_v2(byref(fro), s))
assert cuda.cuStreamEndCapture(s, None) == 1
graph = end(s)
e = executable(graph)
rng = random.Random(4)
for _ in range(2):
    data = rng.randbytes(big)
    ctypes.memmove(source, data, big)
    ctypes.memmove(rows, rng.randbytes(4000), 4000)
    run(e, s)
    assert back.raw == data
    for y in range(30):
        row = out.raw[90 * y:90 * y + 90]
        at = 100 * (y + 2) + 7
        assert row[1:34] == rows.raw[at:at + 33] and row[0] == 255 and row[34:] == bytes([255]) * 56, y
"""
    )


def test_copy_nodes_of_pageable_memory(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
s, p = stream(), alloc(4 * N)
scale = function(module(), b"scale")
source, back, last = (create_string_buffer(4 * N) for _ in range(3))
def at(buffer): return c_void_p(ctypes.addressof(buffer))
def host_copy(dst, src):
    return Copy(*(Side(type=HOST, host=a.value, pitch=4 * N) for a in (src, dst)), 4 * N, 1, 1)
def read(buffer): return list(struct.unpack(f"<{N}I", buffer.raw))
args = params(p, c_uint(N), ctypes.c_uint8(3), c_uint64(0))
graph = new(cuda.cuGraphCreate, 0)
first = add(cuda.cuGraphAddMemcpyNode, graph, [], byref(flat(p, at(source), 4 * N)), ctx)
second = add(cuda.cuGraphAddKernelNode_v2, graph, [first], byref(kernel(scale, N, args)))
third = add(cuda.cuGraphAddMemcpyNode, graph, [second], byref(flat(at(back), p, 4 * N)), ctx)
fourth = add(cuda.cuGraphAddMemcpyNode, graph, [third], byref(host_copy(at(last), at(back))), ctx)
told = add(cuda.cuGraphAddHostNode, graph, [fourth], byref(host_node(says("copied"), 1)))
assert [type_of(n) for n in nodes(graph)] == [1, 0, 1, 1, 3]
inside = c_void_p()
assert cuda.cuGraphChildGraphNodeGetGraph(first, byref(inside)) == 1, "to the program it is a copy"
clone = new(cuda.cuGraphClone, graph)
assert sorted(type_of(n) for n in nodes(clone)) == [0, 1, 1, 1, 3]
e = executable(graph)
ok(cuda.cuGraphDestroy(clone))
for seed in (1, 2):
    values = words(N, seed)
    ctypes.memmove(source, pack(values), 4 * N)
    run(e, s)
    assert read(back) == read(last) == scaled(values, 3)
# other memory for later launches
values = words(N, 3)
newer, newest = create_string_buffer(pack(values), 4 * N), create_string_buffer(4 * N)
launch_graph(e, s)
ok(cuda.cuGraphExecMemcpyNodeSetParams(e, first, byref(flat(p, at(newer), 4 * N)), ctx))
ok(cuda.cuGraphExecMemcpyNodeSetParams(e, third, byref(flat(at(newest), p, 4 * N)), ctx))
run(e, s)
assert read(newest) == scaled(values, 3)
assert read(back) == scaled(words(N, 2), 3)
assert cuda.cuGraphExecMemcpyNodeSetParams(e, first, byref(flat(at(newest), p, 4 * N)), ctx) == 1, "another direction"
ok(cuda.cuGraphDestroy(graph))
run(e, s)
assert read(newest) == scaled(values, 3)
ok(cuda.cuGraphExecDestroy(e))
assert len(said) == 5
"""
    )


def test_work_and_its_memory_do_not_pile_up(simulate: Simulate) -> None:
    """A program captures a graph at every step: memory of finished work must be reused."""
    simulate(
        WORK
        + """
s, p, nbytes = stream(), alloc(1 << 20), 1 << 20
source = create_string_buffer(nbytes)
def step(i):
    begin(s)
    ok(cuda.cuMemcpyHtoDAsync_v2(p, source, c_size_t(nbytes), s))
    ok(cuda.cuLaunchHostFunc(s, says_it, None))
    graph = end(s)
    e = executable(graph)
    ok(cuda.cuGraphDestroy(graph))
    launch_graph(e, s)
    ok(cuda.cuGraphExecDestroy(e))
    sync(s)
says_it = says("step")
def size(): return int(open("/proc/self/statm").read().split()[0]) * 4096
for i in range(10):
    step(i)
before = size()
for i in range(100):
    step(i)
assert len(said) == 110
assert size() - before < 30 << 20, (size() - before) >> 20
"""
    )


def test_an_executable_graph_ends_in_another_context(simulate: Simulate) -> None:
    """The graph's pending work must survive, because the launch's stream cannot be queried from another context."""
    simulate(
        WORK
        + """
slow = HOST_FUNCTION(lambda _: (time.sleep(0.2), said.append("slow")))
graph = new(cuda.cuGraphCreate, 0)
add(cuda.cuGraphAddHostNode, graph, [], byref(host_node(slow, None)))
add(cuda.cuGraphAddHostNode, graph, nodes(graph), byref(host_node(says("end"), None)))
e = executable(graph)
launch_graph(e, None)
other = new(cuda.cuCtxCreate_v2, 0, 0)
ok(cuda.cuGraphDestroy(graph))
ok(cuda.cuGraphExecDestroy(e))
again = new(cuda.cuGraphCreate, 0)
for i in range(8):  # which must not take the place of the first
    add(cuda.cuGraphAddHostNode, again, [], byref(host_node(says("wrong"), None)))
ok(cuda.cuCtxSetCurrent(ctx))
ok(cuda.cuCtxSynchronize())
assert said == ["slow", ("end", None)], said
"""
    )
