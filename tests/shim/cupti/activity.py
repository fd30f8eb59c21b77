"""A CUDA program that profiles itself as Kineto does and prints CUPTI's records as JSON. Run under `vgpu run`.

`python activity.py MAJOR SCENARIO`. A scenario is a function of this file; the program prints its result.
"""

import ctypes
import json
import os
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT))
from protocol.gen.cupti import DRIVER, callback_ids, records  # noqa: E402

MAJOR = int(sys.argv[1])
MEMCPY, MEMSET, API_DRIVER, API_RUNTIME, KERNEL, OVERHEAD, SYNC, EXTERNAL = 1, 2, 4, 5, 10, 17, 38, 39
EVENT, GRAPH = 36, 51
MEMORY, MEMORY2, POOL = 45, 49, 50
KINDS = {
    MEMCPY: "Memcpy",
    MEMSET: "Memset",
    API_DRIVER: "API",
    API_RUNTIME: "API",
    KERNEL: "Kernel",
    OVERHEAD: "Overhead",
    SYNC: "Synchronization",
    EXTERNAL: "ExternalCorrelation",
    EVENT: "CudaEvent",
    GRAPH: "GraphTrace",
    MEMORY: "Memory",
    MEMORY2: "MemoryOperation",
    POOL: "MemoryPool",
}
LAYOUTS = {record.name: record for record in records(MAJOR)}
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry busy(.param .u64 p, .param .u32 n)
{
  .reg .pred %q; .reg .b32 %r<4>; .reg .b64 %d;
  ld.param.u64 %d, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, 0;
loop:
  add.u32 %r2, %r2, 1; setp.lt.u32 %q, %r2, %r1; @%q bra loop;
  cvta.to.global.u64 %d, %d; st.global.u32 [%d], %r2; ret;
}
"""

cuda = ctypes.CDLL("libcuda.so.1")
cupti = ctypes.CDLL(os.environ.get("VGT_CUPTI", str(ROOT / f"build/guest/cupti/{MAJOR}/libcupti.so.{MAJOR}")))
REQUEST = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
COMPLETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)


def do(result: int) -> None:
    """End the program if the result of a call is an error."""
    if result:
        raise SystemExit(f"answered {result}")


class Buffers:
    """The program's buffers, and the records in the buffers that CUPTI returned."""

    def __init__(self, nbytes: int = 1 << 16, most: int = 0) -> None:
        self.nbytes, self.most, self.out, self.seen, self.sizes = nbytes, most, {}, [], []
        self.refuse, self.offset, self.asked = False, 0, []
        self.ask = lambda: None  # called while CUPTI returns a buffer; results are kept in `asked`
        self._functions = REQUEST(self._request), COMPLETE(self._complete)
        do(cupti.cuptiActivityRegisterCallbacks(*self._functions))

    def _request(self, buffer, nbytes, most) -> None:
        if self.refuse:
            buffer[0], nbytes[0] = None, 0
            return
        made = ctypes.create_string_buffer(self.nbytes + 8)
        address = ((ctypes.addressof(made) + 7) & ~7) + self.offset
        self.out[address] = made
        buffer[0], nbytes[0], most[0] = address, self.nbytes, self.most

    def _complete(self, context, stream, buffer, nbytes, valid) -> None:
        made = self.out.pop(buffer)
        self.asked.append(self.ask())
        self.sizes.append(valid)
        self.seen += self.read(buffer, valid)
        del made

    @staticmethod
    def read(buffer: int, valid: int) -> Iterator[dict]:
        record = ctypes.c_void_p()
        get = cupti.cuptiActivityGetNextRecord
        get.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
        while (result := get(buffer, valid, ctypes.byref(record))) == 0:
            (kind,) = struct.unpack("<I", ctypes.string_at(record.value, 4))
            layout = LAYOUTS[KINDS[kind]]
            raw = ctypes.string_at(record.value, layout.nbytes)
            row = {f.name: int.from_bytes(raw[f.offset : f.offset + f.nbytes], "little") for f in layout.fields}
            row["record"] = KINDS[kind]
            if kind == KERNEL:
                row["name"] = ctypes.string_at(row["name"]).decode()
            yield row
        if result != 12:
            raise SystemExit(f"cuptiActivityGetNextRecord answered {result}")


