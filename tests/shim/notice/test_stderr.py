"""Every kind of stderr: the notice neither stops a program nor writes where it should not."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.shim.notice.conftest import LINE, MESSAGE, Installed, Machine

Loader = Callable[[str], list[str | Path]]
ANSWER = "cuInit 100 errno 7 flags 1 alloc 1\n"


@pytest.fixture
def start(installed: Installed, loader: Loader, machine: Machine) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`start(stderr, shell)` runs the shell code and then the loader in a new session, with that stderr."""

    def run(stderr: int, shell: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        command = f"{shell} exec {' '.join(map(str, loader('local')))}"
        return subprocess.run(
            ["sh", "-c", command],
            env=machine.environment(installed.folder, VGT_RESULT="100", **env),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=PATIENCE_S,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL),
        )

    return run


def fill(descriptor: int) -> None:
    """Write to the descriptor until a write would block."""
    os.set_blocking(descriptor, False)
    with suppress(BlockingIOError):
        while True:
            os.write(descriptor, bytes(4096))
    os.set_blocking(descriptor, True)


def terminal_text(start: Callable[..., subprocess.CompletedProcess[str]], **env: str) -> str:
    leader, terminal = pty.openpty()
    try:
        assert start(terminal, **env).stdout == ANSWER
        os.set_blocking(leader, False)
        return os.read(leader, 65536).decode()
    finally:
        os.close(leader)
        os.close(terminal)


Start = Callable[..., subprocess.CompletedProcess[str]]


def test_terminal_that_can_do_all(start: Start) -> None:
    text = terminal_text(start, LANG="C.UTF-8", TERM="xterm").split("\r\n")
    assert text[0].startswith("\033[1;33m\u250c\u2500 GPU access \u2500")
    assert text[1] == f"\033[1;33m\u2502\033[0m {MESSAGE}"
    assert text[2].startswith("\033[1;33m\u2514\u2500")
    assert text[3:] == [""]
    assert len(text[0]) == len(text[2])


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": ""}])
def test_terminal_without_colour_or_utf8(start: Start, env: dict[str, str]) -> None:
    top, line, bottom, rest = terminal_text(start, LANG="C", **env).split("\r\n")
    assert top.startswith("+- GPU access ---")
    assert line == f"| {MESSAGE}"
    assert set(bottom) == {"+", "-"}
    assert len(top) == len(bottom) == 64
    assert rest == ""


def test_file(start: Start, tmp_path: Path) -> None:
    """Later output does not overwrite the notice, because the notice advances the descriptor's offset."""
    with (tmp_path / "log").open("w") as log:
        log.write("before\n")
        log.flush()
        assert start(log.fileno(), LANG="C.UTF-8", TERM="xterm").stdout == ANSWER
        log.write("after\n")
    assert (tmp_path / "log").read_text() == f"before\n{LINE}after\n"


def test_socket(start: Start) -> None:
    """The stderr of a systemd service is a socket of the journal."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert start(theirs.fileno()).stdout == ANSWER
        assert ours.recv(4096).decode() == LINE


def test_closed_stderr(start: Start) -> None:
    done = start(subprocess.DEVNULL, "exec 2>&-;")
    assert (done.returncode, done.stdout) == (0, ANSWER)


def test_descriptor_2_of_the_programs_own(start: Start, tmp_path: Path) -> None:
    """Descriptor 2 is a file opened read-only: nothing is written. (The same holds for files opened with O_CLOEXEC.)"""
    data = tmp_path / "data"
    data.write_text("data")
    done = start(subprocess.DEVNULL, f"exec 2<{data};")
    assert (done.returncode, done.stdout, data.read_text()) == (0, ANSWER, "data")


def test_pipe_without_a_reader(start: Start) -> None:
    """The notice must raise no SIGPIPE, which would kill the program."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = start(writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stdout) == (0, ANSWER)


def test_full_pipe(start: Start) -> None:
    reader, writer = os.pipe()
    try:
        fill(writer)
        done = start(writer)
        assert fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK == 0
    finally:
        os.close(reader)
        os.close(writer)
    assert (done.returncode, done.stdout) == (0, ANSWER)


def test_stopped_terminal(start: Start) -> None:
    """The terminal's buffer is full, as after Ctrl-S with no reader: the notice does not block."""
    leader, terminal = pty.openpty()
    try:
        fill(terminal)
        done = start(terminal)
    finally:
        os.close(leader)
        os.close(terminal)
    assert (done.returncode, done.stdout) == (0, ANSWER)


def test_file_size_limit(start: Start, tmp_path: Path) -> None:
    """The notice must raise no SIGXFSZ, which would kill the program."""
    with (tmp_path / "log").open("w") as log:
        done = start(log.fileno(), "ulimit -f 0;")
    assert (done.returncode, done.stdout) == (0, ANSWER)


def test_full_disk(start: Start) -> None:
    with open("/dev/full", "w") as full:
        assert start(full.fileno()).stdout == ANSWER


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_a_message_cannot_steer_the_terminal(start: Start, machine: Machine, locale: str) -> None:
    machine.marker.write_bytes("\033]0;x\007a\tb\u009bc \u00fc\u20ac\r\n\n  last\x7f".encode())
    with tempfile.TemporaryFile("w+") as log:
        start(log.fileno(), LC_ALL=locale)
        log.seek(0)
        letters = "\u00fc\u20ac" if locale == "C.UTF-8" else "??"
        assert log.read() == f"GPU access: ?]0;x?a b?c {letters}\nGPU access: \nGPU access:   last?\n"


def test_a_long_message_is_cut(start: Start, machine: Machine) -> None:
    machine.marker.write_text("x" * 100_000)
    with tempfile.TemporaryFile("w+") as log:
        start(log.fileno())
        log.seek(0)
        assert log.read() == f"GPU access: {'x' * 2047}\n"
