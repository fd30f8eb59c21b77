"""A service manager's part that vgpud uses, in a test's process: it keeps descriptors as systemd does (FDSTORE=1), and
passes them to the vgpud that it starts next."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.daemon.running import ENVIRONMENT, Running

_KCMP = {"x86_64": 312, "aarch64": 272}[platform.machine()]
_NBYTES, _FDS = 4096, 4
# Descriptors 3 and up, and the variables that say whose they are.
_START = """
import fcntl, os, sys
fds = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 1000) for fd in os.environ.pop("GIVEN").split()]
for i, fd in enumerate(fds):
    os.dup2(fd, 3 + i)
os.closerange(3 + len(fds), 2000)
os.environ.update(LISTEN_PID=str(os.getpid()), SYSTEMD_EXEC_PID=str(os.getpid()), LISTEN_FDS=str(len(fds)))
os.execv(sys.executable, [sys.executable, "-m", "vgpud", *sys.argv[1:]])
"""


def is_same(one: int, two: int) -> bool:
    """Whether two descriptors are of one open file (kcmp(2)), as systemd asks before it keeps one."""
    return ctypes.CDLL(None).syscall(_KCMP, os.getpid(), os.getpid(), 0, one, two) == 0


class Manager:
    """Keeps descriptors by name, and starts vgpud."""

    def __init__(self, folder: Path) -> None:
        self.kept: list[tuple[str, int]] = []
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            data, fds, _flags, _address = socket.recv_fds(self._socket, _NBYTES, _FDS)
            if data == b"STOP":
                return
            fields = dict(line.split("=", 1) for line in data.decode().splitlines())
            with self._lock:
                self._take(fields, fds)

    def _take(self, fields: dict[str, str], fds: list[int]) -> None:
        if fields.get("FDSTOREREMOVE") == "1":
            for each in [each for each in self.kept if each[0] == fields["FDNAME"]]:
                self.kept.remove(each)
                os.close(each[1])
        for fd in fds:
            if fields.get("FDSTORE") == "1" and not any(is_same(fd, other) for _name, other in self.kept):
                assert fields["FDPOLL"] == "0"
                self.kept.append((fields["FDNAME"], fd))
            else:
                os.close(fd)

    @property
    def names(self) -> list[str]:
        """The names of all kept descriptors."""
        with self._lock:
            return [name for name, _fd in self.kept]

    @property
    def sessions(self) -> set[int]:
        """The sessions with a worker that the newest document describes."""
        with self._lock:
            states = {int(name.rpartition("-")[2]): fd for name, fd in self.kept if "-state-" in name}
            if not states:
                return set()
            document = json.loads(os.pread(states[max(states)], 1 << 24, 0))["document"]
        return {int(number) for number in document["server"]["served"]["sessions"]}

    def keep(self, name: str, fd: int) -> None:
        """Keep a descriptor as if vgpud had asked for it; takes ownership."""
        with self._lock:
            self.kept.append((name, fd))

    def lose(self, name: str) -> None:
        """Forget the name, as if there had been no room for the descriptor."""
        with self._lock:
            self._take({"FDSTOREREMOVE": "1", "FDNAME": name}, [])

    def document(self) -> dict[str, Any]:
        """The newest document."""
        with self._lock:
            states = {int(name.rpartition("-")[2]): fd for name, fd in self.kept if "-state-" in name}
            found: dict[str, Any] = json.loads(os.pread(states[max(states)], 1 << 24, 0))["document"]
            return found

    def start(self, config: Path, log_name: str) -> Running:
        """Start a vgpud with all kept descriptors, and wait until it is ready."""
        running = self.launch(config, log_name)
        running.wait_ready()
        return running

    def launch(self, config: Path, log_name: str) -> Running:
        """Start a vgpud with all kept descriptors."""
        with self._lock:
            kept = list(self.kept)
        environment = {
            "NOTIFY_SOCKET": str(self._folder / "notify"),
            "FDSTORE": "4096",
            "LISTEN_FDNAMES": ":".join(name for name, _fd in kept),
            "GIVEN": " ".join(str(fd) for _name, fd in kept),
        }
        with (self._folder / log_name).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, "--config", str(config)],
                env=ENVIRONMENT | environment,
                pass_fds=[fd for _name, fd in kept],
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)
        return Running(process, config, self._folder / log_name, self._folder / "admin.sock")

    def release(self) -> None:
        """Close all kept descriptors, as systemd does when it gives the service up."""
        with self._lock:
            for _name, fd in self.kept:
                os.close(fd)
            self.kept.clear()

    def close(self) -> None:
        """Stop receiving messages, and end what a failed test has left."""
        for process in self._started:
            process.kill()
            process.wait()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"STOP", self._socket.getsockname())
        self._thread.join()
        self.release()
        self._socket.close()
