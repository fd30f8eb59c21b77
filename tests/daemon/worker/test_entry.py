"""The worker process itself: the real entry, with an executor that only echoes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from vgpud.cudaerror import CudaError
from vgpud.proto.packing import pack_map, unpack_map

from tests.daemon.running import ENVIRONMENT, ROOT
from tests.guest.elf_file import compile_library
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
ASSIGNMENT = {
    "session": 5,
    "epoch": 9,
    "backend": "cuda",
    "gpus": "h100",
    "host_seed": "",
    "devices": [],
    "inventory": {},
    "libcuda": "/stand-in/libcuda.so.1",
    "cache_dir": "/proc/nonexistent",
    "limits": {
        "record_nbytes": 4096,
        "spin_us": 0,
        "kernel_cache_nbytes": 1 << 20,
        "kernel_compile_ms": 300_000,
        "kernel_run_ms": 0,
        "host_nbytes": 2**30,
        "tools": 0,
        "counts": 0,
    },
    "features": [],
    "peer": {},
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = (HERE / "echo_executor.c").read_text()
    output = tmp_path_factory.mktemp("echo") / "libecho.so"
    headers = (f"-I{ROOT / folder}" for folder in ("daemon/executor", "protocol/c", "build/gen"))
    return compile_library(output, *headers, "-Wall", "-Werror", source=source)


class Parent:
    """vgpud's side of one worker."""

    def __init__(self, library: Path, *options: str) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(PATIENCE_S)
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(HERE / "run_entry.py"),
                    str(library),
                    "--backend",
                    "cuda",
                    "--control-fd",
                    str(theirs.fileno()),
                    *options,
                ],
                env=ENVIRONMENT,
                pass_fds=(theirs.fileno(),),
                stderr=subprocess.PIPE,
            )

    def message(self) -> dict[str, object]:
        """The next message; the listener of refused calls, which comes first where the kernel has one, is skipped."""
        packet = unpack_map(self.control.recv(65536))
        return self.message() if packet == {"type": "calls"} else packet

    def assign(self, **changes: object) -> socket.socket:
        """Assign a session to the worker; return the client's end."""
        client, server = socket.socketpair()
        client.settimeout(PATIENCE_S)
        with server:
            socket.send_fds(self.control, [pack_map(ASSIGNMENT | changes)], [server.fileno()])
        return client

    def finish(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, err.decode()


@pytest.fixture
def parent(library):
    parent = Parent(library)
    assert parent.message() == {"type": "ready"}
    yield parent
    parent.control.close()
    if parent.process.poll() is None:
        parent.process.kill()
    parent.process.communicate()


ORDER = {"device": 0, "backend": "cuda", "gpus": "h100", "inventory": {}, "libcuda": ASSIGNMENT["libcuda"]}


def warm(library: Path, **changes: object) -> Parent:
    parent = Parent(library, "--warm")
    parent.control.send(pack_map(ORDER | changes))
    return parent


def test_a_warm_worker_serves(library):
    parent = warm(library)
    assert parent.message() == {"type": "ready"}
    with parent.assign() as client:
        take_attached(client)
        assert parent.message() == {"type": "attached"}
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"
    assert parent.message() == {"type": "ended", "reason": "ended"}
    assert parent.finish()[0] == 0
    parent.control.close()


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"device": 1}, "no context could be made on device 1"), ({"libcuda": "/absent"}, "no such driver")],
)
def test_a_worker_that_cannot_be_warmed_says_why_and_ends(library, changes, why):
    parent = warm(library, **changes)
    assert parent.message() == {"type": "ready", "why": why}
    assert parent.finish()[0] == 1
    parent.control.close()


def test_a_warm_worker_ends_with_vgpud(library):
    parent = warm(library)
    assert parent.message() == {"type": "ready"}
    parent.control.close()
    assert parent.finish()[0] == 0


def take_attached(client: socket.socket) -> None:
    nbytes = int.from_bytes(client.recv(4), "little")
    assert unpack_map(client.recv(nbytes)) == {"type": "attached", "worker": 5}


