"""The process that has loaded the code of workers (worker/loader.py), and forks launchers."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from typing import TYPE_CHECKING, Any

from vgpud.log import get_logger
from vgpud.proto.packet import receive_packet
from vgpud.proto.packing import pack_map

from .pidfd import kill

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpud.serving.succession import Outgoing

_PACKET_NBYTES = 64 * 1024


class Loader:
    """The process that has loaded the code of workers and forks launchers."""

    def __init__(self, command: list[str], environment: dict[str, str], given: list[int], on_gone: Callable[[], None]):
        """Execute it. `given`: descriptors that it inherits. `on_gone`: called once, when it can be used no longer,
        unless it was ended by end(). Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*command, "--control-fd", str(theirs.fileno())],
                    env=environment,
                    pass_fds=(theirs.fileno(), *given),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    process_group=0,
                )
            try:
                self._pidfd = os.pidfd_open(self._process.pid)  # not reaped yet, so the number is its own
            except OSError:
                self._process.kill()
                self._process.wait()
                raise
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        self.has_loaded = False
        self._control: socket.socket | None = ours
        self._on_gone = on_gone
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    def launch(self, control_fd: int) -> None:
        """Order a launcher; the descriptor stays the caller's. Raises OSError."""
        if self._control is None:
            raise ConnectionResetError
        socket.send_fds(self._control, [pack_map({"type": "launch"})], [control_fd])

    def dump(self, outgoing: Outgoing) -> dict[str, Any] | None:
        """As a launcher without processes, which the next vgpud ends and reaps."""
        if self._control is None:
            return None
        control, pidfd = outgoing.add(self._control.fileno()), outgoing.add(self._pidfd)
        return {"pid": self._process.pid, "pidfd": pidfd, "control": control, "processes": {}, "uids": {}}

    def end(self) -> None:
        """Kill the process. Those that it has forked go on."""
        if self._control is None:
            return
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        self._control = None
        kill(self._pidfd, self._process)

    def _read(self) -> None:
        assert self._control is not None
        received = receive_packet(self._control, _PACKET_NBYTES)
        if received is None:
            return
        if received[0]:
            self.has_loaded = True
            return
        get_logger().warning("the loader of workers' code ended", loader=self._process.pid)
        self.end()
        self._on_gone()
