"""A vgpud with a VM whose shared memory is a file, and a client on this host that uses the VM's hybrid socket."""

from __future__ import annotations

import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vgpud.cli.client import Client
from vgpud.endpoint import parse_endpoint

from tests.daemon.ring_memory import NBYTES, OPCODES, RingMemory
from tests.daemon.running import Running
from tests.patience import PATIENCE_S

PAGE = 4096
WINDOW = 0x300000000000  # where clients place pinned memory (shim/cuda/vgs_host_memory.c)


@dataclass
class RegionHost:
    """`memory` is the file; `url` is where the VM's programs find vgpud."""

    running: Running
    memory: Path
    url: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a program needs besides the guest library."""
        return {"VGPU_ENDPOINT": self.url, "VGPU_SHARED_MEMORY": str(self.memory)}


@contextmanager
def region_host(mib: int = 64, sessions: int = 2) -> Iterator[RegionHost]:
    """A vgpud with one VM, `mib` MiB of shared memory for `sessions` sessions, simulated devices, real workers."""
    shm = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="vgt-region-", dir=shm) as name:
        directory = Path(name)
        config = directory / "vgpud.toml"
        config.write_text(
            f"listen = ['unix:{directory}/vgpud.sock']\nadmin = '{directory}/admin.sock'\ncache_dir = '{directory}'\n"
            f"[[vm]]\nname = 'one'\ncid = 3\nhybrid = '{directory}/v'\n"
            f"ivshmem = '{directory}/memory'\nivshmem_mib = {mib}\nivshmem_sessions = {sessions}\n"
        )
        running = Running.start(config, directory, "log")
        running.wait_ready()
        try:
            yield RegionHost(running, directory / "memory", f"unix:{directory}/v_7070")
        finally:
            running.end()


class GuestSession:
    """An attached session with its range of the memory, without the guest library; a test opens its rings."""

    def __init__(self, host: RegionHost) -> None:
        client = Client(parse_endpoint(host.url), timeout_s=PATIENCE_S, region=True)
        self.welcome = client.hello()
        attached = client.attach()
        self.number, self.range = attached.worker, attached.region
        self.sock = client.detach()
        fd = os.open(host.memory, os.O_RDWR)
        self.memory = mmap.mmap(fd, os.fstat(fd).st_size)
        os.close(fd)
        self._sequence = 0

    def __enter__(self) -> GuestSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()
        self.memory.close()

    def send(self, name: str, body: bytes, *, wait: bool, context: int = 0) -> None:
        self._sequence += 1
        header = struct.pack("<IHHII", 16 + len(body), OPCODES[name], int(wait), self._sequence, context)
        self.sock.sendall(header + body)

    def ask(self, name: str, body: bytes) -> int:
        """Send a waiting record; return its result."""
        self.send(name, body, wait=True)
        answer = self.sock.recv(16, socket.MSG_WAITALL)
        _, _, _, sequence, result = struct.unpack("<IHHIi", answer)
        assert sequence == self._sequence
        return int(result)

    def open_ring(self, offset: int = 0, number: int = 0) -> RegionRing:
        assert self.ask("vgpuRingOpenAt", struct.pack("<QII", offset, number, 0)) == 0
        return RegionRing(self, offset, number)

    def ended(self) -> bool:
        self.sock.settimeout(PATIENCE_S)
        return self.sock.recv(1) == b""


class RegionRing(RingMemory):
    """A ring without a futex, at an offset of the session's range: a record wakes the worker."""

    def __init__(self, session: GuestSession, offset: int, number: int) -> None:
        assert session.range is not None
        begin = session.range[0] + offset
        self._session, self._number = session, number
        self.memory = memoryview(session.memory)[begin : begin + NBYTES]  # type: ignore[assignment]
        self.tail = 0

    def close(self) -> None:
        self.memory.release()  # type: ignore[attr-defined]

    def publish(self, tail: int) -> None:
        super().publish(tail)
        with suppress(ConnectionError):  # the worker may have ended the session because of earlier records
            self._session.send("vgpuRingWake", struct.pack("<II", self._number, 0), wait=False)