class Program:
    """A context with a kernel and some memory."""

    def __init__(self) -> None:
        do(cuda.cuInit(0))
        self.context, module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        do(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0))
        do(cuda.cuCtxSetCurrent(self.context))
        do(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
        do(cuda.cuModuleGetFunction(ctypes.byref(self.kernel), module, b"busy"))
        self.stream, self.memory = ctypes.c_void_p(), ctypes.c_uint64()
        do(cuda.cuStreamCreate(ctypes.byref(self.stream), 1))
        do(cuda.cuMemAlloc_v2(ctypes.byref(self.memory), 8 << 20))

    def launch(self, count: int = 1000, blocks: int = 3, stream: object = None) -> int:
        values = ctypes.c_uint64(self.memory.value), ctypes.c_uint32(count)
        params = (ctypes.c_void_p * 2)(*map(ctypes.addressof, values))
        return cuda.cuLaunchKernel(self.kernel, blocks, 1, 1, 32, 1, 1, 0, stream or self.stream, params, None)

    def synchronize(self) -> None:
        do(cuda.cuCtxSynchronize())


def enable(*kinds: int) -> None:
    for kind in kinds:
        do(cupti.cuptiActivityEnable(kind))


def flush(flag: int = 0) -> int:
    return cupti.cuptiActivityFlushAll(flag)


def everything() -> object:
    """A few calls with every kind of record enabled but graph traces."""
    buffers = Buffers()
    enable(*(kind for kind in KINDS if kind not in (GRAPH, MEMORY)))
    program = Program()
    push = cupti.cuptiActivityPushExternalCorrelationId
    do(push(3, ctypes.c_uint64(77)))
    do(program.launch())
    do(cupti.cuptiActivityPopExternalCorrelationId(3, None))
    host = ctypes.create_string_buffer(3 << 20)
    do(cuda.cuMemcpyHtoDAsync_v2(program.memory, host, len(host), program.stream))
    do(cuda.cuMemsetD8Async(program.memory, 5, 4096, program.stream))
    do(cuda.cuMemcpyDtoHAsync_v2(host, program.memory, 4096, program.stream))
    do(cuda.cuStreamSynchronize(program.stream))
    do(program.launch(blocks=5))
    program.synchronize()
    do(flush())
    return buffers.seen


def graph(*also: int) -> object:
    """Two launches of a graph of three kernels and a fill."""
    buffers = Buffers()
    program = Program()
    enable(KERNEL, MEMSET, API_DRIVER, *also)
    made, ready = ctypes.c_void_p(), ctypes.c_void_p()
    do(cuda.cuStreamBeginCapture_v2(program.stream, 2))
    do(program.launch())  # the id of this node is never queried
    do(cuda.cuStreamEndCapture(program.stream, ctypes.byref(made)))
    do(cuda.cuStreamBeginCapture_v2(program.stream, 2))
    for blocks in (1, 2, 4):
        do(program.launch(blocks=blocks))
    do(cuda.cuMemsetD32Async(program.memory, 9, 64, program.stream))
    do(cuda.cuStreamEndCapture(program.stream, ctypes.byref(made)))
    do(cuda.cuGraphInstantiateWithFlags(ctypes.byref(ready), made, ctypes.c_uint64(0)))
    for _ in range(2):
        do(cuda.cuGraphLaunch(ready, program.stream))
    program.synchronize()
    do(flush())
    count, numbers = ctypes.c_size_t(4), []
    nodes = (ctypes.c_void_p * 4)()
    do(cuda.cuGraphGetNodes(made, nodes, ctypes.byref(count)))
    for node in nodes:
        number = ctypes.c_uint64()
        do(cupti.cuptiGetGraphNodeId(ctypes.c_void_p(node), ctypes.byref(number)))
        numbers.append(number.value)
    graph_id = ctypes.c_uint32()
    do(cupti.cuptiGetGraphExecId(ready, ctypes.byref(graph_id)))
    return [*buffers.seen, {"record": "nodes", "numbers": numbers, "graph": graph_id.value}]


def graph_trace() -> object:
    """The same launches with one record for each graph launch instead of one for each node."""
    return graph(GRAPH)


def events() -> object:
    """Events recorded and waited for; like Kineto it enables waits, and with CUPTI 13 the device times of events."""
    if MAJOR >= 13:
        do(cupti.cuptiActivityEnableCudaEventDeviceTimestamps(1))
    buffers = Buffers()
    program = Program()
    enable(KERNEL, API_DRIVER, SYNC)
    other, event, made = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    do(cuda.cuStreamCreate(ctypes.byref(other), 1))
    do(cuda.cuEventCreate(ctypes.byref(event), 2))
    for _ in range(2):
        do(program.launch(20000))
        do(cuda.cuEventRecord(event, program.stream))
        do(cuda.cuStreamWaitEvent(other, event, 0))
        do(program.launch(20000, stream=other))
    do(cuda.cuEventSynchronize(event))
    do(cuda.cuStreamBeginCapture_v2(program.stream, 2))
    do(cuda.cuEventRecord(event, program.stream))
    do(cuda.cuStreamEndCapture(program.stream, ctypes.byref(made)))
    program.synchronize()
    do(flush())
    return buffers.seen


def runtime() -> object:
    """Calls of vgpu's own runtime, or of the one that $VGT_CUDART names, and the driver calls that they make."""
    own = str(ROOT / f"build/guest/cudart/{MAJOR}/libcudart.so.{MAJOR}")
    cudart = ctypes.CDLL(os.environ.get("VGT_CUDART", own))
    memory, host = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    do(cudart.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(4096)))
    buffers = Buffers()
    enable(MEMCPY, MEMSET, API_DRIVER, API_RUNTIME, EXTERNAL)
    do(cupti.cuptiActivityPushExternalCorrelationId(3, ctypes.c_uint64(88)))
    do(cudart.cudaMemcpy(memory, host, ctypes.c_size_t(4096), 1))
    do(cudart.cudaMemset(memory, 1, ctypes.c_size_t(64)))
    do(cudart.cudaDeviceSynchronize())
    do(cupti.cuptiFinalize())  # the runtime makes calls at exit, when Python's callbacks are gone
    return buffers.seen


