"""CUDA programs whose memory is recorded by CUPTI; they print the records as JSON. Run under `vgpu run`.

`python activity_memory.py MAJOR SCENARIO`. A scenario is a function of this file.
"""

import ctypes
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))
from tests.shim.cupti.activity import (
    API_DRIVER,
    MEMORY,
    MEMORY2,
    POOL,
    Buffers,
    Program,
    cuda,
    cupti,
    do,
    enable,
    flush,
)

MIB = 1 << 20


def nbytes(count: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(count)


class PoolProps(ctypes.Structure):
    """CUmemPoolProps of a pool of device 0's memory."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int * 2),
        ("security", ctypes.c_void_p),
        ("largest", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


def allocations() -> object:
    """Memory of each kind is allocated and freed; some of it before recording begins, some is never freed."""
    buffers = Buffers()
    program = Program()
    before, device, managed, kept = (ctypes.c_uint64() for _ in range(4))
    pinned, pinned_too, pitch = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    rows = ctypes.c_uint64()
    do(cuda.cuMemAlloc_v2(ctypes.byref(before), nbytes(3 * MIB)))
    enable(MEMORY, MEMORY2, API_DRIVER)
    do(cuda.cuMemAlloc_v2(ctypes.byref(device), nbytes(MIB)))
    do(cuda.cuMemAllocPitch_v2(ctypes.byref(rows), ctypes.byref(pitch), nbytes(100), nbytes(7), 4))
    do(cuda.cuMemAllocManaged(ctypes.byref(managed), nbytes(2 * MIB), 1))
    do(cuda.cuMemAllocHost_v2(ctypes.byref(pinned), nbytes(4096)))
    do(cuda.cuMemHostAlloc(ctypes.byref(pinned_too), nbytes(8192), 0))
    do(cuda.cuMemAlloc_v2(ctypes.byref(kept), nbytes(5 * MIB)))
    failed = [
        cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), nbytes(1 << 50)),
        cuda.cuMemFree_v2(ctypes.c_uint64(device.value + 512)),
        cuda.cuMemFreeHost(ctypes.c_void_p(device.value)),
    ]
    for address in (before, device, rows, managed):
        do(cuda.cuMemFree_v2(address))
    for host in (pinned, pinned_too):
        do(cuda.cuMemFreeHost(host))
    do(cupti.cuptiActivityDisable(MEMORY))
    do(cuda.cuMemFree_v2(kept))
    do(cupti.cuptiActivityDisable(MEMORY2))
    do(cuda.cuMemFree_v2(program.memory))
    do(flush())
    named = {"before": before, "device": device, "rows": rows, "managed": managed, "pinned": pinned}
    named |= {"pinned too": pinned_too, "kept": kept}
    facts = {name: value.value for name, value in named.items()}
    return [*buffers.seen, {"record": "facts", "failed": failed, "pitch": pitch.value, "at": facts}]


def pools() -> object:
    """Allocations of the device's own pool and of one that is made, trimmed and destroyed; none in a capture."""
    buffers = Buffers()
    program = Program()
    enable(MEMORY2, POOL)
    props = PoolProps(type=1, location=(1, 0))
    pool, own, other = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    do(cuda.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(props)))
    do(cuda.cuMemPoolSetAttribute(pool, 4, ctypes.byref(ctypes.c_uint64(7 * MIB))))
    do(cuda.cuMemAllocAsync(ctypes.byref(own), nbytes(MIB), program.stream))
    do(cuda.cuMemAllocFromPoolAsync(ctypes.byref(other), nbytes(2 * MIB), pool, program.stream))
    do(cuda.cuMemFreeAsync(own, program.stream))
    do(cuda.cuMemFreeAsync(other, program.stream))
    program.synchronize()
    do(cuda.cuMemPoolTrimTo(pool, nbytes(MIB)))
    graph, inside = ctypes.c_void_p(), ctypes.c_uint64()
    do(cuda.cuStreamBeginCapture_v2(program.stream, 2))
    do(cuda.cuMemAllocAsync(ctypes.byref(inside), nbytes(MIB), program.stream))
    do(cuda.cuMemFreeAsync(inside, program.stream))
    do(cuda.cuStreamEndCapture(program.stream, ctypes.byref(graph)))
    do(cuda.cuMemPoolDestroy(pool))
    do(flush())
    return [*buffers.seen, {"record": "facts", "pool": pool.value, "own": own.value, "other": other.value}]


def many() -> object:
    """Allocations that are freed in another order: each release has its own number of bytes."""
    buffers = Buffers()
    Program()
    enable(MEMORY2)
    made = []
    for count in range(1, 1001):
        made.append(ctypes.c_uint64())
        do(cuda.cuMemAlloc_v2(ctypes.byref(made[-1]), nbytes(count)))
    for step in (7, 3, 1):
        for each in made[::step]:
            if each.value:
                do(cuda.cuMemFree_v2(each))
                each.value = 0
    do(flush())
    return buffers.seen


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[2]]()))
