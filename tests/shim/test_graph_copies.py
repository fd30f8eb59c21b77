"""Copy nodes of arrays, and parameters of captured and changed copies, on the simulator."""

from tests.shim.graph_program import WORK
from tests.shim.simulated import Simulate

PARTS = (
    WORK
    + """
ARRAY, ROWS, WIDTH = 3, 6, 16  # a type of memory; rows, and bytes of one
class Descriptor(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_uint), ("channels", c_uint)]
def new_array(): return new(cuda.cuArrayCreate_v2, byref(Descriptor(WIDTH // 4, ROWS, 3, 1)))
def side(at, x=0, y=0):
    if isinstance(at, ctypes.Array):
        return Side(x, y, type=HOST, host=ctypes.addressof(at), pitch=WIDTH, rows=ROWS)
    if isinstance(at, c_uint64):
        return Side(x, y, type=DEVICE, device=at.value, pitch=WIDTH, rows=ROWS)
    return Side(x, y, type=ARRAY, array=at.value)
def box(dst, src, width=WIDTH, height=ROWS): return Copy(side(*src), side(*dst), width, height, 1)
def whole(dst, src): return box((dst,), (src,))
def copy_now(dst, src): ok(cuda.cuMemcpy3D_v2(byref(whole(dst, src))))
def copy_node(graph, after, params): return add(cuda.cuGraphAddMemcpyNode, graph, after, byref(params), None)
def set_params(node, params): return cuda.cuGraphMemcpyNodeSetParams(node, byref(params))
def exec_params(e, node, params): return cuda.cuGraphExecMemcpyNodeSetParams(e, node, byref(params), None)
def params_of(node):
    found = Copy()
    ok(cuda.cuGraphMemcpyNodeGetParams(node, byref(found)))
    return found
def pageable(seed=None):
    return create_string_buffer(pack(words(WIDTH * ROWS // 4, seed)) if seed else b"", WIDTH * ROWS)
def read(at):
    if isinstance(at, ctypes.Array):
        return at.raw
    back = pageable()
    copy_now(back, at)
    return back.raw
"""
)


def test_copy_nodes_of_arrays(simulate: Simulate) -> None:
    simulate(
        PARTS
        + """
s, graph = stream(), new(cuda.cuGraphCreate, 0)
first, second, third = new_array(), new_array(), new_array()
device, more = alloc(WIDTH * ROWS), alloc(WIDTH * ROWS)
source, back = pageable(1), pageable()
fill = pageable(2)
copy_now(second, fill)
a = copy_node(graph, [], whole(first, source))          # pageable memory to an array
b = copy_node(graph, [a], whole(device, first))         # an array to device memory
c = copy_node(graph, [b], box((second, 4, 1), (first, 8, 2), 8, 3))  # a part of an array to another
d = copy_node(graph, [c], whole(third, device))         # device memory to an array
e = copy_node(graph, [d], whole(back, second))          # an array to pageable memory
assert [type_of(n) for n in nodes(graph)] == [1] * 5
assert (params_of(c).dst.array, params_of(c).src.x, params_of(c).dst.y) == (second.value, 8, 1)
executable_graph = executable(graph)
def expected(source, fill):
    made = bytearray(fill)
    for row in range(3):
        to, at = (1 + row) * WIDTH + 4, (2 + row) * WIDTH + 8
        made[to:to + 8] = source[at:at + 8]
    return bytes(made)
for seed in (3, 4):  # at each launch anew
    source[:] = pageable(seed)[:]
    run(executable_graph, s)
    assert read(first) == read(device) == read(third) == source.raw
    assert back.raw == read(second) == expected(source.raw, fill.raw)

# a node takes other parameters, in its graph or in an executable one
other, others = pageable(5), pageable()
ok(exec_params(executable_graph, a, whole(first, other)))
ok(exec_params(executable_graph, b, whole(more, first)))
ok(exec_params(executable_graph, e, whole(others, third)))
run(executable_graph, s)
assert read(more) == read(first) == other.raw and others.raw == read(device) == source.raw
ok(set_params(a, whole(second, other)))
ok(set_params(b, whole(device, second)))
ok(set_params(c, whole(third, second)))
assert params_of(a).dst.array == second.value and params_of(b).src.array == second.value
run(executable(graph), s)
assert read(device) == read(third) == back.raw == other.raw

# bad input is an error of the call, and changes nothing
made = c_void_p()
def refused(params): return cuda.cuGraphAddMemcpyNode(byref(made), graph, None, c_size_t(0), byref(params), None)
outside = box((first, 4), (source,))
stray = whole(c_void_p(first.value + 77), source)
assert refused(outside) == 1 and refused(stray) == 400 and refused(whole(graph, source)) == 400
assert refused(box((first, 2), (device,), 4, 1)) == 1, "not whole elements"
assert set_params(b, outside) == 1 and exec_params(executable_graph, b, stray) == 400
assert len(nodes(graph)) == 5 and params_of(b).src.array == second.value
"""
    )


