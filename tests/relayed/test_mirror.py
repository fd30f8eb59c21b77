"""Managed variables that NVIDIA's driver places: when they are fetched (shim/cuda/vgs_mirror.c)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.running import Running
from tests.relayed.conftest import Relay, start_relay
from tests.shim.client import PRELUDE

BEGIN = (
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
ok(cuda.cuStreamCreate(byref(stream), int(os.environ.get("FLAGS", "1"))))
ok(cuda.cuEventCreate(byref(event), 2))
go = threading.Event()
hold = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: go.wait() and None)
def step(): ok(cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, None, None))
assert counter.value == 5
counter.value = 7
"""
)
WITH_LATER_WORK = (
    BEGIN
    + """
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
    shared_relay.python(WITH_LATER_WORK)


BESIDE_A_CAPTURE = (
    BEGIN
    + """
graph, count, executable = c_void_p(), c_size_t(), c_void_p()
origin = other = stream
joined = new(cuda.cuEventCreate, 2)
if os.environ["STREAMS"] != "1":
    other = new(cuda.cuStreamCreate, 1)
    origin = new(cuda.cuStreamCreate, 1) if os.environ["JOINS"] else stream
step()
ok(cuda.cuEventRecord(event, stream))
ok(cuda.cuStreamBeginCapture_v2(origin, 2))
if origin != stream:
    ok(cuda.cuEventRecord(joined, origin))
    ok(cuda.cuStreamWaitEvent(stream, joined, 0))
step()
if other != stream:
    ok(cuda.cuStreamSynchronize(other))
ok(cuda.cuEventSynchronize(event))
assert counter.value == 21, counter.value
step()
if origin != stream:
    ok(cuda.cuEventRecord(joined, stream))
    ok(cuda.cuStreamWaitEvent(origin, joined, 0))
ok(cuda.cuStreamEndCapture(origin, byref(graph)))
ok(cuda.cuGraphGetNodes(graph, None, byref(count)))
assert count.value == 2, count.value
ok(cuda.cuGraphInstantiateWithFlags(byref(executable), graph, 0))
counter.value = 1
ok(cuda.cuGraphLaunch(executable, origin))
ok(cuda.cuStreamSynchronize(origin))
assert counter.value == 9, counter.value
"""
)


@pytest.mark.parametrize(("streams", "joins", "flags"), [(8, "", 1), (8, "yes", 1), (1, "", 1), (1, "", 0)])
def test_a_fetch_is_no_part_of_a_capture(driver: Running, tmp_path: Path, streams: int, joins: str, flags: int) -> None:
    """The stream that the program's last change was sent in, or that was waited for, may be capturing by then."""
    share = f"default_share = 's'\n[[shares]]\nname = 's'\nstreams = {streams}\n"
    running, relay = start_relay(driver, tmp_path, True, share)
    try:
        relay.python(BESIDE_A_CAPTURE, STREAMS=str(streams), JOINS=joins, FLAGS=str(flags))
    finally:
        running.end()


WITH_A_CHANGE_IN_THE_LEGACY_STREAM = (
    BEGIN
    + """
blocking, graph, count = new(cuda.cuStreamCreate, 0), c_void_p(), c_size_t()
ok(cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None))
ok(cuda.cuEventRecord(event, None))
ok(cuda.cuStreamBeginCapture_v2(blocking, 2))  # from here on a fetch in the legacy stream would end the capture
ok(cuda.cuStreamSynchronize(stream))
assert counter.value in (7, 21)  # the launch may not have run yet
ok(cuda.cuEventSynchronize(event))
assert counter.value == 21
ok(cuda.cuStreamEndCapture(blocking, byref(graph)))
ok(cuda.cuGraphGetNodes(graph, None, byref(count)))
assert count.value == 0
"""
)


def test_a_fetch_is_not_in_the_legacy_stream_beside_a_capture(shared_relay: Relay) -> None:
    shared_relay.python(WITH_A_CHANGE_IN_THE_LEGACY_STREAM)


WITHOUT_ANOTHER_STREAM = (
    BEGIN
    + """
for synchronize in (lambda: cuda.cuStreamSynchronize(stream), cuda.cuCtxSynchronize):
    before = counter.value
    step()
    ok(synchronize())
    assert counter.value == 3 * before, counter.value
assert cuda.cuStreamCreate(byref(c_void_p()), 1) == 2
"""
)


def test_a_wait_fetches_where_the_tenant_may_have_no_stream_more(driver: Running, tmp_path: Path) -> None:
    """Else a fetch has a stream of its own."""
    share = "default_share = 's'\n[[shares]]\nname = 's'\nstreams = 1\n"
    running, relay = start_relay(driver, tmp_path, True, share)
    try:
        relay.python(WITHOUT_ANOTHER_STREAM)
    finally:
        running.end()
