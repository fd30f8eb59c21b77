"""`python -m vgpud.vm.device`: the virtio-vsock device of one VM, a process of its own.

It lives as long as its VM or its vgpud: QEMU does not set up a vhost-user-vsock device again before the guest's next
reset, so a restart of vgpud must find it as it was. Meanwhile new streams are refused. A VM that breaks the rules is
disconnected; the process then waits for the next connection.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

from vgpud.serving.listener import ListenError, open_listener
from vgpud.serving.notify import Notifier

from ..endpoint import UnixEndpoint
from ..proto.packing import pack_map, unpack_map
from ..worker.confine import confine
from .control import PACKET_NBYTES, VERSION, control_path
from .mux import Mux
from .stream import Stream
from .vhost_user import Front
from .violation import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

_STREAM_EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_MODE = 0o660
_EVENTS_A_ROUND = 64


class Device:
    """The event loop: VMM, rings, streams and vgpud on one epoll."""

    def __init__(self, name: str, cid: int, port: int, vsock: str, group: str | None, control_fd: int | None) -> None:
        self._name, self._cid, self._port = name, cid, port
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._own_unit = control_fd is None  # started by hand or by systemd: runs on without a VM and a vgpud
        self._listener = open_listener(UnixEndpoint(vsock), mode=_MODE, group=group)
        self._control_path = control_path(vsock)
        self._control_listener = self._listen_control()
        self._control: socket.socket | None = None
        self._front: Front | None = None
        self._mux = self._new_mux()
        self._ending = False
        self._add(self._listener.sock.fileno(), select.EPOLLIN, self._accept_vmm)
        self._add(self._control_listener.fileno(), select.EPOLLIN, self._accept_control)
        if control_fd is not None:
            self._take_control(socket.socket(fileno=control_fd))

    def run(self) -> None:
        """Serves until no VM and no vgpud is left."""
        more = False
        while not self._ending and (self._own_unit or self._control is not None or self._front is not None):
            for fd, events in self._epoll.poll(0 if more else None, _EVENTS_A_ROUND):
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(events)
            more = self._guarded(self._mux.round)

    def close(self) -> None:
        """Leave no socket file behind."""
        self._lose_vmm()
        self._listener.close()
        self._control_path.unlink(missing_ok=True)

    # The VMM

    def _accept_vmm(self, _events: int) -> None:
        try:
            sock, _ = self._listener.sock.accept()
        except OSError:
            return
        if self._front is not None:
            self._log("warning", "a second VMM was turned away")
            sock.close()
            return
        sock.setblocking(False)
        self._front = Front(sock, self._mux, self._watch_kick)
        self._add(sock.fileno(), select.EPOLLIN, self._vmm_ready)
        self._say("vm", connected=True)

    def _vmm_ready(self, _events: int) -> None:
        front = self._front
        if front is not None and self._guarded(front.read) is False and self._front is front:
            self._lose_vmm()

    def _guarded(self, step: Callable[[], bool]) -> bool:
        """Call `step()`; a Violation in it disconnects the VM."""
        try:
            return step()
        except Violation as violation:
            self._log("error", "device ended", reason=str(violation))
        except (OSError, MemoryError) as error:
            self._log("error", "device ended", reason=f"{type(error).__name__}: {error}")
        self._lose_vmm()
        return False

    def _lose_vmm(self) -> None:
        if self._front is None:
            return
        front, self._front = self._front, None
        self._remove(front.sock.fileno())
        self._mux.drop_streams()
        front.close()
        self._mux = self._new_mux()
        self._say("vm", connected=False)

    def _new_mux(self) -> Mux:
        return Mux(self._cid, self._connect, self._watch_stream)

    def _watch_kick(self, index: int, old: int | None, new: int | None) -> None:
        if old is not None:
            self._remove(old)
        if new is not None:
            ring = self._mux.rings[index]
            self._add(new, select.EPOLLIN, lambda _events: ring.drain_kick())

    # Streams

    def _connect(self, port: int) -> socket.socket | None:
        if port != self._port or self._control is None:
            return None
        try:
            ours, theirs = socket.socketpair()
        except OSError:  # no descriptors left, which any user of the guest can cause
            return None
        ours.setblocking(False)
        with theirs:
            try:
                socket.send_fds(self._control, [pack_map({"type": "stream"})], [theirs.fileno()])
            except OSError:  # vgpud is gone, or too busy to take it
                ours.close()
                return None
        return ours

    def _watch_stream(self, stream: Stream) -> None:
        mux, fd = self._mux, stream.sock.fileno()

        def ready(events: int) -> None:
            readable = bool(events & (select.EPOLLIN | select.EPOLLRDHUP))
            hung_up = bool(events & (select.EPOLLHUP | select.EPOLLERR))
            mux.stream_ready(stream, readable=readable, writable=bool(events & select.EPOLLOUT), hung_up=hung_up)

        # A closed descriptor leaves the epoll by itself; its number's next user replaces the handler.
        self._handlers[fd] = ready
        self._epoll.register(fd, _STREAM_EVENTS)

    # vgpud

    def _listen_control(self) -> socket.socket:
        """This process holds the lock on the vhost-user socket, so a socket at the path is left over from a
        predecessor."""
        self._control_path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mask = os.umask(0o177)
        try:
            sock.bind(str(self._control_path))
        finally:
            os.umask(mask)
        sock.listen(1)
        sock.setblocking(False)
        return sock

    def _accept_control(self, _events: int) -> None:
        try:
            sock, _ = self._control_listener.accept()
            credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return
        _pid, uid, _gid = struct.unpack("3i", credentials)
        if self._control is not None or uid not in (0, os.geteuid()):
            sock.close()
            return
        self._take_control(sock)

    def _take_control(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._control = sock
        self._add(sock.fileno(), select.EPOLLIN, self._control_ready)
        self._say("hello", version=VERSION, name=self._name, cid=self._cid, port=self._port)
        self._say("vm", connected=self._front is not None)

    def _control_ready(self, _events: int) -> None:
        assert self._control is not None
        try:
            packet = self._control.recv(PACKET_NBYTES)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._remove(self._control.fileno())
            self._control.close()
            self._control = None
            return
        with contextlib.suppress(ValueError):
            if unpack_map(packet).get("type") == "exit":
                self._ending = True

    def _say(self, kind: str, **fields: Any) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):  # vgpud hung up, which is noticed elsewhere, or a line is lost
                self._control.send(pack_map({"type": kind} | fields))

    def _log(self, level: str, event: str, **fields: str) -> None:
        if self._control is not None:
            self._say("log", level=level, event=event, **fields)
        else:
            print(f"vm {self._name}: {event}: {fields}", file=sys.stderr, flush=True)

    # epoll

    def _add(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def _remove(self, fd: int) -> None:
        self._handlers.pop(fd, None)
        with contextlib.suppress(OSError):
            self._epoll.unregister(fd)


def serve(name: str, cid: int, port: int, vsock: str, group: str | None, control_fd: int | None = None) -> None:
    """Serve as one VM's device. Without `control_fd`, a socket to vgpud, it runs until SIGTERM. Raises ListenError or
    OSError.
    """
    device = Device(name, cid, port, vsock, group, control_fd)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    Notifier().ready(f"vsock device of {name}, CID {cid}")  # its sockets exist; once confined, it could not report this
    confine(allow=frozenset({"accept4"}))
    try:
        device.run()
    finally:
        device.close()


def main() -> int:
    """The process, as vgpud starts it."""
    parser = argparse.ArgumentParser(prog="vgpud.vm.device")
    parser.add_argument("--name", required=True)
    parser.add_argument("--cid", type=int, required=True)
    parser.add_argument("--port", type=int, default=7070)
    parser.add_argument("--socket", required=True, help="the vhost-user socket, an absolute path")
    parser.add_argument("--group")
    parser.add_argument("--control-fd", type=int, required=True)
    given = parser.parse_args()
    try:
        serve(given.name, given.cid, given.port, given.socket, given.group, given.control_fd)
    except (ListenError, OSError) as error:
        print(f"vm {given.name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
