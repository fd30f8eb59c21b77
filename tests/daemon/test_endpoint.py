"""Endpoint URLs."""

from __future__ import annotations

import socket

import pytest
from vgpud import endpoint as module
from vgpud.endpoint import (
    VMADDR_CID_ANY,
    EndpointError,
    HybridVsockEndpoint,
    TcpEndpoint,
    UnixEndpoint,
    VsockEndpoint,
    create_socket,
    default_endpoint,
    parse_endpoint,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unix:/run/vgpu/vgpud.sock", UnixEndpoint("/run/vgpu/vgpud.sock")),
        ("unix:///a/b c", UnixEndpoint("/a/b c")),
        ("tcp://127.0.0.1:7070", TcpEndpoint("127.0.0.1", 7070)),
        ("tcp://[::1]:0", TcpEndpoint("::1", 0)),
        ("tcp://gpu.example:65535", TcpEndpoint("gpu.example", 65535)),
        ("vsock://2:7070", VsockEndpoint(2, 7070)),
        ("hybrid-vsock:/run/fc/v.sock:7070", HybridVsockEndpoint("/run/fc/v.sock", 7070)),
        ("hybrid-vsock:/a:b:1", HybridVsockEndpoint("/a:b", 1)),
        ("vsock://any:4294967294", VsockEndpoint(VMADDR_CID_ANY, 4294967294)),
    ],
)
def test_good(text, expected):
    assert parse_endpoint(text) == expected
    assert parse_endpoint(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "unix:", "unix:relative", "unix:/a\0b", "unix:/" + "x" * 107, "/run/x", "tcp:", "tcp://", "tcp://h",
        "tcp://:1", "tcp://h:", "tcp://h:65536", "tcp://h:-1", "tcp://h:1/x", "tcp://::1:1", "tcp://u@h:1", "tcp://h:\u0661",
        "vsock://2", "vsock://x:1", "vsock://-1:1", "vsock://4294967295:1", "vsock://2:4294967295", "http://h:1",
        "hybrid-vsock:", "hybrid-vsock:/a", "hybrid-vsock:/a:", "hybrid-vsock:a:1", "hybrid-vsock:/a:4294967295",
        "hybrid-vsock:/" + "x" * 105 + ":1", "vsock://99999999999:1", "tcp://h:99999999999999999999",
    ],
)  # fmt: skip
def test_bad(text):
    with pytest.raises(EndpointError) as error:
        parse_endpoint(text)
    assert repr(text) in str(error.value)


def test_the_longest_path_is_accepted():
    assert len(parse_endpoint("unix:/" + "x" * 106).path) == 107


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
        create_socket(VsockEndpoint(2, 1))