def test_captured_copies_of_arrays(simulate: Simulate) -> None:
    simulate(
        PARTS
        + """
s, first, second, device = stream(), new_array(), new_array(), alloc(WIDTH * ROWS)
source, back = pageable(1), pageable()
def queue(dst, src): ok(cuda.cuMemcpy3DAsync_v2(byref(whole(dst, src)), s))
begin(s)
queue(first, source)
queue(second, first)
queue(device, second)
queue(back, second)
graph = end(s)
a, b, c, d = nodes(graph)
assert [type_of(n) for n in (a, b, c, d)] == [1] * 4
found = params_of(a)
assert (found.src.type, found.src.host, found.dst.array) == (HOST, ctypes.addressof(source), first.value)
found = params_of(b)
assert (found.src.array, found.dst.array, found.width, found.height) == (first.value, second.value, WIDTH, ROWS)
found = params_of(c)
assert (found.src.array, found.dst.device) == (second.value, device.value)
assert params_of(d).dst.host == ctypes.addressof(back)
e = executable(graph)
for seed in (2, 3):
    source[:] = pageable(seed)[:]
    run(e, s)
    assert read(first) == read(second) == read(device) == back.raw == source.raw
"""
    )


def test_captured_copies_take_other_parameters(simulate: Simulate) -> None:
    simulate(
        PARTS
        + """
s, device, array_ = stream(), alloc(WIDTH * ROWS), new_array()
source, other, back, others = pageable(1), pageable(2), pageable(), pageable()
NBYTES = WIDTH * ROWS
begin(s)
ok(cuda.cuMemcpyHtoDAsync_v2(device, source, c_size_t(NBYTES), s))
ok(cuda.cuMemcpyDtoHAsync_v2(back, device, c_size_t(NBYTES), s))
ok(cuda.cuMemcpyAsync(c_uint64(ctypes.addressof(others)), c_uint64(ctypes.addressof(back)), c_size_t(NBYTES), s))
graph = end(s)
a, b, c = nodes(graph)
found = params_of(a)
assert (found.src.type, found.src.host, found.dst.device, found.width) == (
    HOST, ctypes.addressof(source), device.value, NBYTES)
e = executable(graph)
clone = new(cuda.cuGraphClone, graph)
ok(exec_params(e, a, whole(device, other)))
run(e, s)
assert back.raw == others.raw == other.raw
ok(set_params(a, whole(array_, other)))  # an array instead of memory
ok(set_params(b, whole(back, array_)))
copy_now(array_, source)
assert params_of(b).src.array == array_.value
run(executable(graph), s)
assert read(array_) == back.raw == others.raw == other.raw
source[:] = pageable(3)[:]
run(executable(clone), s)  # a clone keeps the parameters of its own
assert read(device) == back.raw == source.raw
# in the other direction, before it is made executable
ok(set_params(a, whole(others, device)))
ok(set_params(b, whole(device, source)))
ok(set_params(c, whole(back, other)))
source[:] = pageable(4)[:]
run(executable(graph), s)
assert others.raw == pageable(3).raw and read(device) == source.raw and back.raw == other.raw
assert exec_params(e, a, whole(others, device)) == 1
assert set_params(graph, whole(device, source)) == 1
# pinned memory in the place of pageable memory
pinned = new(cuda.cuMemHostAlloc, c_size_t(NBYTES), 0)
ctypes.memmove(pinned, source, NBYTES)
pinned = (ctypes.c_char * NBYTES).from_address(pinned.value)
assert exec_params(e, a, whole(array_, pinned)) == 1, "an array instead of memory"
ok(exec_params(e, a, whole(device, pinned)))
ok(set_params(b, whole(array_, pinned)))
pinned[:] = other[:]
run(e, s)
assert read(device) == other.raw
"""
    )