def many() -> object:
    """More kernels than a batch holds."""
    buffers = Buffers(1 << 20)
    program = Program()
    enable(KERNEL)
    count = 20000
    for _ in range(count):
        do(program.launch(1, 1))
    program.synchronize()
    do(flush())
    dropped = ctypes.c_size_t(1)
    do(cupti.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(dropped)))
    ids = [row["correlationId"] for row in buffers.seen]
    return {"launched": count, "seen": len(ids), "distinct": len(set(ids)), "dropped": dropped.value}


def small_buffers() -> object:
    """Buffers too small for a record, with room for one record, and no buffers: lost records are counted."""
    found = {}
    for name, nbytes, most, refuse in (("tiny", 64, 0, False), ("one", 1 << 12, 1, False), ("none", 1, 0, True)):
        buffers = Buffers(nbytes, most)
        buffers.refuse = refuse
        program = Program()
        enable(KERNEL)
        for _ in range(5):
            do(program.launch(1))
        program.synchronize()
        result, dropped = flush(), ctypes.c_size_t()
        do(cupti.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(dropped)))
        do(cupti.cuptiActivityDisable(KERNEL))
        found[name] = [result, len(buffers.seen), dropped.value, len(buffers.out)]
    return found


def subscribers() -> object:
    """One subscriber at a time; its callback gets calls with their arguments, and the creation of contexts."""
    seen: list[tuple[int, int, int, str]] = []

    def told(user, domain, number, data) -> None:
        site, name, first = 0, "", 0
        if domain == 1:
            site, function, params = struct.unpack("<Q2Q", ctypes.string_at(data, 24))
            name = ctypes.string_at(function).decode()
            first = struct.unpack("<Q", ctypes.string_at(params, 8))[0] if name == "cuMemFree_v2" else 0
        seen.append((domain, number, site & 0xFFFFFFFF, name, first))

    function = CALLBACK(told)
    one, two = ctypes.c_void_p(), ctypes.c_void_p()
    do(cupti.cuptiSubscribe(ctypes.byref(one), function, None))
    second = cupti.cuptiSubscribe(ctypes.byref(two), function, None)
    ids = callback_ids(DRIVER)
    do(cupti.cuptiEnableCallback(1, one, 3, 1))
    never = cupti.cuptiEnableCallback(1, one, 5, 1)
    do(cupti.cuptiEnableCallback(1, one, 1, ids["cuMemFree_v2"]))
    program = Program()
    do(cuda.cuMemFree_v2(program.memory))
    wrong = cupti.cuptiEnableCallback(1, one, 1, 100000), cupti.cuptiEnableCallback(1, None, 1, 1)
    do(cupti.cuptiUnsubscribe(one))
    count = len(seen)
    do(cuda.cuMemAlloc_v2(ctypes.byref(program.memory), 64))
    do(cuda.cuMemFree_v2(program.memory))
    third = cupti.cuptiSubscribe(ctypes.byref(two), function, None)
    answers = {"second": second, "never": never, "wrong": wrong, "third": third}
    return answers | {"seen": seen, "after": len(seen) - count, "again": cupti.cuptiUnsubscribe(one)}


