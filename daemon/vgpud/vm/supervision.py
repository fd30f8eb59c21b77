"""vgpud's side of the VMs' vsock devices: finds each device process or starts it, and takes the streams it sends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from vgpud.supervision.child_environment import child_environment
from vgpud.tenancy.peer import Peer

from ..log import RateLimit, get_logger
from ..proto.packet import receive_packet
from ..proto.packing import pack_map, unpack_map
from .control import PACKET_NBYTES, VERSION, control_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..config_tables import VmConfig

_BACKOFF_FIRST_S, _BACKOFF_LAST_S = 0.25, 30.0
_START_TIMEOUT_S = 10.0
_LINES_S = 5.0
_LEVELS = {"info", "warning", "error"}


class VmDevice:
    """One VM's device process. `admit(sock, peer)` gets each new stream. All methods run on the event loop."""

    def __init__(self, vm: VmConfig, admit: Callable[[socket.socket, Peer], None]) -> None:
        assert vm.vsock is not None
        self.vm = vm
        self.connected = False  # a VMM uses the device
        self._path = vm.vsock
        self._admit = admit
        self._peer = Peer("vsock", cid=vm.cid, vm=vm.name)
        self._log = get_logger().bind(vm=vm.name, cid=vm.cid)
        self._lines = RateLimit(_LINES_S)
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd: int | None = None
        self._control: socket.socket | None = None
        self._failures_in_row = 0
        self._retry: asyncio.TimerHandle | None = None
        self._stopping = False
        self._there = asyncio.Event()

    def start(self) -> None:
        """Adopt the running device, or start one."""
        self._retry = None
        if not self._adopt():
            self._spawn()

    async def wait_there(self) -> None:
        """Waits until a VM can connect; a device that does not start soon is logged and not waited for."""
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._there.wait()
        except TimeoutError:
            self._log.warning("vm device is not there yet")

    def stop(self) -> None:
        """Hang up. The device process stays for the next vgpud while a VM uses it; else it ends."""
        self._stopping = True
        if self._retry is not None:
            self._retry.cancel()
        self._hang_up()
        self._forget_process()

    def summary(self) -> dict[str, Any]:
        """What `vgpu status` shows."""
        pid = None if self._process is None else self._process.pid
        return {"name": self.vm.name, "cid": self.vm.cid, "socket": self._path, "connected": self.connected, "pid": pid}

    def _adopt(self) -> bool:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)  # a socket that hangs without accepting is not waited for
        try:
            sock.connect(str(control_path(self._path)))  # a local socket connects at once or fails
            _pid, uid, _gid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        except OSError:
            sock.close()
            return False
        if uid not in (0, os.geteuid()):
            self._log.error("a stranger's process is where the VM's device should be", uid=uid)
            sock.close()
            return False
        self._watch(sock)
        self._log.info("vm device found again")
        return True

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "vgpud.vm.device", "--name", self.vm.name, "--cid", str(self.vm.cid)]
        command += ["--port", str(self.vm.port), "--socket", self._path, "--control-fd", str(theirs.fileno())]
        command += ["--group", self.vm.group] if self.vm.group is not None else []
        with theirs:
            try:
                self._process = subprocess.Popen(
                    command,
                    env=child_environment(),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                self._failed(str(error))
                return
        self._pidfd = os.pidfd_open(self._process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)
        self._watch(ours)

    def _watch(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._control = sock
        asyncio.get_running_loop().add_reader(sock.fileno(), self._read)

    def _hang_up(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        self.connected = False

    def _forget_process(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
        if self._process is not None:
            self._process.poll()
        self._process = self._pidfd = None

    def _reap(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            return
        code = self._process.returncode
        self._forget_process()
        self._hang_up()
        self._failed(f"exit {code}" if code >= 0 else f"signal {-code}")

    def _failed(self, why: str) -> None:
        if self._stopping or self._retry is not None:
            return
        self._log.warning("vm device ended", why=why)
        delay_s = min(_BACKOFF_LAST_S, _BACKOFF_FIRST_S * 2 ** min(self._failures_in_row, 10))
        self._failures_in_row += 1
        self._retry = asyncio.get_running_loop().call_later(delay_s, self.start)

    def _read(self) -> None:
        """Handle one message: the device parses untrusted bytes, and a compromised one must not block the loop."""
        assert self._control is not None
        received = receive_packet(self._control, PACKET_NBYTES)
        if received is None:
            return
        packet, fds = received
        if not packet:
            self._hang_up()
            if self._process is None:  # an adopted device; a child's end is reported by its pidfd
                self._failed("it hung up")
            return
        try:
            self._take(unpack_map(packet), fds)
        except ValueError:
            self._say("warning", "vm device sent something unreadable")
        finally:
            for fd in fds:
                os.close(fd)

    def _say(self, level: str, event: str, **fields: object) -> None:
        """Log a message about the device, or from it, at a bounded rate."""
        if self._lines.allows():
            getattr(self._log, level)(event, **fields)

    def _take(self, message: dict[str, Any], fds: list[int]) -> None:
        """Handle one message. Descriptors that are kept are removed from `fds`."""
        match message.get("type"):
            case "hello":
                self._failures_in_row = 0
                self._there.set()
                said = (message.get("version"), message.get("name"), message.get("cid"), message.get("port"))
                if said != (VERSION, self.vm.name, self.vm.cid, self.vm.port):
                    self._say("warning", "the VM's device is of another configuration and is replaced", found=said)
                    self._send_exit()
            case "stream" if len(fds) == 1:
                sock = socket.socket(fileno=fds.pop())
                sock.setblocking(False)
                self._admit(sock, self._peer)
            case "vm":
                connected = message.get("connected") is True
                if connected != self.connected:
                    self._say("info", "vm connected" if connected else "vm disconnected")
                self.connected = connected
            case "log":
                level, event = str(message.get("level")), str(message.get("event"))[:100]
                event = event if event.isprintable() else ascii(event)
                self._say(level if level in _LEVELS else "info", f"vm {event}", reason=str(message.get("reason"))[:500])

    def _send_exit(self) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(pack_map({"type": "exit"}))
