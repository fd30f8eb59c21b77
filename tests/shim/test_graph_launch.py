"""When a launch returns: at once, or after the replay if the graph copies pageable memory; on the simulator.

NVIDIA's driver does the same (580.159.04, observed on an H200)."""

from collections.abc import Callable

from tests.shim.graph_program import WORK

Simulate = Callable[..., str]

# Each graph begins with a host function that blocks until `let_go` is set.
LAUNCHES = (
    WORK
    + """
let_go, returned, early, held_for = threading.Event(), threading.Event(), [], 400
stands = HOST_FUNCTION(lambda _: said.append(let_go.wait(held_for)))
notes = HOST_FUNCTION(lambda _: said.append("noted"))
kept.extend((stands, notes))
def comes_first(e, s, patience):
    \"\"\"Whether a launch returns before its graph is let go, which happens when it has, or patience is over.\"\"\"
    let_go.clear(), returned.clear(), said.clear()
    def watch():
        early.append(returned.wait(patience))
        let_go.set()
    watcher = threading.Thread(target=watch)
    watcher.start()
    launch_graph(e, s)
    returned.set()
    watcher.join()
    return early.pop()
def waits(e, s): return not comes_first(e, s, 0.1)
def is_queued(e, s): return comes_first(e, s, held_for / 2)
s, p, nbytes = stream(), alloc(4 * N), c_size_t(4 * N)
scale = function(module(), b"scale")
args = params(p, c_uint(N), ctypes.c_uint8(3), c_uint64(0))
def pageable(): return create_string_buffer(4 * N)
def pinned(): return (ctypes.c_char * (4 * N)).from_address(new(cuda.cuMemAllocHost_v2, nbytes).value)
def registered():
    memory = pageable()
    ok(cuda.cuMemHostRegister_v2(memory, nbytes, 0))
    return memory
def at(memory): return c_void_p(ctypes.addressof(memory))
def fill(memory, values): ctypes.memmove(memory, pack(values), 4 * N)
def read(memory): return list(struct.unpack(f"<{N}I", memory.raw))
def captured(source, back):
    begin(s)
    ok(cuda.cuLaunchHostFunc(s, stands, None))
    ok(cuda.cuMemcpyHtoDAsync_v2(p, source, nbytes, s))
    ok(launch(scale, N, s, args))
    ok(cuda.cuMemcpyDtoHAsync_v2(back, p, nbytes, s))
    ok(cuda.cuLaunchHostFunc(s, notes, None))
    return end(s)
def built(source, back):
    graph = new(cuda.cuGraphCreate, 0)
    first = add(cuda.cuGraphAddHostNode, graph, [], byref(host_node(stands, None)))
    to = add(cuda.cuGraphAddMemcpyNode, graph, [first], byref(flat(p, at(source), 4 * N)), ctx)
    middle = add(cuda.cuGraphAddKernelNode_v2, graph, [to], byref(kernel(scale, N, args)))
    fro = add(cuda.cuGraphAddMemcpyNode, graph, [middle], byref(flat(at(back), p, 4 * N)), ctx)
    add(cuda.cuGraphAddHostNode, graph, [fro], byref(host_node(notes, None)))
    return graph, to, fro
def around(child):
    graph = new(cuda.cuGraphCreate, 0)
    return graph, add(cuda.cuGraphAddChildGraphNode, graph, [], child)
def into_capture(e):
    begin(s)
    assert cuda.cuGraphLaunch(e, s) == 0 and not said, "nothing runs, so nothing is waited for"
    return end(s)
"""
)


def test_pageable_memory_is_the_programs_again_when_a_launch_returns(simulate: Simulate) -> None:
    simulate(
        LAUNCHES
        + """
source, back = pageable(), pageable()
graph = captured(source, back)
said.clear()
e = executable(graph)
child = around(graph)[0]
every = {"captured": e, "built": executable(built(source, back)[0]), "clone": executable(new(cuda.cuGraphClone, graph)),
         "child": executable(child), "child of a child": executable(around(child)[0]),
         "launched in a capture": executable(into_capture(e))}
for seed, (how, each) in enumerate(every.items()):
    values = words(N, seed)
    fill(source, values)
    assert waits(each, s), how
    fill(source, [0] * N)
    assert read(back) == scaled(values, 3) == download(p, N), how
    assert said == [True, "noted"], how
# in a row, and with nothing but the launch between one use and the next
let_go.set()
for seed in range(20):
    values = words(N, seed)
    fill(source, values)
    launch_graph(e, s)
    fill(source, [seed] * N)
    assert read(back) == scaled(values, 3), seed
"""
    )


