"""Graphs that become part of another one (CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE), on the simulator."""

from tests.shim.graph_program import WORK
from tests.shim.simulated import Simulate

MOVES = (
    WORK
    + """
CHILD_GRAPH, CLONE, MOVE = 4, 0, 1
class Params(ctypes.Structure):
    _fields_ = [("type", c_int), ("reserved", c_int * 3), ("graph", c_void_p), ("ownership", c_int),
                ("unused", c_int), ("rest", ctypes.c_int64 * 28)]
assert ctypes.sizeof(Params) == 256
def child_params(graph, ownership): return Params(CHILD_GRAPH, graph=graph.value, ownership=ownership)
def put(into, after, child, ownership=MOVE):
    node = c_void_p(3)
    before = array(*after) if after else None
    params = child_params(child, ownership)
    result = cuda.cuGraphAddNode_v2(byref(node), into, before, None, c_size_t(len(after)), byref(params))
    assert (result == 0) == (node.value != 3)
    return result, node
def move(into, after, child):
    result, node = put(into, after, child)
    ok(result)
    return node
class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]
class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]
class Allocation(ctypes.Structure):
    _fields_ = [("kind", c_int), ("handles", c_int), ("location", Location), ("security", c_void_p),
                ("most", c_size_t), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 54),
                ("access", ctypes.POINTER(Access)), ("count", c_size_t), ("nbytes", c_size_t), ("address", c_uint64)]
assert ctypes.sizeof(Allocation) == 120
access = Access(Location(1, 0), 3)
def allocation(nbytes):
    return Allocation(1, 0, Location(1, 0), access=ctypes.pointer(access), count=1, nbytes=nbytes)
"""
)


def test_a_moved_graph_is_its_nodes(simulate: Simulate) -> None:
    simulate(
        MOVES
        + """
s, p = stream(), alloc(4 * N)
scale = function(module(), b"scale")
by_three = params(p, c_uint(N), ctypes.c_uint8(3), c_uint64(0))
child, graph = new(cuda.cuGraphCreate, 0), new(cuda.cuGraphCreate, 0)
k = add(cuda.cuGraphAddKernelNode_v2, child, [], byref(kernel(scale, N, by_three)))
h = add(cuda.cuGraphAddHostNode, child, [k], byref(host_node(says("child"), 1)))
fill = Memset(p.value, 0, 5, 4, N, 1)
first = add(cuda.cuGraphAddMemsetNode, graph, [], byref(fill), None)
moved = move(graph, [first], child)
add(cuda.cuGraphAddHostNode, graph, [moved], byref(host_node(says("parent"), 2)))
assert [type_of(n) for n in nodes(graph)] == [2, 4, 3]
inside = new(lambda out: cuda.cuGraphChildGraphNodeGetGraph(moved, out))
assert inside.value == child.value
assert [n.value for n in nodes(child)] == [k.value, h.value], "the nodes keep their handles"
e = executable(graph)
run(e, s)
assert download(p, N) == [15] * N and said == [("child", 1), ("parent", 2)]

# its nodes can be changed in the executable graph, and in the graph
by_seven = params(p, c_uint(N), ctypes.c_uint8(7), c_uint64(0))
ok(cuda.cuGraphExecKernelNodeSetParams_v2(e, k, byref(kernel(scale, N, by_seven))))
run(e, s)
assert download(p, N) == [35] * N
ok(cuda.cuGraphKernelNodeSetParams_v2(k, byref(kernel(scale, N, by_seven))))
ok(cuda.cuGraphHostNodeSetParams(h, byref(host_node(says("other"), 3))))
add(cuda.cuGraphAddHostNode, child, [h], byref(host_node(says("more"), 4)))
said.clear()
again = executable(graph)
run(again, s)
assert download(p, N) == [35] * N and said == [("other", 3), ("more", 4), ("parent", 2)]

# what a moved graph cannot do
other = new(cuda.cuGraphCreate, 0)
made, info = c_void_p(), (c_uint64 * 3)()
assert cuda.cuGraphDestroy(child) == 1
assert cuda.cuGraphInstantiateWithFlags(byref(made), child, c_uint64(0)) == 1
assert put(other, [], child)[0] == 1
assert put(other, [], child, CLONE)[0] == 1
assert put(child, [], graph)[0] == 1, "a graph in itself"
assert put(other, [], other)[0] == 1
assert put(other, [], c_void_p())[0] == 1
assert put(graph, [], other, 2)[0] == 1
assert cuda.cuGraphExecUpdate_v2(e, child, byref(info)) == 1
assert not nodes(other)

# it goes with its parent, and with a node
ok(cuda.cuGraphDestroy(graph))
kind = c_int()
assert cuda.cuGraphNodeGetType(k, byref(kind)) == 1
assert cuda.cuGraphGetNodes(child, None, byref(c_size_t())) == 1
run(again, s)
assert download(p, N) == [35] * N
leaf = new(cuda.cuGraphCreate, 0)
empty = add(cuda.cuGraphAddEmptyNode, leaf, [])
ok(cuda.cuGraphDestroyNode(move(other, [], leaf)))
assert cuda.cuGraphNodeGetType(empty, byref(kind)) == 1
assert not nodes(other)
"""
    )


