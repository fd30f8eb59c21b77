"""The admin socket's answers to valid, malformed, oversized and truncated requests."""

from __future__ import annotations

import json
import socket

import pytest

from tests.daemon.running import Running
from tests.patience import PATIENCE_S


def say(running: Running, data: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(str(running.admin_path))
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = bytearray()
        while part := sock.recv(65536):
            answer += part
    return bytes(answer)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"HEAD /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /v1/none HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /v2/status HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"PUT /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /v1/status HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /" + b"x" * 20000, 431),
        (b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n[]\n", 400),
        (b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{]", 400),
        (b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70000, 413),
        (b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    ],
)
def test_every_request_has_its_answer(shared, data, status):
    head, _, body = say(shared, data).partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode()
    if not data.startswith(b"HEAD"):
        document = json.loads(body)
        assert ("error" in document) == (status != 200)
    else:
        assert body == b""
    assert shared.status()["backend"] == "simulator"


def test_half_a_request_is_no_request(shared):
    say(shared, b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
    assert shared.admin.get("tokens") == {"tokens": []}


def test_requests_one_after_the_other(shared):
    request = b"GET /v1/shares HTTP/1.1\r\nHost: x\r\n\r\n"
    assert say(shared, 3 * request).count(b"HTTP/1.1 200") == 3
