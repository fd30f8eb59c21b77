"""`python -m vgpud.worker.loader`: loads everything that a worker needs, and forks a launcher for each order.

It enters no namespace, meets no client and has no second thread, so that a launcher that has died is replaced in the
time of a fork (launcher.py).

Messages are msgpack maps, one per SOCK_SEQPACKET packet. From vgpud: {type: "launch"}, with the new launcher's end of
its control socket. To vgpud: {type: "loaded"}, once.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import socket
import sys
import traceback
from typing import Any

from ..proto.packing import pack_map
from .entry import load, make_parser, prepare
from .launcher import PACKET_NBYTES, launch, set_name
from .user_ids import parse_ids


class Loader:
    """Forks a launcher for each order, until vgpud closes its end."""

    def __init__(self, control: socket.socket, arguments: argparse.Namespace, executor: Any) -> None:
        self._control, self._arguments, self._executor = control, arguments, executor

    def serve(self) -> None:
        """Serves until vgpud is gone; launchers notice that on their own."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps launchers
        while True:
            packet, fds, _flags, _address = socket.recv_fds(self._control, PACKET_NBYTES, 1)
            if not packet:
                return
            control = socket.socket(fileno=fds[0])
            try:
                if os.fork() == 0:
                    self._become_launcher(control)
            except OSError as error:  # vgpud learns of it as the launcher's end of the socket closes
                os.write(2, f"<4>the launcher of workers could not be forked: {error.strerror}\n".encode())
            control.close()

    def _become_launcher(self, control: socket.socket) -> None:
        """In the child: never returns."""
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            launch(control, self._arguments, self._executor)
        except SystemExit as error:
            if isinstance(error.code, str):
                os.write(2, error.code.encode())
            os._exit(1 if error.code else 0)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            os._exit(1)
        os._exit(0)


def main() -> None:
    """The loader's life."""
    parser = make_parser("vgpud.worker.loader")
    parser.add_argument("--gpus", default="", help="the devices that its workers will simulate")
    parser.add_argument("--shared-namespaces", action="store_true", help="make no namespaces")
    parser.add_argument("--user-ids", type=parse_ids, help="FIRST-LAST: those that vgpud will order")
    parser.add_argument("--user-namespace-fd", type=int, default=-1, help="where they are mapped")
    parser.add_argument("--no-user-ids", metavar="WHY", help="why workers have no user ids of their own")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    control = socket.socket(fileno=arguments.control_fd)
    set_name(b"vgpu-loader")
    gc.disable()  # nothing that is loaded is garbage
    executor = load(arguments.backend)
    prepare(arguments.backend, arguments.gpus, arguments.libcuda)
    gc.enable()
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        # A lock that another thread holds while this one forks would stay locked in the child.
        sys.exit(f"the loader has {threads} threads instead of one")
    gc.collect()
    gc.freeze()  # a collection in a child would write to, and so copy, every page of objects
    try:
        control.send(pack_map({"type": "loaded"}))
    except OSError:
        return
    Loader(control, arguments, executor).serve()


if __name__ == "__main__":
    main()
