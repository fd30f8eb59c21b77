"""Hybrid vsock: a VM's connections arrive on a unix socket of its monitor; the host connects through another one."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from vgpud.cli.client import Client
from vgpud.cli.main import vgpu
from vgpud.endpoint import HybridVsockEndpoint, UnixEndpoint, connect

from tests.daemon.hybrid_monitor import hybrid_monitor
from tests.daemon.running import Running
from tests.patience import PATIENCE_S
from tests.shim.client import run

Start = Callable[..., Running]


def arriving(directory: Path) -> Client:
    """Connect as the monitor does for a guest's connection to port 7070."""
    return Client(UnixEndpoint(f"{directory}/v.sock_7070"))


def test_the_peer_is_the_vm_whose_socket_it_is(start: Start, tmp_path: Path) -> None:
    running = start(extra=f"[[vm]]\nname = 'fire'\ncid = 5\nhybrid = '{tmp_path}/v.sock'\n")
    assert stat.S_IMODE(os.stat(tmp_path / "v.sock_7070").st_mode) == 0o660
    with arriving(tmp_path) as client:
        client.hello()
        (session,) = running.status()["sessions"]
        assert session["peer"] == "vm:fire"
        assert session["pid"] is None  # the monitor's pid says nothing of the guest's process
        assert client.attach().worker
    running.end()
    assert not (tmp_path / "v.sock_7070").exists()


def test_a_vm_without_a_name_goes_by_its_socket(start: Start, tmp_path: Path) -> None:
    running = start(listen=[f"unix:{tmp_path}/vgpud.sock", f"hybrid-vsock:{tmp_path}/v.sock:7070"])
    with arriving(tmp_path) as client:
        client.hello()
        (session,) = running.status()["sessions"]
        assert session["peer"] == f"vm:{tmp_path}/v.sock"


def test_no_descriptor_passes_through_a_monitor(start: Start, tmp_path: Path) -> None:
    """The socket is a unix socket, but a monitor is behind it, which passes no descriptors to its guest."""
    start(extra=f"[[vm]]\nname = 'fire'\ncid = 5\nhybrid = '{tmp_path}/v.sock'\n")
    with arriving(tmp_path) as client:
        assert not {"pinned-fd", "ring"} & set(client.hello().features)


def test_to_a_vgpud_in_the_guest(shared: Running, tmp_path: Path) -> None:
    endpoint = HybridVsockEndpoint(str(tmp_path / "v.sock"), 7070)
    with hybrid_monitor(tmp_path / "v.sock", {7070: Path(shared.endpoint.path)}):
        said = CliRunner().invoke(vgpu, ["ping", "--count", "3", "--endpoint", str(endpoint)])
        assert said.exit_code == 0, said.output
        assert f"3 round trips to {endpoint}" in said.output


def test_a_port_nobody_listens_on_in_the_guest(tmp_path: Path) -> None:
    with hybrid_monitor(tmp_path / "v.sock", {}):
        said = CliRunner().invoke(vgpu, ["ping", "--endpoint", f"hybrid-vsock:{tmp_path}/v.sock:7070"])
    assert said.exit_code == 69
    assert said.output.endswith("the VM refused port 7070\n")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"O" * 100, b"\n"])
def test_what_answers_is_no_monitor(shared: Running, tmp_path: Path, answer: bytes) -> None:
    endpoint = HybridVsockEndpoint(str(tmp_path / "v.sock"), 7070)
    ports = {7070: Path(shared.endpoint.path)}
    with hybrid_monitor(tmp_path / "v.sock", ports, answer), pytest.raises(ConnectionError, match="no hybrid vsock"):
        connect(endpoint, timeout_s=PATIENCE_S)


SUM = """
context(); p = alloc(4096)
ok(cuda.cuMemsetD32_v2(p, 7, c_size_t(1024)))
values = (c_uint * 1024)()
ok(cuda.cuMemcpyDtoH_v2(values, p, c_size_t(4096)))
print(sum(values))
"""


def test_the_library_reaches_a_gpu_in_the_vm(start: Start, tmp_path: Path) -> None:
    running = start(worker=None)
    with hybrid_monitor(tmp_path / "v.sock", {7070: Path(running.endpoint.path)}):
        assert run(f"hybrid-vsock:{tmp_path}/v.sock:7070", SUM) == "7168\n"


@pytest.mark.parametrize(("port", "answer"), [(7071, b"OK 1\n"), (7070, b"NO\n"), (7070, b"x" * 40)])
def test_the_library_is_refused(shared: Running, tmp_path: Path, port: int, answer: bytes) -> None:
    with hybrid_monitor(tmp_path / "v.sock", {7070: Path(shared.endpoint.path)}, answer):
        assert run(f"hybrid-vsock:{tmp_path}/v.sock:{port}", "print(cuda.cuInit(0))") == "802\n"
