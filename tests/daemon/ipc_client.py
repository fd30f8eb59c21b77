"""A client in a process of its own that evaluates a test's expressions, step by step."""

from __future__ import annotations

import subprocess
import sys
from ast import literal_eval
from typing import Any

from tests.patience import PATIENCE_S
from tests.shim.client import PRELUDE, environment

# Each line is a Python expression; its value is printed as text. `KERNEL` adds one to n 32-bit words after a loop of
# `spins` iterations.
LOOP = """
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]

def result(name, *args):
    return getattr(cuda, name)(*args)

def get_memory(address):
    handle = Handle()
    code = cuda.cuIpcGetMemHandle(byref(handle), c_uint64(address))
    return code, bytes(handle)

def open_memory(handle, flags=1):
    address = c_uint64(1)
    code = cuda.cuIpcOpenMemHandle_v2(byref(address), Handle.from_buffer_copy(handle), flags)
    return code, address.value

def occupy(address, nbytes):
    '''Map memory of the program's own at an address, without access; whether it lies there.'''
    libc = ctypes.CDLL(None)
    libc.mmap.restype = c_void_p
    libc.mmap.argtypes = (c_void_p, c_size_t, c_int, c_int, c_int, ctypes.c_long)
    return libc.mmap(address, nbytes, 0, 0x100022, -1, 0) == address  # private, anonymous, fixed, nothing replaced

def close_memory(address):
    return cuda.cuIpcCloseMemHandle(c_uint64(address))

def memory(nbytes):
    return alloc(nbytes).value

def free(address):
    return cuda.cuMemFree_v2(c_uint64(address))

def put(address, data):
    return cuda.cuMemcpyHtoD_v2(c_uint64(address), data, c_size_t(len(data)))

def look(address, nbytes):
    data = create_string_buffer(nbytes)
    ok(cuda.cuMemcpyDtoH_v2(data, c_uint64(address), c_size_t(nbytes)))
    return data.raw

GRANULE = 2 << 20

def create(types=1, device=0):
    handle, prop = c_uint64(), (ctypes.c_int * 8)(1, types, 1, device)
    return cuda.cuMemCreate(byref(handle), c_size_t(GRANULE), prop, c_uint64(0)), handle.value

def release(handle):
    return cuda.cuMemRelease(c_uint64(handle))

def mapped(handle):
    address = c_uint64()
    ok(cuda.cuMemAddressReserve(byref(address), c_size_t(GRANULE), c_size_t(0), c_uint64(0), c_uint64(0)))
    ok(cuda.cuMemMap(address, c_size_t(GRANULE), c_size_t(0), c_uint64(handle), c_uint64(0)))
    ok(cuda.cuMemSetAccess(address, c_size_t(GRANULE), (ctypes.c_int * 3)(1, 0, 3), c_size_t(1)))
    return address.value

def unmap(address):
    return cuda.cuMemUnmap(c_uint64(address), c_size_t(GRANULE))

def export(handle, type=1, flags=0):
    fd = ctypes.c_int(-7)
    return cuda.cuMemExportToShareableHandle(byref(fd), c_uint64(handle), type, c_uint64(flags)), fd.value

def import_fd(fd, type=1):
    handle = c_uint64(7)
    return cuda.cuMemImportFromShareableHandle(byref(handle), c_void_p(fd), type), handle.value

def import_from(pid, fd):
    own = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY)
    try:
        return import_fd(own)
    finally:
        os.close(own)

def file_of(data, seals=15):
    import fcntl
    fd = os.memfd_create("made up", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, 1033, seals)
    return fd

def properties(handle):
    prop = (ctypes.c_int * 8)()
    return cuda.cuMemGetAllocationPropertiesFromHandle(prop, c_uint64(handle)), list(prop)

class Pool(ctypes.Structure):  # CUmemPoolProps
    _fields_ = [("numbers", ctypes.c_int * 4), ("rest", ctypes.c_ubyte * 72)]

def pool(types=1):
    handle, props = c_void_p(7), Pool((ctypes.c_int * 4)(1, types, 1, 0))
    return cuda.cuMemPoolCreate(byref(handle), byref(props)), handle.value

def destroy_pool(pool):
    return cuda.cuMemPoolDestroy(c_void_p(pool))

def from_pool(pool, nbytes):
    address = c_uint64(7)
    code = cuda.cuMemAllocFromPoolAsync(byref(address), c_size_t(nbytes), c_void_p(pool), None)
    return code, address.value

def free_async(address):
    return cuda.cuMemFreeAsync(c_uint64(address), None)

def export_pool(pool, type=1, flags=0):
    fd = ctypes.c_int(-7)
    return cuda.cuMemPoolExportToShareableHandle(byref(fd), c_void_p(pool), type, c_uint64(flags)), fd.value

def import_pool(fd, type=1, flags=0):
    handle = c_void_p(7)
    code = cuda.cuMemPoolImportFromShareableHandle(byref(handle), c_void_p(fd), type, c_uint64(flags))
    return code, handle.value

def import_pool_from(pid, fd):
    own = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY)
    try:
        return import_pool(own)
    finally:
        os.close(own)

def export_pointer(address):
    data = Handle()
    return cuda.cuMemPoolExportPointer(byref(data), c_uint64(address)), bytes(data)

def import_pointer(pool, data):
    address = c_uint64(7)
    code = cuda.cuMemPoolImportPointer(byref(address), c_void_p(pool), byref(Handle.from_buffer_copy(data)))
    return code, address.value

def event(flags=6):
    handle = c_void_p()
    return cuda.cuEventCreate(byref(handle), flags), handle.value

def get_event(event):
    handle = Handle()
    return cuda.cuIpcGetEventHandle(byref(handle), c_void_p(event)), bytes(handle)

def open_event(handle):
    found = c_void_p()
    return cuda.cuIpcOpenEventHandle(byref(found), Handle.from_buffer_copy(handle)), found.value

def stream():
    return new(cuda.cuStreamCreate, 1).value

def record(event, stream):
    return cuda.cuEventRecord(c_void_p(event), c_void_p(stream))

def wait(stream, event):
    return cuda.cuStreamWaitEvent(c_void_p(stream), c_void_p(event), 0)

def query(event):
    return cuda.cuEventQuery(c_void_p(event))

def synchronize(event):
    return cuda.cuEventSynchronize(c_void_p(event))

def attribute(address, which):
    value = c_int(-1)
    return cuda.cuPointerGetAttribute(byref(value), which, c_uint64(address)), value.value

KERNEL = b'''.version 7.5
.target sm_75
.address_size 64
.visible .entry add(.param .u64 p, .param .u32 n, .param .u64 spins) {
  .reg .u64 %rd<6>; .reg .u32 %r<6>; .reg .pred %q<3>;
  ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; ld.param.u64 %rd2, [spins];
  cvta.to.global.u64 %rd1, %rd1;
L: setp.eq.u64 %q1, %rd2, 0;
  @%q1 bra M;
  sub.u64 %rd2, %rd2, 1;
  ld.volatile.global.u32 %r2, [%rd1];
  bra L;
M: mov.u32 %r3, %tid.x;
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %ntid.x;
  mad.lo.u32 %r3, %r4, %r5, %r3;
  setp.ge.u32 %q2, %r3, %r1;
  @%q2 bra D;
  mul.wide.u32 %rd3, %r3, 4;
  add.u64 %rd3, %rd1, %rd3;
  ld.global.u32 %r2, [%rd3];
  add.u32 %r2, %r2, 1;
  st.global.u32 [%rd3], %r2;
D: ret;
}'''

def add(address, n, stream=None, spins=0):
    global loaded
    if "loaded" not in globals():
        loaded = new(cuda.cuModuleGetFunction, new(cuda.cuModuleLoadData, KERNEL), b"add")
    values = c_uint64(address), c_uint(n), c_uint64(spins)
    parameters = (c_void_p * 3)(*(ctypes.cast(ctypes.pointer(v), c_void_p) for v in values))
    return cuda.cuLaunchKernel(loaded, (n + 127) // 128, 1, 1, 128, 1, 1, 0, c_void_p(stream), parameters, None)

gates = []

def shut(stream):
    '''What the stream is given from now on waits until open_gates().'''
    opened = threading.Event()
    gates.append((opened, ctypes.CFUNCTYPE(None, c_void_p)(lambda _: opened.wait() and None)))
    return cuda.cuLaunchHostFunc(c_void_p(stream), gates[-1][1], None)

def open_gates():
    for opened, _ in gates:
        opened.set()

context()
print("ready", flush=True)
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class IpcClient:
    """`client("memory(4096)")` evaluates the expression in the client and returns its value."""

    def __init__(self, endpoint: str, **changes: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + LOOP],
            env=environment(endpoint, **changes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self, expression: str) -> None:
        """Start to evaluate an expression in the client; `finish` returns its value."""
        assert self.process.stdin is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def finish(self) -> Any:
        """Return the value of the expression that `begin` started."""
        return literal_eval(self._line())

    def __call__(self, expression: str) -> Any:
        self.begin(expression)
        return self.finish()

    def end(self) -> None:
        """Close the client's input; the client then exits as programs do."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()

    def kill(self) -> None:
        """Kill the client, so that it cleans up nothing."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process.stdin.close()
        self.process.stdout.close()