def test_a_moved_graph_may_allocate_memory(simulate: Simulate) -> None:
    simulate(
        MOVES
        + """
s = stream()
child, graph = new(cuda.cuGraphCreate, 0), new(cuda.cuGraphCreate, 0)
wanted = allocation(4 * N)
made = add(cuda.cuGraphAddMemAllocNode, child, [], byref(wanted))
address = c_uint64(wanted.address)
fill = add(cuda.cuGraphAddMemsetNode, child, [made], byref(Memset(address.value, 0, 9, 4, N, 1)), None)
back = create_string_buffer(4 * N)
at = c_void_p(ctypes.addressof(back))
copy = add(cuda.cuGraphAddMemcpyNode, child, [fill], byref(flat(at, address, 4 * N)), None)
add(cuda.cuGraphAddMemFreeNode, child, [copy], address)
assert put(graph, [], child, CLONE)[0] == 801
moved = move(graph, [], child)
for _ in range(2):
    ctypes.memset(back, 0, 4 * N)
    e = executable(graph)
    run(e, s)
    assert back.raw == pack([9] * N)
    run(e, s)
    ok(cuda.cuGraphExecDestroy(e))
# no further nodes of memory, and nothing is taken out of the graph
more = allocation(4)
assert cuda.cuGraphAddMemAllocNode(byref(c_void_p()), child, None, c_size_t(0), byref(more)) == 801
assert cuda.cuGraphDestroyNode(moved) == 801
assert cuda.cuGraphClone(byref(c_void_p()), graph) == 801
ok(cuda.cuGraphDestroy(graph))
"""
    )


def test_user_objects_of_a_moved_graph_end_with_the_last_graph(simulate: Simulate) -> None:
    simulate(
        MOVES
        + """
s = stream()
child, graph = new(cuda.cuGraphCreate, 0), new(cuda.cuGraphCreate, 0)
add(cuda.cuGraphAddEmptyNode, child, [])
kept_object = new(cuda.cuUserObjectCreate, c_void_p(7), says("gone"), 1, 1)
ok(cuda.cuGraphRetainUserObject(child, kept_object, 1, 1))
move(graph, [], child)
ok(cuda.cuGraphReleaseUserObject(child, kept_object, 1))
assert said == [("gone", 7)]
import threading
ended = threading.Event()
def end_object(data):
    said.append(("ended", data))
    ended.set()
kept.append(HOST_FUNCTION(end_object))
another = new(cuda.cuUserObjectCreate, c_void_p(8), kept[-1], 1, 1)
ok(cuda.cuGraphRetainUserObject(child, another, 1, 1))
e = executable(graph)
ok(cuda.cuGraphDestroy(graph))
assert len(said) == 1
run(e, s)
ok(cuda.cuGraphExecDestroy(e))
assert ended.wait(300) and said[1:] == [("ended", 8)]
"""
    )


