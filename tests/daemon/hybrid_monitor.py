"""A replacement for a VM monitor's hybrid vsock: a CONNECT request of the host is relayed to a unix socket."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S


@contextmanager
def hybrid_monitor(path: Path, ports: dict[int, Path], answer: bytes = b"OK 1073741824\n") -> Iterator[None]:
    """Listen on `path`; relay a CONNECT to one of `ports` to the guest's socket; close connections to other ports."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    open_sockets = [listener]

    def relay(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve(client: socket.socket) -> None:
        line = b""
        while not line.endswith(b"\n"):
            line += client.recv(1)
        target = ports.get(int(line.removeprefix(b"CONNECT ")))
        if target is None:
            client.close()
            return
        guest = socket.socket(socket.AF_UNIX)
        open_sockets.append(guest)
        guest.connect(str(target))
        client.sendall(answer)
        threading.Thread(target=relay, args=(guest, client), daemon=True).start()
        relay(client, guest)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                open_sockets.append(client)
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)
        for sock in open_sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
