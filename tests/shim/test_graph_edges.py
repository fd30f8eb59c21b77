"""Edges of graphs with data, which say for which part of a kernel the next one waits, on the simulator."""

import json
import sys

from tests.conftest import Run

CODE = """
import ctypes, json
PTX = b'''
.version 7.0
.target sm_70
.address_size 64
.visible .entry one(.param .u64 p) {
  .reg .b64 %d; .reg .b32 %r;
  ld.param.u64 %d, [p]; cvta.to.global.u64 %d, %d; ld.global.u32 %r, [%d];
  mad.lo.u32 %r, %r, 3, 1; st.global.u32 [%d], %r; ret;
}
'''
cuda, P, S = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p, ctypes.c_size_t
def do(result):
    if result: raise SystemExit(f"answered {result}")
class Kernel(ctypes.Structure):
    _fields_ = [("func", P), *((name, ctypes.c_uint) for name in "abcdefg"), ("params", P), ("extra", P), ("kern", P),
                ("ctx", P)]
context, module, function, graph = P(), P(), P(), P()
do(cuda.cuInit(0)); do(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)); do(cuda.cuCtxSetCurrent(context))
do(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
do(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"one"))
memory = ctypes.c_uint64()
do(cuda.cuMemAlloc_v2(ctypes.byref(memory), S(4))); do(cuda.cuMemsetD32_v2(memory, 0, S(1)))
arguments = (P * 1)(ctypes.addressof(memory))
do(cuda.cuGraphCreate(ctypes.byref(graph), 0))
kernel = Kernel(function, 1, 1, 1, 1, 1, 1, 0, ctypes.cast(arguments, P))
nodes = [P() for _ in range(3)]
for node in nodes:
    do(cuda.cuGraphAddKernelNode_v2(ctypes.byref(node), graph, None, S(0), ctypes.byref(kernel)))
empty = P()
do(cuda.cuGraphAddEmptyNode(ctypes.byref(empty), graph, None, S(0)))
def edge(name, first, second, port=0, kind=0, to_port=0, reserved=0):
    data = (ctypes.c_ubyte * 8)(port, to_port, kind, reserved)
    return getattr(cuda, name)(graph, ctypes.byref(first), ctypes.byref(second), data, S(1))
def edges(name="cuGraphGetEdges_v2"):
    count, first, second, data = S(8), (P * 8)(), (P * 8)(), (ctypes.c_ubyte * 64)()
    rest = (data,) if name.endswith("v2") else ()
    result = getattr(cuda, name)(graph, first, second, *rest, ctypes.byref(count))
    if result: return [result]
    every = [*(node.value for node in nodes), empty.value]
    return [[every.index(first[i]), every.index(second[i]), list(data[8 * i : 8 * i + 3])] for i in range(count.value)]
add, remove = "cuGraphAddDependencies_v2", "cuGraphRemoveDependencies_v2"
a, b, c = nodes
refused = [
    edge(add, a, b, port=3),  # no such port
    edge(add, a, b, kind=1),  # a programmatic edge leaves by a port of its own
    edge(add, a, b, port=1, to_port=1),
    edge(add, a, b, port=1, reserved=1),
    edge(add, empty, b, port=1),  # only kernels have ports
    edge(add, a, empty, port=1, kind=1),
]
do(edge(add, a, b, port=1, kind=1))
do(edge(add, b, c, port=2))
refused.append(edge(add, a, b, port=2))  # it exists
found = {"refused": refused, "edges": edges(), "lossy": edges("cuGraphGetEdges"), "numbers": []}
for name, node in (("cuGraphNodeGetDependencies_v2", c), ("cuGraphNodeGetDependentNodes_v2", a)):
    count, other, data = S(2), (P * 2)(), (ctypes.c_ubyte * 16)()
    do(getattr(cuda, name)(node, other, data, ctypes.byref(count)))
    found["numbers"].append([count.value, other[0] == b.value, other[1], list(data)])
clone, ready, stream = P(), P(), P()
do(cuda.cuGraphClone(ctypes.byref(clone), graph))
count, first, second, data = S(2), (P * 2)(), (P * 2)(), (ctypes.c_ubyte * 16)()
do(cuda.cuGraphGetEdges_v2(clone, first, second, data, ctypes.byref(count)))
found["clone"] = list(data)
do(cuda.cuStreamCreate(ctypes.byref(stream), 1))
do(cuda.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, ctypes.c_uint64(0)))
do(cuda.cuGraphLaunch(ready, stream)); do(cuda.cuStreamSynchronize(stream))
value = ctypes.c_uint32()
do(cuda.cuMemcpyDtoH_v2(ctypes.byref(value), memory, S(4)))
info = (ctypes.c_uint64 * 3)()
found["value"] = value.value
found["remove"] = [edge(remove, a, b, port=2, kind=1), edge(remove, a, b), edge(remove, a, b, port=1, kind=1)]
found["left"] = edges()
do(edge(add, a, b, port=2, kind=1))
found["update"] = cuda.cuGraphExecUpdate_v2(ready, graph, info)
print(json.dumps(found))
"""


def test_edges_with_data(vgpu_run: Run) -> None:
    result = vgpu_run([sys.executable, "-c", CODE])
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["refused"] == [1] * 7
    assert found["edges"] == [[0, 1, [1, 0, 1]], [1, 2, [2, 0, 0]]]
    assert found["lossy"] == [402]  # the older query cannot show data
    programmatic, ordered, none = [1, 0, 1, *[0] * 5], [2, *[0] * 7], [0] * 8
    assert found["numbers"] == [[1, True, None, [*ordered, *none]], [1, True, None, [*programmatic, *none]]]
    assert found["clone"] == [*programmatic, *ordered]
    assert found["value"] == 13  # 0 -> 1 -> 4 -> 13, one kernel after another
    assert found["remove"] == [1, 1, 0]  # an edge is named with its data
    assert found["left"] == [[1, 2, [2, 0, 0]]]
    assert found["update"] == 910  # GRAPH_EXEC_UPDATE_FAILURE
