"""A worker's questions to a vgpud that is late: an answer that comes too late is never taken for the next one's."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.descriptors import open_descriptors

NBYTES, LATE_MAX, MISSED_MAX = 8, 4, 8


class Desk(ctypes.Structure):
    _fields_ = [
        ("lock", ctypes.c_uint8 * 40),
        ("fd", ctypes.c_int),
        ("late", ctypes.c_uint),
        ("missed", ctypes.c_uint),
        ("failed", ctypes.c_bool),
    ]


class Worker:
    """The worker's end of a desk's socket, and vgpud's end, `host`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.host, self.own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.desk = Desk(fd=-1)
        library.vgx_desk_open(ctypes.byref(self.desk), self.own.fileno())

    def send(self) -> bool:
        return bool(self.library.vgx_desk_send(ctypes.byref(self.desk), b"question", ctypes.c_size_t(NBYTES), -1))

    def receive(self) -> tuple[bytes, int] | None:
        answer, fd = ctypes.create_string_buffer(NBYTES), ctypes.c_int(7)
        nbytes = ctypes.c_size_t(NBYTES)
        if not self.library.vgx_desk_receive(ctypes.byref(self.desk), answer, nbytes, ctypes.byref(fd)):
            assert fd.value == -1
            return None
        return answer.raw, fd.value

    def answer(self, text: bytes, *fds: int) -> None:
        socket.send_fds(self.host, [text], list(fds))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("desk") / "desk.so"
    source = ROOT / "daemon/executor/vgx_desk.c"
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    found = ctypes.CDLL(str(path))
    found.vgx_desk_send.restype = found.vgx_desk_receive.restype = ctypes.c_bool
    return found


@pytest.fixture
def worker(library: ctypes.CDLL) -> Iterator[Worker]:
    worker = Worker(library)
    with worker.host, worker.own:
        yield worker


def test_a_late_answer_is_dropped_with_its_descriptor(worker: Worker) -> None:
    before = open_descriptors()
    assert worker.send()
    assert worker.receive() is None  # after two seconds
    assert worker.send()
    with open(os.devnull, "rb") as given:  # both answers are sent now, in order
        worker.answer(b"answer 1", given.fileno())
        worker.answer(b"answer 2", given.fileno())
    got = worker.receive()
    assert got is not None
    assert got[0] == b"answer 2"
    os.close(got[1])
    assert open_descriptors() == before
    assert worker.send()
    worker.answer(b"answer 3")
    assert worker.receive() == (b"answer 3", -1)


def test_a_host_that_does_not_answer_is_not_asked_for_ever(worker: Worker) -> None:
    worker.desk.late = LATE_MAX
    assert not worker.send()  # at once
    for _ in range(LATE_MAX):
        worker.answer(b"too late")
    assert worker.send()
    worker.answer(b"in time!")
    assert worker.receive() == (b"in time!", -1)


def test_a_lost_answer_does_not_cost_its_timeout_for_ever(worker: Worker) -> None:
    """A crashed vgpud has lost a question, so the next question's answer is counted as the lost one's."""
    worker.desk.late, worker.desk.missed = 1, MISSED_MAX - 1
    assert worker.send()
    worker.answer(b"answered")
    assert worker.receive() is None
    assert not worker.send()


def test_a_closed_or_wrong_socket_is_not_used_again(library: ctypes.CDLL) -> None:
    for text in (b"", b"short"):
        worker = Worker(library)
        with worker.host, worker.own:
            assert worker.send()
            if text:
                worker.answer(text)
            else:
                worker.host.close()
            assert worker.receive() is None
            assert not worker.send()
