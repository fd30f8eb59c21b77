"""VGPU_TORCH=async: operators run asynchronously, in stream order (cases.py).

A kernel that waits for a value holds up a stream, so that missing synchronisation is visible in every run.
"""

import ctypes
from contextlib import contextmanager

import torch
from cases import case, main, message
from torch.nn import functional as F  # noqa: N812

HOLD = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry hold(.param .u64 flag)
{
  .reg .u64 %address;
  .reg .u32 %value;
  .reg .pred %zero;
  ld.param.u64 %address, [flag];
again:
  nanosleep.u32 1000000;
  ld.volatile.global.u32 %value, [%address];
  setp.eq.u32 %zero, %value, 0;
  @%zero bra again;
  ret;
}
"""
driver = ctypes.CDLL("libcuda.so.1")


@contextmanager
def held(stream):
    """A kernel that waits for a value blocks the stream: work submitted inside runs only after the end."""
    torch.cuda.synchronize()
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuModuleLoadData(ctypes.byref(module), HOLD) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"hold") == 0
    flag = torch.zeros(1, dtype=torch.int32, pin_memory=True)
    address = ctypes.c_uint64(flag.data_ptr())
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(address))
    one, handle = [ctypes.c_uint(1)] * 6, ctypes.c_void_p(stream.cuda_stream)
    assert driver.cuLaunchKernel(kernel, *one, ctypes.c_uint(0), handle, parameters, None) == 0
    try:
        yield
    finally:
        flag[0] = 1
        stream.synchronize()


@case
def a_copy_that_nobody_waits_for_is_too_early():
    x, host = torch.zeros(4, device="cuda"), torch.full((4,), -1.0, pin_memory=True)
    with held(torch.cuda.current_stream()):
        x.add_(1)
        host.copy_(x, non_blocking=True)
        assert host.tolist() == [-1.0] * 4
    torch.cuda.synchronize()
    assert host.tolist() == [1.0] * 4


@case
def a_stream_that_does_not_wait_reads_old_values():
    x, side = torch.zeros(4, device="cuda"), torch.cuda.Stream()
    with held(side):
        with torch.cuda.stream(side):
            x.add_(1)
        assert x.tolist() == [0.0] * 4  # the old value: the test shows this race
    torch.cuda.current_stream().wait_stream(side)
    assert x.tolist() == [1.0] * 4


@case
def memory_that_another_stream_still_uses():
    """Without record_stream, the allocator reuses the memory too early."""
    side, seen = torch.cuda.Stream(), []
    for recorded in (False, True):
        x = torch.ones(1 << 18, device="cuda")
        torch.cuda.synchronize()
        with held(side):
            with torch.cuda.stream(side):
                total = x.sum()
            if recorded:
                x.record_stream(side)
            del x
            y = torch.full((1 << 18,), 2.0, device="cuda")
            torch.cuda.current_stream().synchronize()
        side.synchronize()
        seen.append(total.item() / (1 << 18))
        del y
    assert seen == [2.0, 1.0], seen


@case
def what_waits_for_values_waits():
    x = torch.arange(6.0, device="cuda") - 2
    assert (x > 0).nonzero().flatten().tolist() == [3, 4, 5]
    assert x[x > 0].tolist() == [1.0, 2.0, 3.0]
    assert torch.unique(x.abs()).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert torch.linalg.inv(torch.eye(3, device="cuda") * 2).diagonal().tolist() == [0.5] * 3


@case
def arguments_are_read_when_the_operator_is_called():
    scale = torch.tensor(2.0)
    x = torch.arange(3.0, device="cuda")
    with held(torch.cuda.current_stream()):
        y = x * scale
        scale.fill_(100)
    assert y.tolist() == [0.0, 2.0, 4.0]


@case
def events_tell_when():
    event, x = torch.cuda.Event(), torch.zeros(4, device="cuda")
    with held(torch.cuda.current_stream()):
        x.add_(1)
        event.record()
        assert not event.query()
    event.synchronize()
    assert event.query()


@case
def a_bad_index_is_met_later():
    """This case is the last one, because it loses the context."""
    table = torch.zeros(3, 2, device="cuda")
    found = F.embedding(torch.tensor([5], device="cuda"), table)
    for _ in range(2):
        assert "device-side assert triggered" in message(RuntimeError, lambda: found.sum().item())


if __name__ == "__main__":
    main()
