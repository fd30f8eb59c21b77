"""Listening sockets: their mode, and paths where a stale socket, a server or a file is in the way."""

from __future__ import annotations

import os
import socket
import stat

import pytest
from vgpud.endpoint import TcpEndpoint, UnixEndpoint
from vgpud.serving.listener import AlreadyRunningError, ListenError, open_listener


def endpoint_in(directory) -> UnixEndpoint:
    return UnixEndpoint(str(directory / "sub" / "v.sock"))


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_mode_and_removal(tmp_path, mode):
    endpoint = endpoint_in(tmp_path)
    listener = open_listener(endpoint, mode=mode)
    assert stat.S_IMODE(os.stat(endpoint.path).st_mode) == mode
    listener.close()
    assert not os.path.exists(endpoint.path)
    open_listener(endpoint).close()


def test_a_stale_socket_is_replaced(tmp_path):
    endpoint = UnixEndpoint(str(tmp_path / "v.sock"))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(endpoint.path)
    assert os.path.exists(endpoint.path)
    listener = open_listener(endpoint)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(endpoint.path)
    listener.close()


def test_a_second_instance_is_refused(tmp_path):
    endpoint = UnixEndpoint(str(tmp_path / "v.sock"))
    listener = open_listener(endpoint)
    with pytest.raises(AlreadyRunningError, match="another vgpud is serving unix:"):
        open_listener(endpoint)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(endpoint.path)  # the first still listens
    listener.close()


def test_another_programs_socket_is_left_alone(tmp_path):
    endpoint = UnixEndpoint(str(tmp_path / "v.sock"))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(endpoint.path)
        other.listen()
        with pytest.raises(AlreadyRunningError, match="another server answers"):
            open_listener(endpoint)
    assert os.path.exists(endpoint.path)


def test_something_else_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "v.sock").write_text("precious")
    with pytest.raises(ListenError, match="not a socket"):
        open_listener(UnixEndpoint(str(tmp_path / "v.sock")))
    assert (tmp_path / "v.sock").read_text() == "precious"


def test_an_unknown_group(tmp_path):
    with pytest.raises(ListenError, match="there is no group 'no-such-group'"):
        open_listener(UnixEndpoint(str(tmp_path / "v.sock")), group="no-such-group")


def test_a_taken_port():
    first = open_listener(TcpEndpoint("127.0.0.1", 0))
    assert isinstance(first.endpoint, TcpEndpoint)
    assert first.endpoint.port != 0
    with pytest.raises(ListenError, match="Address already in use"):
        open_listener(first.endpoint)
    first.close()
