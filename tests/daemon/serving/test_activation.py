"""Sockets from systemd: vgpud serves them like its own, and leaves them when it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from vgpud.cli.client import Client
from vgpud.endpoint import parse_endpoint
from vgpud.serving.activation import matching, take_sockets

from tests.daemon.running import ENVIRONMENT
from tests.patience import PATIENCE_S


def test_no_other_process_takes_them() -> None:
    environment = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x", "KEPT": "1"}
    assert take_sockets(environment) == []
    assert environment == {"KEPT": "1"}


def test_a_socket_is_known_by_its_address(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one, socket.socket() as two:
        one.bind(str(tmp_path / "one.sock"))
        two.bind(("127.0.0.1", 0))
        sockets = [one, two]
        assert matching(sockets, parse_endpoint(f"unix:{tmp_path}/other.sock")) is None
        assert matching(sockets, parse_endpoint(f"unix:{tmp_path}/one.sock")) is one
        assert matching(sockets, parse_endpoint(f"tcp://127.0.0.1:{two.getsockname()[1]}")) is two
        assert sockets == []


def test_GP6_a_client_that_connected_before_is_served(tmp_path: Path) -> None:
    """As with vgpud.socket: the client waits in the backlog until vgpud runs, and the socket's file outlives vgpud."""
    path = tmp_path / "vgpud.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(8)
        client = Client(parse_endpoint(f"unix:{path}"), timeout_s=60)
        script = (
            f"import os, sys; os.dup2({listening.fileno()}, 3); "
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); "
            "os.execv(sys.executable, [sys.executable, '-m', 'vgpud', *sys.argv[1:]])"
        )
        options = ["--listen", f"unix:{path}", "--gpus", "t4", "--admin", ""]
        process = subprocess.Popen(
            [sys.executable, "-c", script, *options], env=ENVIRONMENT, pass_fds=(listening.fileno(),)
        )
        try:
            with client:
                assert client.hello().inventory["devices"]
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
        assert path.exists()