def test_copies_that_change_between_kinds_of_memory(simulate: Simulate) -> None:
    """In a graph; in an executable one that is INVALID_VALUE, as the manual says."""
    simulate(
        PARTS
        + """
s, array_, device, more = stream(), new_array(), alloc(WIDTH * ROWS), alloc(WIDTH * ROWS)
NBYTES = WIDTH * ROWS
source, other, back = pageable(1), pageable(2), pageable()
pinned = new(cuda.cuMemHostAlloc, c_size_t(NBYTES), 0)
pinned = (ctypes.c_char * NBYTES).from_address(pinned.value)
graph = new(cuda.cuGraphCreate, 0)
first = add(cuda.cuGraphAddEmptyNode, graph, [])
node = copy_node(graph, [first], whole(device, source))
last = add(cuda.cuGraphAddHostNode, graph, [node], byref(host_node(says("last"), 1)))
def edges():
    count = c_size_t(9)
    before, after = (c_void_p * 9)(), (c_void_p * 9)()
    ok(cuda.cuGraphGetEdges(graph, before, after, byref(count)))
    return sorted(zip(before[:count.value], after[:count.value]))
known = edges()
assert known == sorted([(first.value, node.value), (node.value, last.value)])
places = {"pageable": source, "other": other, "back": back, "pinned": pinned, "array": array_, "device": device,
          "more": more}
seeds = iter(range(3, 99))
old = None
for dst, src in (("more", "device"), ("device", "pageable"), ("back", "other"), ("array", "pinned"), ("back", "array"),
                 ("device", "more"), ("other", "back"), ("pinned", "device"), ("array", "pageable")):
    params = whole(places[dst], places[src])
    if old and "back" in (dst, src) and "device" in old:
        assert exec_params(e, node, params) == 1, (dst, src)
    ok(set_params(node, params))
    found = params_of(node)
    assert bytes(found) == bytes(params)
    assert sorted(map(type_of, nodes(graph))) == [1, 3, 5] and edges() == known
    seed = pageable(next(seeds))
    copy_now(places[src], seed) if not isinstance(places[src], ctypes.Array) else places[src].__setitem__(
        slice(None), seed.raw)
    e, old = executable(graph), (dst, src)
    said.clear()
    run(e, s)
    assert read(places[dst]) == seed.raw, (dst, src)
    assert said == [("last", 1)]
    if dst == "more":  # an executable graph keeps the kind of the memory
        assert exec_params(e, node, whole(device, source)) == 1
    if dst == "array" and src == "pageable":
        assert exec_params(e, node, whole(more, device)) == 1
        assert exec_params(e, node, whole(device, other)) == 1
        ok(exec_params(e, node, whole(array_, other)))
        run(e, s)
        assert read(array_) == other.raw

# a captured copy, too
begin(s)
ok(cuda.cuMemcpyHtoDAsync_v2(device, source, c_size_t(NBYTES), s))
ok(cuda.cuMemcpyDtoDAsync_v2(more, device, c_size_t(NBYTES), s))
captured = end(s)
a, b = nodes(captured)
ok(set_params(a, whole(device, array_)))
ok(set_params(b, whole(back, device)))
clone = new(cuda.cuGraphClone, captured)
found = new(lambda out: cuda.cuGraphNodeFindInClone(out, b, clone))
ok(set_params(found, whole(more, device)))
copy_now(array_, pageable(100))
copy_now(more, source)
run(executable(captured), s)
assert back.raw == pageable(100).raw and read(more) == source.raw
run(executable(clone), s)
assert read(more) == pageable(100).raw

# not in a graph whose nodes cannot be removed
assert set_params(first, whole(device, source)) == 1
"""
    )


CHANGED = (
    WORK
    + """
p, q, s, text = alloc(64), alloc(1024), stream(), create_string_buffer(64)
graph = new(cuda.cuGraphCreate, 0)
first = add(cuda.cuGraphAddMemcpyNode, graph, [], byref(flat(p, q, 64)), None)
second = add(cuda.cuGraphAddMemsetNode, graph, [first], byref(Memset(p.value, 0, 5, 4, 4, 1)), None)
ok(cuda.cuGraphMemcpyNodeSetParams(first, byref(flat(p, c_void_p(ctypes.addressof(text)), 64))))
"""
)


def test_a_graph_takes_a_capture_after_a_node_changed_its_kind(simulate: Simulate) -> None:
    simulate(
        CHANGED
        + """
ok(cuda.cuStreamBeginCaptureToGraph(s, graph, None, None, c_size_t(0), 2))
ok(cuda.cuMemsetD32Async(q, 1, c_size_t(1), s))
ok(cuda.cuStreamEndCapture(s, byref(c_void_p())))
found = nodes(graph)
assert len(found) == 3 and {first.value, second.value} < {n.value for n in found}
assert type_of(first) == 1 and type_of(second) == 2
"""
    )


def test_an_update_names_the_node_beside_one_that_changed_its_kind(simulate: Simulate) -> None:
    simulate(
        CHANGED
        + """
class Info(ctypes.Structure):
    _fields_ = [("result", c_int), ("node", c_void_p), ("source", c_void_p)]
e, info = executable(graph), Info()
ok(cuda.cuGraphMemsetNodeSetParams(second, byref(Memset(q.value, 64, 5, 4, 4, 3))))
assert cuda.cuGraphExecUpdate_v2(e, graph, byref(info)) == 910
assert info.result == 5 and info.node == second.value
"""
    )
