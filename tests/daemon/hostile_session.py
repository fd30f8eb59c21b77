"""A client without the guest library that sends arbitrary records after hello and attach."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
from typing import Any

from vgpud._gen.api import HAS_FD, HEADER

from tests.daemon.ring_memory import F_ADD_SEALS, SEAL_SHRINK_GROW
from tests.daemon.running import Running
from tests.fuzz.stream import BY_NAME, encode
from tests.patience import PATIENCE_S

CONTEXT, STREAM, SECOND_STREAM, FUNCTION = 1, 1, 2, 6
PINNED = 0x300000000000  # vgw_pinned.h

# wait(p): spins until the word at p is not 0; endless(): never returns; store(p): writes 42 to p
PTX = b""".version 7.5
.target sm_75
.address_size 64
.visible .entry wait(.param .u64 p)
{
  .reg .u64 %rd<2>;
  .reg .u32 %r<2>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [p];
again:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
.visible .entry endless()
{
  .reg .u32 %r<2>;
  mov.u32 %r1, 0;
again:
  add.u32 %r1, %r1, 1;
  bra again;
}
.visible .entry store(.param .u64 p)
{
  .reg .u64 %rd<2>;
  .reg .u32 %r<2>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, 42;
  st.global.u32 [%rd1], %r1;
  ret;
}
"""
KERNELS = {"wait": 1, "endless": 2, "store": 3}


class HostileSession:
    """A session with a context, two streams (non-blocking), the kernels above, and a few words of device memory."""

    def __init__(self, running: Running, begin: bool = True) -> None:
        client = running.client()
        client.hello()
        self.session = client.attach().worker
        self.running = running
        self.sock = client.detach()
        self.sock.settimeout(PATIENCE_S)
        self.sequence = 0
        if begin:
            self._begin()

    def __enter__(self) -> HostileSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def _begin(self) -> None:
        self.ok("cuDevicePrimaryCtxRetain", pctx=CONTEXT, context=0)
        for stream in (STREAM, SECOND_STREAM):
            self.send("cuStreamCreateWithPriority", phStream=stream, flags=1)
        self.send("vgpuImageWrite", PTX, image=1, total=len(PTX), nbytes=len(PTX))
        self.ok("cuModuleLoadData", module=1, image=1)
        for name, function in KERNELS.items():
            self.ok("cuModuleGetFunction", name.encode(), hfunc=function, hmod=1, name_nbytes=len(name))
        self.memory = struct.unpack("<Q", self.ok("cuMemAlloc_v2", bytesize=4096))[0]

    def record(self, name: str, tail: bytes = b"", context: int = CONTEXT, **fields: int) -> bytes:
        self.sequence += 1
        return encode(name, self.sequence, context, fields, tail)

    def send(self, name: str, tail: bytes = b"", context: int = CONTEXT, **fields: int) -> None:
        """Send a call, queued if it can be queued."""
        self.sock.sendall(self.record(name, tail, context, **fields))

    def send_queued(self, name: str, **fields: int) -> None:
        """Send a waiting call without the flag that asks for a reply."""
        record = bytearray(self.record(name, **fields))
        record[6:8] = bytes(2)
        self.sock.sendall(record)

    def reply(self) -> tuple[int, bytes]:
        header = self.sock.recv(HEADER.size, socket.MSG_WAITALL)
        if len(header) < HEADER.size:
            raise ConnectionError("the worker hung up")
        length, _, _, _, result = HEADER.unpack(header)
        return result, self.sock.recv(length - HEADER.size, socket.MSG_WAITALL) if length > HEADER.size else b""

    def call(self, name: str, tail: bytes = b"", context: int = CONTEXT, **fields: int) -> tuple[int, bytes]:
        assert BY_NAME[name].waits
        self.send(name, tail, context, **fields)
        return self.reply()

    def ok(self, name: str, tail: bytes = b"", context: int = CONTEXT, **fields: int) -> bytes:
        result, body = self.call(name, tail, context, **fields)
        assert result == 0, (name, result)
        return body

    def launch(self, kernel: str, *params: int, stream: int = STREAM) -> None:
        dimensions: dict[str, Any] = {f"{what}Dim{axis}": 1 for what in ("grid", "block") for axis in "XYZ"}
        block = struct.pack(f"<{len(params)}Q", *params)
        fields = {"kind": FUNCTION, "object": KERNELS[kernel], "hStream": stream, "params_nbytes": len(block)}
        self.send("cuLaunchKernel", block, **dimensions, **fields)

    def word(self) -> int:
        """The first word of `memory`, read in SECOND_STREAM after the earlier work of that stream."""
        body = self.ok("cuMemcpyDtoHAsync_v2", srcDevice=self.memory, ByteCount=4, hStream=SECOND_STREAM)
        return int(struct.unpack_from("<I", body)[0])

    def map_pinned(self, address: int = PINNED, nbytes: int = 4096, seals: int = SEAL_SHRINK_GROW) -> mmap.mmap:
        """Map pinned memory in the worker; return the mapping of the same file in this process."""
        fd, result = self.offer_pinned(address, nbytes, seals)
        try:
            assert result == 0
            return mmap.mmap(fd, nbytes)
        finally:
            os.close(fd)

    def offer_pinned(self, address: int, nbytes: int, seals: int = SEAL_SHRINK_GROW) -> tuple[int, int]:
        """Offer a new sparse file of `nbytes` as pinned memory; return its descriptor and the worker's result."""
        fd = os.memfd_create("pinned", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
        record = bytearray(self.record("vgpuHostMap", address=address, nbytes=nbytes))
        record[6] |= HAS_FD
        socket.send_fds(self.sock, [bytes(record)], [fd])
        return fd, self.reply()[0]

    def wait_for_a_word(self) -> None:
        """Have STREAM wait for a word that nobody writes."""
        self.send("cuStreamWaitValue32_v2", addr=self.memory + 8, stream=STREAM, value=1, flags=0)

    def is_served(self) -> bool:
        """Whether the worker still executes this session's calls."""
        self.launch("store", self.memory, stream=SECOND_STREAM)
        return self.word() == 42

    def ended(self) -> tuple[str, str]:
        """How the worker ended, and why."""
        pattern = rf'worker ended session={self.session} worker=\d+ how="?([^"\n]+?)"? reason="?([^"\n]+)'
        said = self.running.wait_log(pattern)
        return said[1], said[2]
