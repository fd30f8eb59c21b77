"""Clients on other machines: libcuda reaches vgpud by `vgpu connect` and vgpud's TLS relay (AT23)."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from vgpud.cli.client import Client, RefusedError
from vgpud.endpoint import TcpEndpoint, UnixEndpoint
from vgpud.proto.error import RemoteProtocolError

from tests.daemon.running import ENVIRONMENT, Running, only, wait_until
from tests.patience import PATIENCE_S
from tests.shim.client import run

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    authority, folder = trustme.CA(), tmp_path_factory.mktemp("ca")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "host.pem")
    authority.issue_cert("other.example").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    trustme.CA().cert_pem.write_to_path(folder / "stranger.pem")
    return authority, folder


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="module")
def host(authority: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, int]]:
    folder, port = tmp_path_factory.mktemp("host"), free_port()
    config = folder / "vgpud.toml"
    config.write_text(
        f"listen = ['unix:{folder}/s']\nadmin = '{folder}/admin.sock'\ngpus = 't4'\ncache_dir = '{folder}'\n"
        f"[[tokens]]\nname = 'lab'\nvalue = '{TOKEN}'\n"
        f"[tls]\nlisten = 'tcp://127.0.0.1:{port}'\ncertificate = '{authority[1]}/host.pem'\n"
    )
    running = Running.start(config, folder, "log")
    running.wait_ready()
    yield running, port
    running.end()


@contextmanager
def connected(port: int, folder: Path, *options: str) -> Iterator[tuple[UnixEndpoint, Callable[[], str]]]:
    """Run `vgpu connect` during a test; yield the endpoint for programs, and a function that returns its log."""
    endpoint, log = UnixEndpoint(str(folder / "gpu.sock")), folder / "connect.log"
    code = "from vgpu_guest.connect_command import connect; connect()"
    command = [sys.executable, "-c", code, f"tcp://127.0.0.1:{port}", "--listen", str(endpoint), *options]
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=ENVIRONMENT, stderr=file)
    try:
        wait_until(lambda: " is at unix:" in log.read_text() or process.poll() is not None)
        yield endpoint, log.read_text
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_a_program_computes_over_tls(authority: Any, host: tuple[Running, int], tmp_path: Path) -> None:
    running, port = host
    with connected(port, tmp_path, "--ca", str(authority[1] / "ca.pem")) as (endpoint, _said):
        assert os.stat(endpoint.path).st_mode & 0o777 == 0o600
        program = """
            context()
            data = os.urandom(3 << 20)
            p, back = alloc(len(data)), create_string_buffer(len(data))
            ok(cuda.cuMemcpyHtoD_v2(p, data, c_size_t(len(data))))
            ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(len(data))))
            print(back.raw == data)
        """
        assert run(str(endpoint), program, VGPU_TOKEN=TOKEN) == "True\n"
        with Client(endpoint, token=TOKEN) as client:
            client.hello()
            session = only(lambda: running.admin.get("sessions")["sessions"])
            assert (session["peer"], session["tenant"]) == ("host:127.0.0.1", "token:lab")
        with Client(endpoint) as client, pytest.raises(RefusedError, match="a valid token is needed"):
            client.hello()
    wait_until(lambda: running.admin.get("sessions")["sessions"] == [])


@pytest.mark.parametrize("ca", ["stranger.pem", None], ids=["another authority's", "the system's"])
def test_a_host_that_cannot_prove_itself_gets_nothing(
    authority: Any, host: Any, tmp_path: Path, ca: str | None
) -> None:
    options = [] if ca is None else ["--ca", str(authority[1] / ca)]
    with connected(host[1], tmp_path, *options) as (endpoint, said):
        with Client(endpoint, token=TOKEN) as client, pytest.raises(ConnectionError):
            client.hello()
        wait_until(lambda: "unable to get local issuer certificate" in said())


def test_what_is_no_tls_is_let_go(host: tuple[Running, int]) -> None:
    """AT23: a client that speaks in clear is not served, whatever it sends."""
    with socket.create_connection(("127.0.0.1", host[1]), timeout=PATIENCE_S) as sock:
        sock.sendall(b"VGPU" + bytes(64))
        while sock.recv(4096):  # the TLS alert, then the end of file
            pass
    in_clear = TcpEndpoint("127.0.0.1", host[1])
    with Client(in_clear, token=TOKEN) as client, pytest.raises((ConnectionError, RemoteProtocolError)):
        client.hello()


def test_old_tls_is_refused(host: tuple[Running, int]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", host[1]), timeout=PATIENCE_S) as sock, pytest.raises(ssl.SSLError):
        context.wrap_socket(sock)


def test_a_relay_that_is_killed_is_replaced(authority: Any, host: tuple[Running, int], tmp_path: Path) -> None:
    running, port = host
    [relay] = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if f"\0--certificate\0{authority[1]}/host.pem\0".encode() in path.read_bytes()
    ]
    os.kill(relay, 9)
    running.wait_log("the TLS relay ended")

    def answers() -> bool:
        with Client(endpoint, token=TOKEN) as client:
            try:
                client.hello()
            except ConnectionError:
                return False
            return True

    with connected(port, tmp_path, "--ca", str(authority[1] / "ca.pem")) as (endpoint, _said):
        wait_until(answers)