@pytest.mark.parametrize(("features", "reason"), [([], "ended"), (["pinned-fd"], "ended with pinned-fd")])
def test_a_session(parent, features, reason):
    with parent.assign(features=features) as client:
        take_attached(client)
        assert parent.message() == {"type": "attached"}
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"
    assert parent.message() == {"type": "ended", "reason": reason}
    assert parent.finish() == (0, "started\n<4>first line second line\n")


def test_the_real_driver_s_memory_is_not_told(parent):
    with parent.assign() as client:
        take_attached(client)
        assert parent.message() == {"type": "attached"}
        for _ in range(2):
            parent.control.send(pack_map({"type": "memory"}))
            assert parent.message() == {"type": "memory", "nbytes": None}


def test_a_violation_ends_with_a_code(parent):
    with parent.assign() as client:
        take_attached(client)
        client.sendall(b"violate")
        assert client.recv(1) == b""
    assert parent.message() == {"type": "attached"}
    assert parent.message()["type"] == "ended"
    assert parent.finish()[0] == 1


def test_a_backend_that_cannot_be_set_up_is_told(parent):
    with parent.assign(libcuda="/absent") as client:
        fields = unpack_map(client.recv(int.from_bytes(client.recv(4), "little")))
        assert fields["type"] == "refused"
        assert fields["code"] == CudaError.OPERATING_SYSTEM
        assert fields["reason"].endswith("no such driver")
        assert client.recv(1) == b""
    assert parent.message() == {"type": "attached"}, "the client is answered: no other worker may be asked"
    assert parent.message() == {"type": "ended", "reason": "the cuda backend cannot be set up: no such driver"}
    assert parent.finish()[0] == 1


def test_a_client_that_has_left_is_no_failure(parent):
    parent.process.send_signal(signal.SIGSTOP)
    parent.assign().close()
    parent.process.send_signal(signal.SIGCONT)
    assert parent.message() == {"type": "attached"}
    assert "the client left before" in parent.message()["reason"]
    assert parent.finish()[0] == 0


def test_it_ends_with_vgpud_before_a_session(parent):
    parent.control.close()
    assert parent.finish()[0] == 0


def test_it_ends_with_vgpud_in_a_session(parent):
    with parent.assign() as client:
        take_attached(client)
        parent.control.close()
        assert client.recv(1) == b""
    assert parent.finish()[0] == 0


def test_an_assignment_without_a_socket_is_our_own_error(parent):
    parent.control.send(pack_map(ASSIGNMENT))
    code, err = parent.finish()
    assert code == 1
    assert "instead of 1" in err


def test_it_is_confined(parent):
    client = parent.assign()
    take_attached(client)
    status = Path(f"/proc/{parent.process.pid}/status").read_text()
    assert "NoNewPrivs:\t1\n" in status
    limits = Path(f"/proc/{parent.process.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)
    assert Path(f"/proc/{parent.process.pid}/oom_score_adj").read_text() == "500\n"
    client.close()


def test_the_driver_is_started_once_before_a_client_waits(library):
    parent = Parent(library, "--libcuda", str(ASSIGNMENT["libcuda"]))
    assert parent.message() == {"type": "ready"}
    assert parent.process.stderr is not None
    assert os.read(parent.process.stderr.fileno(), 100) == b"started\n"
    with parent.assign() as client:
        take_attached(client)
    assert parent.message() == {"type": "attached"}
    assert parent.finish() == (0, "<4>first line second line\n")
    parent.control.close()


def test_a_driver_that_is_not_there_is_told_to_the_client(library):
    parent = Parent(library, "--libcuda", "/absent/libcuda.so.1")
    assert parent.message() == {"type": "ready"}
    with parent.assign(libcuda="/absent/libcuda.so.1") as client:
        nbytes = int.from_bytes(client.recv(4), "little")
        assert "no such driver" in str(unpack_map(client.recv(nbytes)))
    parent.finish()
    parent.control.close()
