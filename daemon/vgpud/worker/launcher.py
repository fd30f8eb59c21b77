"""Forks a worker for each order of vgpud. The loader (loader.py) forks the launcher.

A fork takes milliseconds and shares the loaded code and data; a worker that is started from a command takes a quarter
of a second of a processor, and 20 MB. A launcher meets no client, starts no driver and has no second thread: what it
forks is as fresh as a process just started. It enters the namespaces of cell.py, so vgpud itself needs no privilege for
cells.

Messages are msgpack maps, one per SOCK_SEQPACKET packet.

From vgpud: {type: "spawn", id: int, warm: bool, environment: {str: str}, uid: int?}, with two descriptors: the worker's
end of its control socket, and its standard error. `uid` is the worker's user id, where workers have ids of their own.
To vgpud, first: {type: "launched"}, with the launcher's pidfd, then {type: "hello", missing: [str], own_ids: bool}:
what this kernel refuses of a cell, and whether workers have user ids of their own. Then for each order
{type: "started", id}, with a pidfd, or {type: "failed", id, why}; later {type: "exited", id, code}, where a
negative code is a signal.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import selectors
import socket
import sys
import traceback
from typing import Any

from ..proto.packing import pack_map, unpack_map
from . import template
from .cell import Cells
from .entry import run

PACKET_NBYTES = 64 * 1024
_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None)


def set_name(name: bytes) -> None:
    """Name this process, as tools list it."""
    _LIBC.prctl(_PR_SET_NAME, name, 0, 0, 0)


class Launcher:
    """Serves orders until vgpud closes its end."""

    def __init__(
        self, control: socket.socket, backend: str, libcuda: str, cells: Cells, *, own_ids: bool = False
    ) -> None:
        """`own_ids`: workers get the user ids that vgpud orders; else they keep the launcher's."""
        self._control, self._backend, self._libcuda, self._cells = control, backend, libcuda, cells
        self._own_ids = own_ids
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serves until vgpud is gone; the workers notice that on their own."""
        while True:
            for key, _events in self._selector.select():
                if key.fileobj is not self._control:
                    self._reap(key.fd, *key.data)
                elif not self._take_order():
                    return

    def _take_order(self) -> bool:
        packet, fds, _flags, _address = socket.recv_fds(self._control, PACKET_NBYTES, 2)
        if not packet:
            return False
        order = unpack_map(packet)
        try:
            if len(fds) != 2:
                raise OSError(f"the order came with {len(fds)} descriptors instead of 2")
            self._spawn(order, *fds)
        except OSError as error:
            self._send({"type": "failed", "id": order["id"], "why": error.strerror or str(error)})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _spawn(self, order: dict[str, Any], control_fd: int, stderr_fd: int) -> None:
        uid: int | None = order["uid"] if self._own_ids else None
        self._cells.begin_fork()
        try:
            pid = os.fork()
            if pid == 0:
                self._become_worker(order, uid, control_fd, stderr_fd)
        finally:
            self._cells.end_fork()
        pidfd = os.pidfd_open(pid)
        self._selector.register(pidfd, selectors.EVENT_READ, (order["id"], pid))
        self._send({"type": "started", "id": order["id"]}, [pidfd])

    def _become_worker(self, order: dict[str, Any], uid: int | None, control_fd: int, stderr_fd: int) -> None:
        """In the child: never returns."""
        try:
            os.setpgid(0, 0)  # vgpud handles the signals of a terminal
            os.dup2(stderr_fd, 2)
            os.close(stderr_fd)
            for fd in [key.fd for key in self._selector.get_map().values()]:
                os.close(fd)
            self._selector.close()
            self._cells.enter(uid)
            set_name(b"vgpu-worker")
            os.environ.update(order["environment"])
            run(control_fd, backend_name=self._backend, libcuda=self._libcuda, warm=order["warm"])
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            os._exit(1)
        os._exit(0)

    def _reap(self, pidfd: int, number: int, pid: int) -> None:
        _pid, status = os.waitpid(pid, 0)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        self._send({"type": "exited", "id": number, "code": os.waitstatus_to_exitcode(status)})

    def _send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        try:
            socket.send_fds(self._control, [pack_map(message)], fds or [])
        except OSError:
            sys.exit(0)  # vgpud is gone


def launch(control: socket.socket, arguments: argparse.Namespace, executor: Any) -> None:
    """A launcher's life."""
    own = os.pidfd_open(os.getpid())  # before a pid namespace changes the number
    try:
        socket.send_fds(control, [pack_map({"type": "launched"})], [own])
    except OSError:
        return  # vgpud is gone
    os.close(own)
    set_name(b"vgpu-launcher")
    cells = Cells(together=arguments.backend == "cuda")
    if not arguments.shared_namespaces:
        cells.enter_shared(arguments.user_namespace_fd)
    own_ids = arguments.user_ids is not None and cells.can_have_ids(arguments.user_ids)
    if arguments.no_user_ids is not None:
        cells.missing.append(f"{cells.ids_name} ({arguments.no_user_ids})")
    # A worker with NVIDIA's driver cannot go back to shared pages: the driver's threads write to its own at any time.
    if arguments.backend == "simulator":
        template.make(executor)
    try:
        control.send(pack_map({"type": "hello", "missing": cells.missing, "own_ids": own_ids}))
    except OSError:
        return
    Launcher(control, arguments.backend, arguments.libcuda, cells, own_ids=own_ids).serve()
