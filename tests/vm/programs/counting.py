"""Computes until /run/enough exists; makes /run/counting once its session is stored, and again if that is removed."""

import ctypes
import json
import socket
import time
from pathlib import Path

COUNTING, ENOUGH = Path("/run/counting"), Path("/run/enough")
cuda = ctypes.CDLL("libcuda.so.1")


def ok(code: int) -> None:
    assert code == 0, code


def is_stored() -> bool:
    """Whether systemd has the session's descriptors."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("/run/vgpu/admin.sock")
        sock.sendall(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    return bool(json.loads(answer.partition(b"\r\n\r\n")[2])["sessions_stored"])


context, memory, back = ctypes.c_void_p(), ctypes.c_uint64(), (ctypes.c_uint * 256)()
ok(cuda.cuInit(0))
ok(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
ok(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1024)))
while not is_stored():
    time.sleep(0.05)
number = 0
while not ENOUGH.exists():
    number += 1
    ok(cuda.cuMemsetD32_v2(memory, number, ctypes.c_size_t(256)))
    ok(cuda.cuMemcpyDtoH_v2(back, memory, ctypes.c_size_t(1024)))
    assert set(back) == {number}
    COUNTING.touch()
    time.sleep(0.05)
print("right")