def test_a_launch_without_pageable_copies_returns_at_once(simulate: Simulate) -> None:
    """A host function of the graph blocks until the launching thread unblocks it later. The graph's copies use pinned
    memory, so on any channel they see what the graph's host functions wrote."""
    simulate(
        LAUNCHES
        + """
for make in (pinned, registered):
    source, back, seen = make(), make(), []
    writes = HOST_FUNCTION(lambda _: (said.append(let_go.wait(held_for)), fill(source, values)))
    reads = HOST_FUNCTION(lambda _: seen.append(read(back)))
    stands, notes = writes, reads
    kept.extend((writes, reads))
    graph = captured(source, back)
    every = [graph, built(source, back)[0], around(graph)[0], new(cuda.cuGraphClone, graph)]
    for seed, e in enumerate(map(executable, every)):
        values = words(N, seed)
        fill(source, [0] * N)
        fill(back, [0] * N)
        let_go.clear(), said.clear(), seen.clear()
        launch_graph(e, s)
        launch_graph(e, s)
        assert cuda.cuStreamQuery(s) == 600
        let_go.set()
        sync(s)
        assert said == [True] * 2
        assert seen == [scaled(values, 3)] * 2, (make, seed)
"""
    )


def test_pageable_copies_given_and_taken(simulate: Simulate) -> None:
    simulate(
        LAUNCHES
        + """
mine, theirs, back = pageable(), registered(), registered()
with_some, with_none = captured(mine, back), captured(theirs, back)
some, none = executable(with_some), executable(with_none)
assert waits(some, s) and is_queued(none, s)
info = (c_uint64 * 3)()
for give in range(3):
    ok(cuda.cuGraphExecUpdate_v2(none, with_some, info))
    assert waits(none, s), "given by an update"
    ok(cuda.cuGraphExecUpdate_v2(none, with_none, info))
    assert is_queued(none, s), "taken by an update"
graph, to, fro = built(theirs, back)
e = executable(graph)
assert is_queued(e, s)
values = words(N, 5)
for _ in range(3):
    ok(cuda.cuGraphExecMemcpyNodeSetParams(e, to, byref(flat(p, at(mine), 4 * N)), ctx))
    fill(mine, values)
    assert waits(e, s), "given to a node"
    fill(mine, [0] * N)
    assert read(back) == scaled(values, 3)
    ok(cuda.cuGraphExecMemcpyNodeSetParams(e, to, byref(flat(p, at(theirs), 4 * N)), ctx))
    assert is_queued(e, s), "taken from it"
assert waits(executable(built(theirs, mine)[0]), s), "to the host alone"
assert is_queued(executable(graph), s), "the graph itself has none"
outer, node = around(with_none)
e = executable(outer)
for _ in range(3):
    ok(cuda.cuGraphExecChildGraphNodeSetParams(e, node, with_some))
    assert waits(e, s), "given to a child"
    ok(cuda.cuGraphExecChildGraphNodeSetParams(e, node, with_none))
    assert is_queued(e, s), "taken from it"
ok(cuda.cuGraphExecChildGraphNodeSetParams(e, node, with_some))
unlike = new(cuda.cuGraphCreate, 0)
assert cuda.cuGraphExecChildGraphNodeSetParams(e, node, unlike) == 910
assert waits(e, s), "what failed has changed nothing"
sync(s)
"""
    )


def test_what_a_childs_node_had_still_runs_where_it_is_used(simulate: Simulate) -> None:
    """A graph contains a copy of itself: new parameters for one copy's node must not change the other copy's node."""
    simulate(
        LAUNCHES
        + """
let_go.set()
source, back = pageable(), pageable()
graph, first = around(captured(source, back))
add(cuda.cuGraphAddChildGraphNode, graph, [first], graph)
e = executable(graph)
other = captured(source, back)
ok(cuda.cuGraphExecChildGraphNodeSetParams(e, first, other))
for g in (graph, other): ok(cuda.cuGraphDestroy(g))
for _ in range(2):
    fill(source, [7] * N)
    said.clear()
    launch_graph(e, s)
    assert said == [True, "noted"] * 2
    assert read(back) == [21] * N
"""
    )


