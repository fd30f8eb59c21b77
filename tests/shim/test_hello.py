"""Connecting and the hello: which endpoint is used, the error of each failure, and hostile bytes from a host."""

import random
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, quickest_s
from tests.shim.client import PRELUDE, environment, run
from tests.shim.fake_daemon import FakeDaemon, frame, welcome

NO_DEVICE, NOT_READY, MISMATCH = 100, 802, 803

TRY = "print(cuda.cuInit(0))"


def test_d11_nothing_configured_is_no_device() -> None:
    if Path("/run/vgpu/vgpud.sock").exists():
        pytest.skip("a daemon is installed on this machine")
    assert int(run(None, TRY)) == NO_DEVICE


def seconds_of_a_refused_start(url: str) -> float:
    """How long cuInit takes in a program of its own, where it answers NOT_READY."""
    result, seconds = run(url, "t = time.time(); print(cuda.cuInit(0), time.time() - t)").split()
    assert int(result) == NOT_READY
    return float(seconds)


@pytest.mark.parametrize("url", ["unix:/nonexistent/s", "tcp://127.0.0.1:1", "vsock://1:1", "tcp://localhost:1"])
def test_d11_unreachable(url: str) -> None:
    assert quickest_s(lambda: seconds_of_a_refused_start(url), 1.5) < 1.5


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "unix:",
        "tcp://host.name:1",
        "tcp://1.2.3.4",
        "tcp://[::1:7",
        "vsock://a:1",
        "hybrid-vsock:/a",
        "hybrid-vsock::1",
    ],
)
def test_malformed_endpoint(url: str) -> None:
    assert int(run(url, TRY)) == NOT_READY


def test_a_full_backlog_costs_one_second_at_most(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(0)
    held = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    for client in held:
        client.setblocking(False)
        client.connect_ex(str(path))
    assert 0.5 < quickest_s(lambda: seconds_of_a_refused_start(f"unix:{path}"), 2) < 2
    for client in [*held, listener]:
        client.close()


def test_configuration_file(path: Path, tmp_path: Path) -> None:
    config = tmp_path / "guest.conf"
    config.write_text(f"# a comment\n  endpoint =  unix:{path}  \ntoken = secret\nunknown = 1\n")
    with FakeDaemon(path) as daemon:
        assert int(run(None, TRY, VGPU_GUEST_CONF=str(config))) == 0
    assert daemon.hellos[0]["token"] == "secret"
    assert daemon.hellos[0]["versions"] == [1, 1]
    assert daemon.hellos[0]["client"]["library"] == "libcuda"


def test_why_nothing_is_reached_is_said_without_being_asked(tmp_path: Path) -> None:
    """The program gets 802 or 100, and its user sees the reason once, on stderr."""
    (tmp_path / "file").touch()
    program = PRELUDE + "print(cuda.cuInit(0))"
    for variables, code, says in (
        ({"VGPU_ENDPOINT": f"unix:{tmp_path}/file"}, 802, f"the daemon at unix:{tmp_path}/file: Connection refused"),
        ({"VGPU_ENDPOINT": "nonsense"}, 802, "endpoint 'nonsense': it is none of unix:/PATH, tcp://HOST:PORT"),
        ({"VGPU_GUEST_CONF": str(tmp_path)}, 100, f"{tmp_path} cannot be read: Is a directory"),
    ):
        env = environment(None, **variables)
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
        assert done.stdout == f"{code}\n"
        assert done.stderr.count("vgpu[") == 1
        assert says in done.stderr


def test_connection_dropped_in_the_handshake(path: Path) -> None:
    with FakeDaemon(path, lambda: None) as daemon:
        assert int(run(daemon.url, TRY)) == NOT_READY


def test_refusal_gives_its_code(path: Path) -> None:
    with FakeDaemon(path, lambda: frame({"type": "refused", "code": 800, "reason": "no"})) as daemon:
        assert int(run(daemon.url, TRY)) == 800


def test_a_refusal_without_reading_gives_its_code(path: Path) -> None:
    """An overloaded host refuses and closes at once: the client's send may fail, but the refusal still arrives."""
    refusal = frame({"type": "refused", "code": 800, "reason": "too many"})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def refuse() -> None:
            for _ in range(20):
                with listener.accept()[0] as sock:
                    sock.sendall(refusal)

        thread = threading.Thread(target=refuse)
        thread.start()
        codes = {int(run(f"unix:{path}", TRY)) for _ in range(20)}
        thread.join(PATIENCE_S)
    assert codes == {800}


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack("<I", 0),
        struct.pack("<I", 2**31),
        frame([1, 2]),
        frame({"type": "pong"}),
        frame(welcome(version=2)),
        frame(welcome(epoch=0)),
        frame(welcome(epoch=70000)),
        frame(welcome(caps={})),
        frame(welcome(inventory=None)),
        frame({k: v for k, v in welcome().items() if k != "inventory"}),
        struct.pack("<I", 6) + b"\xdf\xff\xff\xff\xff\x00",
        struct.pack("<I", 3000) + b"\x91" * 3000,
    ],
)
def test_garbage_is_a_mismatch(path: Path, answer: bytes) -> None:
    with FakeDaemon(path, lambda: answer) as daemon:
        assert int(run(daemon.url, TRY)) == MISMATCH


MANY = """
results = []
for _ in range({count}):
    results.append(cuda.cuInit(0))
    if results[-1] == 0:
        break
print(*results)
"""


def test_every_truncation_of_the_welcome_fails(path: Path) -> None:
    whole = frame(welcome())[4:]
    cuts = iter(range(0, len(whole), 3))
    with FakeDaemon(path, lambda: struct.pack("<I", n := next(cuts)) + whole[:n]) as daemon:
        results = run(daemon.url, MANY.format(count=(len(whole) + 2) // 3)).split()
    assert set(results) == {str(MISMATCH)}


def test_mutated_welcomes_never_crash(path: Path) -> None:
    rng = random.Random(1)
    whole = frame(welcome(2))

    def mutated() -> bytes:
        body = bytearray(whole[4:])
        for _ in range(rng.randint(1, 8)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        return whole[:4] + bytes(body)

    seen = set()
    with FakeDaemon(path, mutated) as daemon:
        for _ in range(12):
            seen |= set(run(daemon.url, MANY.format(count=200)).split())
    assert str(MISMATCH) in seen
    assert all(0 <= int(code) <= 999 for code in seen)