def test_the_parameters_of_nodes_of_every_type(simulate: Simulate) -> None:
    """A child graph's node takes another graph; nodes of memory and conditions keep theirs (NOT_SUPPORTED)."""
    simulate(
        MOVES
        + """
s, p = stream(), alloc(4 * N)
scale = function(module(), b"scale")
def scaling(factor, says_what):
    graph = new(cuda.cuGraphCreate, 0)
    args = params(p, c_uint(N), ctypes.c_uint8(factor), c_uint64(0))
    k = add(cuda.cuGraphAddKernelNode_v2, graph, [], byref(kernel(scale, N, args)))
    if says_what:
        add(cuda.cuGraphAddHostNode, graph, [k], byref(host_node(says(says_what), factor)))
    return graph
graph = new(cuda.cuGraphCreate, 0)
fill = Memset(p.value, 0, 5, 4, N, 1)
first = add(cuda.cuGraphAddMemsetNode, graph, [], byref(fill), None)
node = add(cuda.cuGraphAddChildGraphNode, graph, [first], scaling(3, "three"))
last = add(cuda.cuGraphAddHostNode, graph, [node], byref(host_node(says("last"), 9)))
inside = new(lambda out: cuda.cuGraphChildGraphNodeGetGraph(node, out))
e = executable(graph)
def set_params(at, of): return cuda.cuGraphNodeSetParams(at, byref(of))
ok(set_params(node, child_params(scaling(7, None), CLONE)))
assert cuda.cuGraphGetNodes(inside, None, byref(c_size_t())) == 1, "the old graph is gone"
inside = new(lambda out: cuda.cuGraphChildGraphNodeGetGraph(node, out))
assert [type_of(n) for n in nodes(inside)] == [0], [type_of(n) for n in nodes(inside)]
assert sorted(map(type_of, nodes(graph))) == [2, 3, 4], list(map(type_of, nodes(graph)))
again = executable(graph)
run(again, s)
assert download(p, N) == [35] * N and said == [("last", 9)]
run(e, s)
assert download(p, N) == [15] * N and said[1:] == [("three", 3), ("last", 9)]
ok(set_params(node, child_params(scaling(2, "two"), CLONE)))
said.clear()
run(executable(graph), s)
assert download(p, N) == [10] * N and said == [("two", 2), ("last", 9)]
assert set_params(first, child_params(inside, CLONE)) == 1
assert set_params(node, child_params(c_void_p(), CLONE)) == 1
assert set_params(node, child_params(scaling(2, None), 5)) == 1

EMPTY, MEM_ALLOC, MEM_FREE, CONDITIONAL = 5, 10, 11, 13
memory = new(cuda.cuGraphCreate, 0)
wanted = allocation(4 * N)
made = add(cuda.cuGraphAddMemAllocNode, memory, [], byref(wanted))
freed = add(cuda.cuGraphAddMemFreeNode, memory, [made], c_uint64(wanted.address))
empty = add(cuda.cuGraphAddEmptyNode, memory, [])
child = add(cuda.cuGraphAddChildGraphNode, memory, [empty], scaling(3, None))
condition = c_uint64()
ok(cuda.cuGraphConditionalHandleCreate(byref(condition), memory, None, 0, 0))
class Conditional(ctypes.Structure):
    _fields_ = [("type", c_int), ("reserved", c_int * 3), ("handle", c_uint64), ("kind", c_int), ("size", c_uint),
                ("bodies", c_void_p), ("ctx", c_void_p), ("rest", ctypes.c_int64 * 26)]
assert ctypes.sizeof(Conditional) == 256
branch = Conditional(CONDITIONAL, handle=condition.value, size=1)
conditional = add(cuda.cuGraphAddNode, memory, [], byref(branch))
e = executable(memory)
for at, kind in ((made, MEM_ALLOC), (freed, MEM_FREE), (conditional, CONDITIONAL)):
    assert type_of(at) == kind
    assert set_params(at, Params(kind)) == 801
    assert cuda.cuGraphExecNodeSetParams(e, at, byref(Params(kind))) == 801
    assert set_params(empty, Params(kind)) == 1
    assert cuda.cuGraphExecNodeSetParams(e, empty, byref(Params(kind))) == 1
    assert cuda.cuGraphExecNodeSetParams(None, at, byref(Params(kind))) == 1
ok(set_params(empty, Params(EMPTY)))
for kind in (-1, 14, 99):
    assert set_params(empty, Params(kind)) == 1 and cuda.cuGraphExecNodeSetParams(e, empty, byref(Params(kind))) == 1
    assert cuda.cuGraphAddNode(byref(c_void_p()), memory, None, c_size_t(0), byref(Params(kind))) == 1
# nothing is taken out of a graph that allocates memory
assert set_params(child, child_params(scaling(2, None), CLONE)) == 801
assert len(nodes(memory)) == 5
"""
    )


def test_what_is_told_of_a_graph(simulate: Simulate) -> None:
    """The text form shows the graphs inside nodes; a failed instantiation says so in its parameters."""
    simulate(
        MOVES
        + """
import tempfile
graph, child, leaf = (new(cuda.cuGraphCreate, 0) for _ in range(3))
inner = add(cuda.cuGraphAddEmptyNode, leaf, [])
middle = move(child, [], leaf)
first = add(cuda.cuGraphAddEmptyNode, graph, [])
outer = move(graph, [first], child)
with tempfile.NamedTemporaryFile() as file:
    ok(cuda.cuGraphDebugDotPrint(graph, file.name.encode(), 1))
    text = file.read().decode()
for node in (inner, middle, first, outer):
    assert f'"node_{node.value & 0xffffffff}" [' in text, text
assert text.count("subgraph") == 2 and text.count("->") == 1 and text.count("{") == text.count("}")
class Instantiate(ctypes.Structure):
    _fields_ = [("flags", c_uint64), ("stream", c_void_p), ("node", c_void_p), ("result", c_int)]
how = Instantiate(0, None, 5, 9)
ok(cuda.cuGraphInstantiateWithParams(byref(c_void_p()), graph, byref(how)))
assert (how.node, how.result) == (None, 0)
how = Instantiate(1 << 20, None, 5, 9)
assert cuda.cuGraphInstantiateWithParams(byref(c_void_p()), graph, byref(how)) == 1
assert (how.node, how.result) == (None, 1)
"""
    )
