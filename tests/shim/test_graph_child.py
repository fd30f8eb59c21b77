"""Graphs within graphs, on the simulator."""

from tests.shim.graph_program import WORK
from tests.shim.simulated import Simulate


def test_child_graphs(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
s, p = stream(), alloc(4 * N)
scale = function(module(), b"scale")
args = params(p, c_uint(N), ctypes.c_uint8(3), c_uint64(0))
child = new(cuda.cuGraphCreate, 0)
k = add(cuda.cuGraphAddKernelNode_v2, child, [], byref(kernel(scale, N, args)))
add(cuda.cuGraphAddHostNode, child, [k], byref(host_node(says("child"), 1)))
graph = new(cuda.cuGraphCreate, 0)
fill = Memset(p.value, 0, 5, 4, N, 1)
first = add(cuda.cuGraphAddMemsetNode, graph, [], byref(fill), None)
one = add(cuda.cuGraphAddChildGraphNode, graph, [first], child)
two = add(cuda.cuGraphAddChildGraphNode, graph, [one], child)
add(cuda.cuGraphAddHostNode, graph, [two], byref(host_node(says("parent"), 2)))
ok(cuda.cuGraphDestroy(child))  # the nodes have copies
assert [type_of(n) for n in nodes(graph)] == [2, 4, 4, 3]
e = executable(graph)
run(e, s)
assert download(p, N) == [45] * N
assert said == [("child", 1), ("child", 1), ("parent", 2)]
# the graph in a node
inside, again, own = new(lambda out: cuda.cuGraphChildGraphNodeGetGraph(one, out)), c_void_p(), c_void_p()
ok(cuda.cuGraphChildGraphNodeGetGraph(one, byref(again)))
assert again.value == inside.value
ok(cuda.cuGraphChildGraphNodeGetGraph(two, byref(own)))
assert own.value != inside.value
assert [type_of(n) for n in nodes(inside)] == [0, 3]
assert cuda.cuGraphDestroy(inside) == 1, "it is the node's"
assert cuda.cuGraphChildGraphNodeGetGraph(first, byref(again)) == 1
kinds = nodes(inside)
args2 = params(p, c_uint(N), ctypes.c_uint8(10), c_uint64(0))
ok(cuda.cuGraphKernelNodeSetParams_v2(kinds[0], byref(kernel(scale, N, args2))))
add(cuda.cuGraphAddHostNode, inside, [kinds[1]], byref(host_node(says("more"), 3)))
said.clear()
e2 = executable(graph)
run(e2, s)
assert download(p, N) == [150] * N
assert said == [("child", 1), ("more", 3), ("child", 1), ("parent", 2)]
run(e, s)
assert download(p, N) == [45] * N
# other parameters of a whole child
other = new(cuda.cuGraphCreate, 0)
k = add(cuda.cuGraphAddKernelNode_v2, other, [], byref(kernel(scale, N, args2)))
add(cuda.cuGraphAddHostNode, other, [k], byref(host_node(says("other"), 4)))
said.clear()
ok(cuda.cuGraphExecChildGraphNodeSetParams(e, two, other))
ok(cuda.cuGraphDestroy(other))
run(e, s)
assert download(p, N) == [150] * N
assert said == [("child", 1), ("other", 4), ("parent", 2)]
unlike = new(cuda.cuGraphCreate, 0)
add(cuda.cuGraphAddEmptyNode, unlike, [])
assert cuda.cuGraphExecChildGraphNodeSetParams(e, two, unlike) == 910
assert cuda.cuGraphExecChildGraphNodeSetParams(e, first, unlike) == 1
# the parent takes all of it along
ok(cuda.cuGraphDestroy(graph))
kind = c_int()
assert cuda.cuGraphNodeGetType(kinds[0], byref(kind)) == 1
count = c_size_t()
assert cuda.cuGraphGetNodes(inside, None, byref(count)) == 1
run(e2, s)
assert download(p, N) == [150] * N
"""
    )


def test_graphs_within_graphs_have_a_limit(simulate: Simulate) -> None:
    """The simulator limits depth and size: it walks child graphs recursively, and a graph added to itself doubles."""
    simulate(
        WORK
        + """
def put(into, child):
    return cuda.cuGraphAddChildGraphNode(byref(c_void_p()), into, None, c_size_t(0), child)
doubled = new(cuda.cuGraphCreate, 0)
for _ in range(32):
    add(cuda.cuGraphAddEmptyNode, doubled, [])
results = [put(doubled, doubled) for _ in range(20)]
assert results[:14] == [0] * 14 and set(results[14:]) == {2}, results
inner = new(cuda.cuGraphCreate, 0)
for depth in range(80):
    outer = new(cuda.cuGraphCreate, 0)
    result = put(outer, inner)
    if result:
        break
    ok(cuda.cuGraphDestroy(inner))
    inner = outer
assert (result, depth) == (2, 64)
run(executable(inner), stream())
"""
    )


def test_a_graph_launched_into_a_capture(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
s, p = stream(), alloc(4 * N)
scale = function(module(), b"scale")
source = create_string_buffer(pack([2] * N), 4 * N)
begin(s)
ok(cuda.cuMemcpyHtoDAsync_v2(p, source, c_size_t(4 * N), s))
ok(launch(scale, N, s, params(p, c_uint(N), ctypes.c_uint8(3), c_uint64(0))))
ok(cuda.cuLaunchHostFunc(s, says("inner"), None))
inner = executable(end(s))
begin(s)
ok(cuda.cuGraphLaunch(inner, s))
ok(launch(scale, N, s, params(p, c_uint(N), ctypes.c_uint8(7), c_uint64(0))))
graph = end(s)
assert [type_of(n) for n in nodes(graph)] == [4, 0]
e = executable(graph)
ok(cuda.cuGraphExecDestroy(inner))
for value in (2, 5):
    ctypes.memmove(source, pack([value] * N), 4 * N)
    run(e, s)
    assert download(p, N) == [21 * value] * N
assert said == [("inner", None)] * 2
"""
    )


def test_clones(simulate: Simulate) -> None:
    simulate(
        WORK
        + """
s, p = stream(), alloc(4 * N)
graph = new(cuda.cuGraphCreate, 0)
fill = add(cuda.cuGraphAddMemsetNode, graph, [], byref(Memset(p.value, 0, 5, 4, N, 1)), None)
host = add(cuda.cuGraphAddHostNode, graph, [fill], byref(host_node(says("original"), 1)))
clone = new(cuda.cuGraphClone, graph)
found, none = c_void_p(), c_void_p()
ok(cuda.cuGraphNodeFindInClone(byref(found), host, clone))
assert [n.value for n in nodes(clone)][1] == found.value != host.value
assert [type_of(n) for n in nodes(clone)] == [2, 3]
late = add(cuda.cuGraphAddEmptyNode, graph, [host])
assert cuda.cuGraphNodeFindInClone(byref(none), late, clone) == 1 and none.value is None
assert cuda.cuGraphNodeFindInClone(byref(none), host, graph) == 1
ok(cuda.cuGraphHostNodeSetParams(found, byref(host_node(says("clone"), 2))))
ok(cuda.cuGraphDestroy(graph))
e = executable(clone)
run(e, s)
assert said == [("clone", 2)] and download(p, N) == [5] * N
assert cuda.cuGraphClone(byref(none), graph) == 1
"""
    )