def finalize() -> object:
    """Finalized while recording: existing records are delivered, and no more until a kind is enabled again."""
    buffers = Buffers()
    program = Program()
    enable(KERNEL, API_DRIVER)
    do(program.launch())
    program.synchronize()
    do(cupti.cuptiFinalize())
    kinds = [row["record"] for row in buffers.seen]
    do(program.launch())
    program.synchronize()
    do(flush())
    quiet = len(buffers.seen) - len(kinds)
    enable(KERNEL)
    do(program.launch())
    program.synchronize()
    do(flush())
    return {"kinds": kinds, "quiet": quiet, "again": len(buffers.seen) - len(kinds)}


def fork() -> object:
    """A forked child gets none of its parent's records, and its CUPTI calls return; the parent continues."""
    buffers = Buffers()
    program = Program()
    enable(KERNEL)
    do(program.launch())
    program.synchronize()
    read, write = os.pipe()
    if not os.fork():
        kept = len(buffers.seen)
        answers = flush(), cupti.cuptiActivityEnable(KERNEL), program.launch(), flush(), len(buffers.seen) - kept
        os.write(write, json.dumps(answers).encode())
        os._exit(0)
    os.close(write)
    child = json.loads(os.read(read, 4096))
    os.wait()
    do(program.launch())
    program.synchronize()
    do(flush())
    return {"child": child, "parent": len(buffers.seen)}


def contexts() -> object:
    """Kernels of contexts that are created one after another and destroyed before any record is flushed."""
    buffers = Buffers()
    program = Program()
    enable(KERNEL)
    for _ in range(3):
        context, module = ctypes.c_void_p(), ctypes.c_void_p()
        do(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
        do(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
        do(cuda.cuModuleGetFunction(ctypes.byref(program.kernel), module, b"busy"))
        do(cuda.cuMemAlloc_v2(ctypes.byref(program.memory), 4096))
        do(program.launch(stream=ctypes.c_void_p(1)))  # the legacy stream
        program.synchronize()
        do(cuda.cuCtxDestroy_v2(context))
    do(flush())
    dropped = ctypes.c_size_t(1)
    do(cupti.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(dropped)))
    return {"seen": len(buffers.seen), "dropped": dropped.value}


def calls_inside() -> object:
    """The program's callbacks call CUPTI: calls that would recurse for ever are refused, others succeed."""
    buffers = Buffers()
    buffers.ask = lambda: [flush(), cupti.cuptiFinalize()]
    program = Program()
    enable(KERNEL)
    one, answers, sites = ctypes.c_void_p(), [], []

    def told(user, domain, number, data) -> None:
        sites.append(struct.unpack("<I", ctypes.string_at(data, 4))[0])
        if len(sites) == 1:
            answers.append(flush())
        elif len(sites) == 3:
            answers.append(cupti.cuptiUnsubscribe(one))

    function = CALLBACK(told)
    do(cupti.cuptiSubscribe(ctypes.byref(one), function, None))
    do(cupti.cuptiEnableCallback(1, one, 1, callback_ids(DRIVER)["cuLaunchKernel"]))
    for _ in range(4):
        do(program.launch())
    program.synchronize()
    do(flush())
    again = ctypes.c_void_p()
    third = cupti.cuptiSubscribe(ctypes.byref(again), function, None)
    asked = [answer for answer in buffers.asked if answer]
    return {"sites": sites, "answers": answers, "asked": asked, "third": third, "seen": len(buffers.seen)}


def misaligned() -> object:
    """A buffer that is not aligned to 8 bytes is refused, its records count as dropped; aligned ones are used."""
    buffers = Buffers()
    buffers.offset = 4
    program = Program()
    enable(KERNEL)
    found = []
    for offset in (4, 0):
        buffers.offset = offset
        do(program.launch())
        program.synchronize()
        dropped = ctypes.c_size_t()
        result = flush()
        do(cupti.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(dropped)))
        found.append([result, len(buffers.seen), dropped.value])
    return found