def test_the_replays_error_is_the_launchs(simulate: Simulate) -> None:
    simulate(
        LAUNCHES
        + """
let_go.set()
source, back = pageable(), pageable()
good = executable(captured(source, back))
args = params(c_uint64(1 << 56), c_uint(N), ctypes.c_uint8(3), c_uint64(0))
bad = executable(captured(source, back))
launch_graph(good, s)
assert said == [True, "noted"]
said.clear()
result = cuda.cuGraphLaunch(bad, s)
assert result == 700 and said == [True], (result, said)
assert cuda.cuGraphLaunch(good, s) == cuda.cuStreamSynchronize(s) == 700
"""
    )


def test_launches_beside_captures_and_in_default_streams(simulate: Simulate) -> None:
    simulate(
        LAUNCHES
        + """
source, back = pageable(), pageable()
e = executable(captured(source, back))
PER_THREAD = c_void_p(2)
fill(source, [5] * N)
for launches in (cuda.cuGraphLaunch, cuda.cuGraphLaunch_ptsz):
    for on in (None, c_void_p(1), PER_THREAD):
        fill(back, [0] * N)
        assert waits(e, on)
        assert read(back) == [15] * N and said == [True, "noted"]
# another stream captures
other, q = stream(), alloc(4 * N)
begin(other)
ok(cuda.cuMemsetD32Async(q, c_uint(9), c_size_t(N), other))
assert waits(e, s) and waits(e, None) and read(back) == [15] * N
graph = end(other)
run(executable(graph), other)
assert download(q, N) == [9] * N
"""
    )


def test_other_threads_go_on_while_a_launch_waits(simulate: Simulate) -> None:
    """A host function of the graph waits for another thread, so the launch must not block that thread."""
    simulate(
        LAUNCHES
        + """
source, back = pageable(), pageable()
def lets_go():
    ok(cuda.cuCtxSetCurrent(ctx))
    while not said_so: time.sleep(0.01)
    mine, other = upload([1] * N), stream()
    ok(launch(scale, N, other, params(mine, c_uint(N), ctypes.c_uint8(2), c_uint64(0))))
    sync(other)
    seen.append(download(mine, N))
    let_go.set()
said_so, seen = [], []
stands = HOST_FUNCTION(lambda _: (said_so.append(1), said.append(let_go.wait(held_for))))
kept.append(stands)
e = executable(captured(source, back))
fill(source, [3] * N)
thread = threading.Thread(target=lets_go)
thread.start()
launch_graph(e, s)
assert read(back) == [9] * N and said == [True, "noted"] and seen == [[2] * N]
thread.join()
"""
    )


def test_a_capture_that_begins_beside_a_launch_leaves_nobody_waiting(simulate: Simulate) -> None:
    """One thread captures a stream while another launches a graph and records an event in that stream. A refused launch
    or event leaves nothing that a later call waits for."""
    simulate(
        WORK
        + """
s, other = stream(), stream()
graph = new(cuda.cuGraphCreate, 0)
add(cuda.cuGraphAddEmptyNode, graph, [])
e, event, over = executable(graph), new(cuda.cuEventCreate, 2), threading.Event()
RELAXED = 2
results = set()
def capture():
    try:
        ok(cuda.cuCtxSetCurrent(ctx))
        for _ in range(300):
            captured = c_void_p()
            results.add(cuda.cuStreamBeginCapture_v2(s, RELAXED))
            if cuda.cuStreamEndCapture(s, byref(captured)) == 0:
                results.add(cuda.cuGraphDestroy(captured))
    finally:
        over.set()
captures = threading.Thread(target=capture)
captures.start()
while not over.is_set():
    cuda.cuGraphLaunch(e, s), cuda.cuEventRecord(event, s)  # each may be refused
captures.join()
assert results <= {0, 900}, results  # a later call of any thread reports a queued launch that the capture refused
for _ in range(2):  # over a relay each of two sessions may have a refused launch to report
    cuda.cuCtxSynchronize()
run(e, other)
cuda.cuEventSynchronize(event)  # of a capture that is over, or of the stream
"""
    )
