"""What the doctor says of everything that may answer at an endpoint, or fail to."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import pytest
from vgpu_guest.doctor.judge_endpoint import guess

from tests.guest.doctor.tree import LIB, Told, Tree, doctor
from tests.patience import PATIENCE_S

ENVIRONMENT = {"LD_LIBRARY_PATH": str(LIB)}


def told_of(url: str, **more: str) -> Told:
    return doctor(env=ENVIRONMENT | {"VGPU_ENDPOINT": url} | more)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("/run/v.sock", "unix:/run/v.sock"),
        ("unix://run/v.sock", "unix:/run/v.sock"),
        ("tcp://10.0.0.1", "tcp://10.0.0.1:7070"),
        ("tcp:10.0.0.1:7071", "tcp://10.0.0.1:7071"),
        ("tcp:/10.0.0.1:7071", "tcp://10.0.0.1:7071"),
        ("10.0.0.1:7071", "tcp://10.0.0.1:7071"),
        (" tcp://10.0.0.1:7071 ", "tcp://10.0.0.1:7071"),
        ("http://10.0.0.1:7071", ""),
        ("tcp://10.0.0.1:99999", ""),
    ],
)
def test_GM7_what_was_meant(text: str, meant: str) -> None:
    assert guess(text) == meant


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """host(behaviour) serves one connection at a time on a unix socket; behaviour(sock) sends the answers."""
    listeners: list[socket.socket] = []

    def serve(listener: socket.socket, behaviour: Callable[[socket.socket], None]) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock, contextlib.suppress(OSError):
                    sock.settimeout(PATIENCE_S)
                    behaviour(sock)

    def start(behaviour: Callable[[socket.socket], None]) -> str:
        path = tmp_path / f"s{len(listeners)}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        listeners.append(listener)
        threading.Thread(target=serve, args=(listener, behaviour), daemon=True).start()
        return f"unix:{path}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def frame(**fields: object) -> bytes:
    body = msgpack.packb(fields)
    return struct.pack("<I", len(body)) + body


def answering(data: bytes) -> Callable[[socket.socket], None]:
    def behave(sock: socket.socket) -> None:
        sock.recv(65536)
        sock.sendall(data)

    return behave


def test_over_a_unix_socket_memory_is_shared(unix: str) -> None:
    told = told_of(unix)
    assert (told.code, told.verdict) == (0, "ok"), told.everything
    endpoint = told.answer["endpoint"]
    assert endpoint["channel"] == "shared-memory rings"
    assert endpoint["round_trip_us"] > 0
    assert endpoint["upload_bytes_per_s"] > 0


def test_over_tcp_the_route_is_told(tcp: str) -> None:
    told = told_of(tcp)
    assert told.verdict == "ok", told.everything
    assert told.answer["endpoint"]["channel"] == "plain socket"
    assert "127.0.0.1" in told.answer["endpoint"]["route"]
    assert "dev lo" in told.answer["endpoint"]["route"]


def test_D11_nothing_is_configured() -> None:
    told = doctor(env=ENVIRONMENT)
    assert (told.code, told.verdict) == (40, "endpoint-none"), told.everything
    assert told.answer["probe"]["cuda"]["result"] == 100


def test_D11_the_daemon_is_down() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        told = told_of(f"tcp://127.0.0.1:{unused.getsockname()[1]}")
    assert (told.code, told.verdict) == (40, "endpoint-unreachable"), told.everything
    assert told.answer["probe"]["cuda"]["result"] == 802


def test_a_stale_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "s"))
    assert told_of(f"unix:{tmp_path}/s").verdict == "endpoint-stale"
    assert told_of(f"unix:{tmp_path}/absent").verdict == "endpoint-unreachable"


@pytest.mark.parametrize("url", ["unix:", "tcp://127.1:7070", "tcp://127.0.0.1", "http://x", "vsock://2"])
def test_an_endpoint_that_cannot_be_understood(url: str) -> None:
    told = told_of(url)
    assert told.verdict == "endpoint-invalid", told.everything


def test_another_service_answers(host: Callable[..., str]) -> None:
    told = told_of(host(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n")))
    assert (told.code, told.verdict) == (40, "endpoint-foreign"), told.everything


def test_a_wrong_version_answers(host: Callable[..., str]) -> None:
    told = told_of(host(answering(frame(type="welcome", version=99, features=[], epoch=1, caps={}, inventory={}))))
    assert (told.code, told.verdict) == (40, "endpoint-version"), told.everything
    assert "99" in told.answer["text"]


def test_vgpud_refuses(host: Callable[..., str]) -> None:
    told = told_of(host(answering(frame(type="refused", code=800, reason="tenant is quarantined"))))
    assert (told.code, told.verdict) == (40, "endpoint-refused"), told.everything
    assert "quarantined" in told.answer["text"]


def test_D06_a_host_that_says_nothing_ends_in_bounded_time(host: Callable[..., str]) -> None:
    def say_nothing(sock: socket.socket) -> None:
        while sock.recv(4096):
            pass

    told = told_of(host(say_nothing))
    assert told.verdict == "endpoint-mute", told.everything


def test_the_configuration_file_is_found_and_named(tree: Tree) -> None:
    url = tree.environment.pop("VGPU_ENDPOINT")
    tree.write("etc/vgpu/guest.conf", f"# where\nendpoint = {url}\n")
    told = tree.doctor()
    assert told.verdict == "ok", told.everything
    assert told.answer["endpoint"]["source"] == "/etc/vgpu/guest.conf"


@pytest.mark.parametrize("visible", ["", "-1", "none"])
def test_D10_no_visible_device(unix: str, visible: str) -> None:
    told = told_of(unix, CUDA_VISIBLE_DEVICES=visible)
    assert (told.code, told.verdict) == (20, "devices-hidden"), told.everything
    assert told.answer["probe"]["cuda"]["result"] == 100


@pytest.mark.parametrize("visible", ["7", "GPU-00000000"])
def test_D09_a_device_that_is_not_there(unix: str, visible: str) -> None:
    told = told_of(unix, CUDA_VISIBLE_DEVICES=visible)
    assert told.verdict == "devices-hidden", told.everything


def test_a_vms_monitor_that_knows_the_port(host: Callable[..., str], unix: str) -> None:
    """hybrid-vsock: after `CONNECT` the monitor forwards all bytes to vgpud."""

    def forward(sock: socket.socket) -> None:
        assert sock.recv(64) == b"CONNECT 7070\n"
        with socket.socket(socket.AF_UNIX) as vgpud:
            vgpud.connect(unix[5:])
            sock.sendall(b"OK 1073741824\n")
            threading.Thread(target=pump, args=(vgpud, sock), daemon=True).start()
            pump(sock, vgpud)  # until the client has closed

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)

    told = told_of(f"hybrid-vsock:{host(forward)[5:]}:7070")
    assert told.answer["endpoint"].get("inventory"), told.everything
    assert told.answer["endpoint"]["channel"] == "vsock"


def test_a_vms_monitor_that_refuses(host: Callable[..., str]) -> None:
    told = told_of(f"hybrid-vsock:{host(answering(b'ERR no such port' + bytes(40)))[5:]}:7070")
    assert told.verdict == "endpoint-unreachable", told.everything


def test_D18_what_the_library_takes_for_an_endpoint_the_doctor_does_too() -> None:
    """Both accept the same URLs: cuInit returns 802 for a URL for which the doctor says endpoint-invalid."""
    for url in ("unix:/x", "tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://localhost:1", "hybrid-vsock:/x:1"):
        assert told_of(url).verdict == "endpoint-unreachable", url
    for url in ("hybrid-vsock:/x", "tcp://[::1:1", "vsock://a:1", "tcp://127.0.0.1:0"):
        told = told_of(url)
        assert told.verdict == "endpoint-invalid", url
        assert f"endpoint '{url}': the " in told.answer["probe"]["cuda"]["said"][0], url
