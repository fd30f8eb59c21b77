"""Identification of the peer of a socket."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys

from vgpud.tenancy.peer import Peer, identify, open_peer_pidfd

from tests.daemon.running import ENVIRONMENT
from tests.patience import PATIENCE_S


def test_a_unix_peer_is_the_kernels_word():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = identify(ours, "")
    assert peer == Peer("unix", uid=os.getuid(), pid=os.getpid())
    assert peer.key == f"uid:{os.getuid()}"
    assert peer.fields() == {"kind": "unix", "uid": os.getuid(), "pid": os.getpid()}


def test_a_tcp_peer_is_its_address():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        sock, address = server.accept()
        with sock:
            assert identify(sock, address) == Peer("tcp", host="127.0.0.1")
            assert open_peer_pidfd(sock, identify(sock, address)) is None
        assert client.fileno() >= 0


def test_a_vsock_peer_is_its_cid():
    class VsockSocket:
        family = socket.AF_VSOCK

    peer = identify(VsockSocket(), (42, 1024))
    assert peer == Peer("vsock", cid=42)
    assert peer.key == "cid:42"


def test_a_unix_peers_death_is_seen(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        script = f"import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect('{tmp_path}/s'); sys.stdin.read()"
        child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, env=ENVIRONMENT)
        sock, address = server.accept()
        with sock:
            peer = identify(sock, address)
            assert peer.pid == child.pid
            pidfd = open_peer_pidfd(sock, peer)
            assert pidfd is not None
            assert select.select([pidfd], [], [], 0)[0] == []
            child.kill()
            assert select.select([pidfd], [], [], PATIENCE_S)[0] == [pidfd]
            os.close(pidfd)
        child.communicate()