def toggled() -> object:
    """Threads enable and disable kinds while another thread launches: afterwards recording works as before."""
    buffers = Buffers()
    program = Program()
    stop, answers = threading.Event(), set()

    def toggle(kind: int) -> None:
        while not stop.is_set():
            answers.add(cupti.cuptiActivityEnable(kind))
            answers.add(cupti.cuptiActivityDisable(kind))

    threads = [threading.Thread(target=toggle, args=(kind,)) for kind in (KERNEL, API_DRIVER, KERNEL, SYNC)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        do(program.launch(1, 1))
    program.synchronize()
    stop.set()
    for thread in threads:
        thread.join()
    do(flush())
    before = len(buffers.seen)
    enable(KERNEL)
    for _ in range(50):
        do(program.launch(1, 1))
    program.synchronize()
    do(flush())
    return {"answers": sorted(answers), "after": len(buffers.seen) - before}


def left_behind() -> object:
    """The program ends with records that it never flushed."""
    Buffers.kept = Buffers()  # the callbacks must live as long as the process
    program = Program()
    enable(KERNEL, API_DRIVER)
    do(program.launch())
    return "ended"


def worker_dies() -> object:
    """The worker ends before records are delivered: one flush fails, and delivered records remain."""
    buffers = Buffers()
    program = Program()
    enable(KERNEL)
    do(program.launch())
    program.synchronize()
    do(flush())
    delivered = len(buffers.seen)
    do(program.launch())
    print("ready", flush=True)
    sys.stdin.readline()
    first = flush()
    return {"delivered": delivered, "first": first, "second": flush(), "seen": len(buffers.seen)}


def wrong_calls() -> object:
    """Calls that CUPTI refuses, and their results."""
    wrong = ctypes.create_string_buffer(64)
    record = ctypes.c_void_p()
    get = cupti.cuptiActivityGetNextRecord
    get.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
    size = ctypes.c_size_t(2)
    return {
        "kind": [cupti.cuptiActivityEnable(kind) for kind in (0, 8, 1000)],
        "callbacks": cupti.cuptiActivityRegisterCallbacks(None, None),
        "empty": get(wrong, 0, ctypes.byref(record)),
        "unknown kind": get(wrong, 64, ctypes.byref(record)),
        "outside": get(wrong, 64, ctypes.byref(ctypes.c_void_p(ctypes.addressof(wrong) + 100))),
        "flag": flush(6),
        "pop": cupti.cuptiActivityPopExternalCorrelationId(3, None),
        "push": cupti.cuptiActivityPushExternalCorrelationId(99, ctypes.c_uint64(1)),
        "attribute": [
            cupti.cuptiActivitySetAttribute(0, ctypes.byref(size), ctypes.byref(size)),
            cupti.cuptiActivitySetAttribute(99, ctypes.byref(size), ctypes.byref(size)),
        ],
        "unsupported": cupti.cuptiEventGroupCreate(None, None, 0),
        "period": [cupti.cuptiActivityFlushPeriod(0), cupti.cuptiActivityFlushPeriod(100)],
        "last": [cupti.cuptiGetLastError(), cupti.cuptiGetLastError()],
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[2]]()))
