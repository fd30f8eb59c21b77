"""Managed variables that NVIDIA's driver places: when they are fetched (shim/cuda/vgs_mirror.c)."""

from __future__ import annotations

from tests.relayed.conftest import Relay
from tests.shim.client import PRELUDE

PROGRAM = (
    PRELUDE
    + r"""
import threading
PTX = rb'''
.version 7.5
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 counter = 5;
.visible .entry step() {
  .reg .u32 %r<2>;
  ld.global.u32 %r0, [counter];
  mul.lo.u32 %r1, %r0, 3;
  st.global.u32 [counter], %r1;
  ret;
}
'''
ctx = context()
library, f, address, nbytes = c_void_p(), c_void_p(), c_uint64(), c_size_t()
ok(cuda.cuLibraryLoadData(byref(library), PTX, None, None, 0, None, None, 0))
ok(cuda.cuLibraryGetManaged(byref(address), byref(nbytes), library, b"counter"))
ok(cuda.cuLibraryGetKernel(byref(f), library, b"step"))
counter = c_uint.from_address(address.value)
stream, event = c_void_p(), c_void_p()
ok(cuda.cuStreamCreate(byref(stream), 1))
ok(cuda.cuEventCreate(byref(event), 2))
go = threading.Event()
hold = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: go.wait() and None)
def step(): ok(cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, None, None))
assert counter.value == 5
counter.value = 7
step()
ok(cuda.cuEventRecord(event, stream))
ok(cuda.cuLaunchHostFunc(stream, hold, None))
step()
while (answer := cuda.cuEventQuery(event)) == 600:
    pass
assert answer == 0 and counter.value == 21
ok(cuda.cuEventSynchronize(event))
assert counter.value == 21
assert cuda.cuStreamQuery(stream) == 600
go.set()
ok(cuda.cuStreamSynchronize(stream))
assert counter.value == 63
"""
)


def test_a_query_does_not_wait_for_what_follows_its_event(shared_relay: Relay) -> None:
    """Behind the event the stream waits for the program, which would never come to it."""
    shared_relay.python(PROGRAM)
