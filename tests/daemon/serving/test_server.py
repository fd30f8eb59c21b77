"""vgpud as clients see it: discovery, refusal, attachment, and how hostile clients are answered."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from pathlib import Path

import pytest
from vgpud.cli.client import RefusedError
from vgpud.cudaerror import CudaError
from vgpud.proto import ClientConnection, Hello, Refused
from vgpud.proto.frame import MAGIC, encode_frame
from vgpud.proto.packing import pack_map

from tests.daemon.running import children, only, wait_until

CAP = 64 * 1024


def frame(**fields: object) -> bytes:
    return encode_frame(fields, cap_nbytes=CAP)


HELLO = MAGIC + ClientConnection().send(Hello())[4:]


def receive_all(sock) -> bytes:
    data = b""
    while chunk := sock.recv(65536):
        data += chunk
    return data


def refusal_in(data: bytes) -> Refused:
    """Decode `data`, which is one refusal."""
    connection = ClientConnection()
    connection.send(Hello())
    while data:
        size = connection.nbytes_wanted
        message = connection.receive(data[:size])
        data = data[size:]
    assert isinstance(message, Refused)
    return message


def test_discovery_and_attach(start):
    running = start()
    with running.client() as client:
        welcome = client.hello()
        names = [device["name"] for device in welcome.inventory["devices"]]
        assert names == ["NVIDIA H100 PCIe", "NVIDIA H100 PCIe", "Tesla T4"]
        assert len({device["uuid"] for device in welcome.inventory["devices"]}) == 3
        assert welcome.version == 1
        assert welcome.features == ("pinned-fd", "ring", "images", "progress", "activity")
        assert 1 <= welcome.epoch <= 65535
        client.ping()
        attached = client.attach()
        sock = client.detach()
        sock.sendall(b"x" * 100_000)
        got = b""
        while len(got) < 100_000:
            got += sock.recv(65536)
        assert got == b"x" * 100_000
        session = only(lambda: running.status()["sessions"])
        assert session["session"] == attached.worker
        assert session["pid"] == os.getpid()
        assert session["worker_pid"] in children(running.process.pid)
    running.wait_log(r"worker ended .*how=\"exit 0\" reason=\"client closed\"")
    wait_until(lambda: running.status()["sessions"] == [])


def test_bytes_after_attach_reach_the_worker(start):
    """The command stream may follow attach in the same packet: vgpud must not read a byte of it."""
    with start().raw() as sock:
        sock.sendall(HELLO)
        connection = ClientConnection()
        connection.send(Hello())
        while connection.receive(sock.recv(connection.nbytes_wanted)) is None:
            pass
        sock.sendall(frame(type="attach") + b"first command")
        got = b""
        while not got.endswith(b"first command"):
            chunk = sock.recv(4096)
            assert chunk
            got += chunk


def test_each_session_has_its_own_worker_and_epoch(start):
    running = start()
    clients = [running.client() for _ in range(3)]
    epochs = [client.hello().epoch for client in clients]
    workers = [client.attach().worker for client in clients]
    assert len(set(epochs)) == 3
    assert len(set(workers)) == 3
    assert len({session["worker_pid"] for session in running.status()["sessions"]}) == 3
    for client in clients:
        client.close()


REFUSALS = {
    "unknown type": (MAGIC + frame(type="drink"), CudaError.INVALID_VALUE, "unknown message type"),
    "no type": (MAGIC + frame(kind="hello"), CudaError.INVALID_VALUE, "without a type"),
    "attach before hello": (MAGIC + frame(type="attach"), CudaError.INVALID_VALUE, "not allowed in state OPEN"),
    "ping before hello": (MAGIC + frame(type="ping"), CudaError.INVALID_VALUE, "not allowed in state OPEN"),
    "two hellos": (HELLO + HELLO[4:], CudaError.INVALID_VALUE, "not allowed in state WELCOMED"),
    "future version": (MAGIC + frame(type="hello", versions=[2, 9]), CudaError.SYSTEM_DRIVER_MISMATCH, "in common"),
    "no versions": (MAGIC + frame(type="hello"), CudaError.INVALID_VALUE, "versions"),
    "versions swapped": (MAGIC + frame(type="hello", versions=[2, 1]), CudaError.INVALID_VALUE, "versions"),
    "huge length": (MAGIC + b"\xff\xff\xff\xff" + b"x" * 1000, CudaError.INVALID_VALUE, "4294967295 bytes"),
    "just too long": (MAGIC + struct.pack("<I", CAP + 1), CudaError.INVALID_VALUE, "allowed are 1 to 65536"),
    "empty frame": (MAGIC + b"\0\0\0\0", CudaError.INVALID_VALUE, "frame of 0 bytes"),
    "not msgpack": (MAGIC + b"\1\0\0\0\xc1", CudaError.INVALID_VALUE, "not msgpack"),
    "a list": (MAGIC + b"\1\0\0\0\x90", CudaError.INVALID_VALUE, "not a map"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal_matrix(shared, name):
    data, code, reason = REFUSALS[name]
    with shared.raw() as sock:
        sock.sendall(data)
        answer = receive_all(sock)
    if name == "two hellos":  # the first hello was answered
        (nbytes,) = struct.unpack_from("<I", answer)
        answer = answer[4 + nbytes :]
    refused = refusal_in(answer)
    assert refused.code == code
    assert reason in refused.reason


def test_wrong_magic_gets_no_answer(shared):
    before = shared.status()["metrics"]["connections_dropped"]
    with shared.raw() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):  # the test sends more than vgpud reads
            assert receive_all(sock) == b""
    assert shared.status()["metrics"]["connections_dropped"] == before + 1


def send_slowly(sock, data: bytes) -> None:
    for byte in data:
        sock.sendall(bytes([byte]))
        time.sleep(0.05)


def test_slow_hello_is_dropped(start):
    """A client that sends one byte at a time does not extend the deadline."""
    running = start(extra="limits.hello_timeout_s = 0.5\n")
    begin = time.monotonic()
    with running.raw() as sock, pytest.raises((ConnectionResetError, BrokenPipeError)):
        send_slowly(sock, HELLO)
    assert time.monotonic() - begin > 0.4
    running.wait_log('dropped .*why="too late"')
    assert running.status()["metrics"]["connections_pending"] == 0


def test_slow_frame_after_welcome_is_dropped(start):
    running = start(extra="limits.frame_timeout_s = 0.3\n")
    with running.client() as client:
        client.hello()
        time.sleep(0.6)  # idling between frames is allowed
        client.ping()
        sock = client.detach()
        sock.sendall(b"\x06")
        assert sock.recv(1) == b""


def test_idle_connections_cost_no_process_and_little_memory(start):
    running = start(extra="[limits]\nsessions_per_client = 256\n")
    pid = running.process.pid
    before = children(pid)

    def resident_nbytes() -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    memory_before = resident_nbytes()
    clients = []
    for _ in range(256):
        clients.append(running.client())
        clients[-1].hello()
    wait_until(lambda: running.status()["metrics"]["sessions_open"] == 256)
    assert children(pid) == before
    assert (resident_nbytes() - memory_before) / 256 < 64 * 1024
    with running.client() as one_more, pytest.raises(RefusedError) as refused:
        one_more.hello()
    assert refused.value.code == CudaError.SYSTEM_NOT_READY
    for client in clients:
        client.close()
    wait_until(lambda: running.status()["metrics"]["sessions_open"] == 0)


def test_pending_connections_of_one_client_are_capped(start):
    running = start(extra="[limits]\npending_per_client = 64\nhello_timeout_s = 60\n")
    socks = [running.raw() for _ in range(100)]
    wait_until(lambda: running.status()["metrics"]["connections_accepted"] == 100)
    status = running.status()
    assert status["metrics"]["connections_pending"] == 64
    assert status["metrics"]["refusals"] == {"SYSTEM_NOT_READY": 36}
    assert status["workers"] == 1
    assert refusal_in(receive_all(socks[-1])).code == CudaError.SYSTEM_NOT_READY
    with running.client() as client, pytest.raises(RefusedError, match="waiting for admission"):
        client.hello()
    for sock in socks:
        sock.close()
    wait_until(lambda: running.status()["metrics"]["connections_pending"] == 0)
    with running.client() as client:
        client.hello()


def test_a_session_that_says_nothing_is_ended(start):
    """AT12: a welcomed client that never attaches does not keep its session for ever."""
    running = start(extra="[limits]\nattach_timeout_s = 0.2\n")
    with running.client() as client:
        client.hello()
        with client.detach() as sock:
            assert sock.recv(1) == b""
    wait_until(lambda: running.status()["metrics"]["sessions_open"] == 0)


def test_a_flood_of_pings_keeps_nobody_else_out(start):
    running = start()
    with running.client() as flooding, running.client() as other:
        flooding.hello()
        sock = flooding.detach()
        sock.setblocking(False)
        other.hello()
        answered_s = []
        for _ in range(50):
            with contextlib.suppress(BlockingIOError):
                for _ in range(100):
                    sock.send(frame(type="ping") * 100)
            with contextlib.suppress(BlockingIOError):
                while sock.recv(65536):
                    pass
            answered_s.append(other.ping())
        assert sorted(answered_s)[len(answered_s) // 2] < 2  # the median: a busy machine delays some


def test_the_log_of_a_flooding_client_is_bounded(start):
    running = start()
    begin = time.monotonic()
    for _ in range(300):
        with running.client() as client:
            client.hello()
    wait_until(lambda: running.status()["metrics"]["sessions_opened"] == 300)
    assert running.log.count("session opened") <= 101 + 5 * (time.monotonic() - begin)  # PeerLog's limit


def test_as_many_devices_as_there_can_be(start):
    running = start(extra="")
    running.end()
    running.config.write_text(running.config.read_text().replace("h100:2,t4", "h100:64"))
    running = type(running).start(running.config, running.admin_path.parent, "log-64")
    try:
        running.wait_ready()
        with running.client() as client:
            assert len(client.hello().inventory["devices"]) == 64
            client.attach()
            client.detach().sendall(b"x")
            assert client.detach().recv(1) == b"x"
    finally:
        running.end()


def test_tcp_needs_the_token(start):
    token = "correct-horse-battery"
    running = start(listen=["tcp://127.0.0.1:0"], extra=f"[[tokens]]\nname = 'lab'\nvalue = '{token}'\n")
    for wrong in (None, "", "correct-horse-batterz", token + "x"):
        with running.client(token=wrong) as client, pytest.raises(RefusedError) as refused:
            client.hello()
        assert refused.value.code == CudaError.NOT_PERMITTED
    with running.client(token=token) as client:
        assert client.hello().features == ("images", "progress", "activity")  # no file descriptor passes over TCP
        client.attach()
        sock = client.detach()
        sock.sendall(b"hi")
        assert sock.recv(2) == b"hi"
    running.wait_log("session opened .*token=lab")
    assert token not in running.log


def test_hello_is_for_the_log_only_and_escaped_there(start):
    running = start()
    hostile = {"pid": 1, "comm": "\x1b[31m\nready forged=1", "library": "x" * 10_000}
    with running.raw() as sock:
        sock.sendall(MAGIC + frame(type="hello", versions=[1, 1], client=hostile, extra=pack_map({})))
        assert sock.recv(4)
        running.wait_log("session opened")
    assert "\x1b" not in running.log
    assert "\nready forged" not in running.log
    assert f"pid={os.getpid()} " in running.log


@pytest.mark.parametrize(("lowest", "highest", "agreed"), [(1, 1, 1), (1, 9, 1), (2, 3, None)], ids=str)
def test_the_highest_version_that_both_have_is_spoken(shared, lowest, highest, agreed):
    """A client sends the versions that it knows; without a common one the refusal names both sides' versions."""
    connection = ClientConnection()
    with shared.raw() as sock:
        hello = Hello(lowest=lowest, highest=highest, features=("progress", "of another release"))
        sock.sendall(connection.send(hello))
        message = None
        while message is None:
            message = connection.receive(sock.recv(connection.nbytes_wanted))
    if agreed is None:
        assert message.code == 803
        assert message.reason == f"no protocol version in common: the client speaks {lowest}..{highest}, vgpud 1..1"
    else:
        assert message.version == agreed
        assert message.features == ("progress",)
