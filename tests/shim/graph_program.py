"""Program text that the graph tests share; it follows the text of simulated.py."""

NODES = """
class Kernel(ctypes.Structure):
    _fields_ = [("func", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint),
                ("params", c_void_p), ("extra", c_void_p), ("kern", c_void_p), ("ctx", c_void_p)]
class Memset(ctypes.Structure):
    _fields_ = [("dst", c_uint64), ("pitch", c_size_t), ("value", c_uint), ("element", c_uint), ("width", c_size_t),
                ("height", c_size_t)]
class Side(ctypes.Structure):
    _fields_ = [("x", c_size_t), ("y", c_size_t), ("z", c_size_t), ("lod", c_size_t), ("type", c_uint),
                ("host", c_void_p), ("device", c_uint64), ("array", c_void_p), ("reserved", c_void_p),
                ("pitch", c_size_t), ("rows", c_size_t)]
class Copy(ctypes.Structure):
    _fields_ = [("src", Side), ("dst", Side), ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]
HOST, DEVICE = 1, 2
def flat(dst, src, nbytes):
    sides = [Side(type=HOST, host=a.value, pitch=nbytes) if isinstance(a, c_void_p)
             else Side(type=DEVICE, device=a.value, pitch=nbytes) for a in (src, dst)]
    return Copy(*sides, nbytes, 1, 1)
def kernel(f, n, args):
    return Kernel(f.value, (-(-n // 64), 1, 1), (64, 1, 1), 0, ctypes.addressof(args))
def array(*handles): return (c_void_p * len(handles))(*(h.value for h in handles))
def add(function, graph, after, *params):
    return new(function, graph, array(*after) if after else None, c_size_t(len(after)), *params)
def nodes(graph):
    count = c_size_t()
    ok(cuda.cuGraphGetNodes(graph, None, byref(count)))
    found = (c_void_p * count.value)()
    ok(cuda.cuGraphGetNodes(graph, found, byref(count)))
    return list(map(c_void_p, found))
def type_of(node):
    kind = c_int()
    ok(cuda.cuGraphNodeGetType(node, byref(kind)))
    return kind.value
def run(executable, stream):
    ok(cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuStreamSynchronize(stream))
N = 1000
"""

WORK = (
    NODES
    + """
HOST_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
class HostNode(ctypes.Structure):
    _fields_ = [("fn", c_void_p), ("data", c_void_p)]
said, kept = [], []
def says(text):
    f = HOST_FUNCTION(lambda data: said.append((text, data)))
    kept.append(f)
    return f
def host_node(f, data): return HostNode(ctypes.cast(f, c_void_p).value, data)
def begin(s): ok(cuda.cuStreamBeginCapture_v2(s, 0))
def end(s): return new(lambda out: cuda.cuStreamEndCapture(s, out))
def executable(graph): return new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
def stream(): return new(cuda.cuStreamCreate, 1)
def sync(s): ok(cuda.cuStreamSynchronize(s))
def launch_graph(e, s): ok(cuda.cuGraphLaunch(e, s))
def scaled(values, k): return [v * k % 2**32 for v in values]
ctx = context()
"""
)
