"""Sockets of endpoints. The grammar's tests are in tests/shim/test_endpoint.py."""

from __future__ import annotations

import socket

import pytest
from vgpud import endpoint as module
from vgpud.endpoint import (
    VMADDR_CID_ANY,
    EndpointError,
    TcpEndpoint,
    UnixEndpoint,
    VsockEndpoint,
    bound_socket,
    default_endpoint,
    parse_endpoint,
)


def test_only_a_listener_has_port_0_and_any_cid():
    for text, expected in (
        ("tcp://[::1]:0", TcpEndpoint("::1", 0)),
        ("vsock://any:4294967294", VsockEndpoint(VMADDR_CID_ANY, 4294967294)),
    ):
        assert parse_endpoint(text, listening=True) == expected
        with pytest.raises(EndpointError):
            parse_endpoint(text)


def test_defaults(monkeypatch):
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/vgpu:/run/other")
    assert default_endpoint() == UnixEndpoint("/run/vgpu/vgpud.sock")
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert default_endpoint() == UnixEndpoint("/run/user/1000/vgpu/vgpud.sock")


def test_a_kernel_without_vsock_is_a_clear_error(monkeypatch):
    def refuse(*_arguments):
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(EndpointError, match="this kernel has no vsock"):
        bound_socket(VsockEndpoint(2, 1))
