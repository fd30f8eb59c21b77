"""The files that a confined worker can open: tried in a child process, since confinement cannot be undone."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from vgpud.worker import landlock
from vgpud.worker.landlock import scopes

from tests.daemon.running import ENVIRONMENT
from tests.patience import PATIENCE_S

SCRIPT = """
import json, os, signal, sys, threading
from vgpud._executor import lib
from vgpud.worker.confine import Files

cache, libcuda, blocked, tries = json.loads(sys.argv[1])
confined, done = threading.Event(), []

def attempt(path, flags):
    try:
        os.close(os.open(os.path.expandvars(path), flags, 0o600))
    except OSError as error:
        return error.errno
    return 0

def attempt_all():
    if blocked:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
    started.wait()
    confined.wait()
    done.append([attempt(path, flags) for path, flags in tries])

files = Files(libcuda)
assert attempt("${CUDA_CACHE_PATH}/new", os.O_WRONLY | os.O_CREAT)
started = threading.Barrier(4)
threads = [threading.Thread(target=attempt_all) for _ in range(3)]  # as a driver has them that was started before
for thread in threads:
    thread.start()
started.wait()
files.confine(cache, lib.vgx_restrict_threads)
confined.set()
for thread in threads:
    thread.join()
if not blocked:
    assert done[0] == done[1] == done[2] == [attempt(path, flags) for path, flags in tries]
print(json.dumps(done[0]))
"""


def execute(
    cache: Path, libcuda: str, blocked: bool, tries: list[tuple[Path, int]]
) -> subprocess.CompletedProcess[str]:
    given = json.dumps([str(cache), libcuda, blocked, [(str(path), flags) for path, flags in tries]])
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, given],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def attempts(cache: Path, tries: list[tuple[Path, int]], libcuda: str = "libcuda.so.1") -> list[str]:
    """Open each path with its flags in every thread; return the errors' names, '' for success."""
    done = execute(cache, libcuda, False, tries)
    assert done.stderr == ""  # no warning that the kernel has no Landlock
    return [errno.errorcode.get(code, "") for code in json.loads(done.stdout)]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "vgpud.toml"
    file.write_text("[[tokens]]")
    return file


def test_files_of_others_are_out_of_reach(tmp_path, secret):
    other = tmp_path / "uid-1001"
    other.mkdir()
    (other / "kernel.bin").write_bytes(b"")
    tries = [
        (secret, os.O_RDONLY),
        (other / "kernel.bin", os.O_RDONLY),
        (other / "kernel.bin", os.O_WRONLY),
        (other / "new", os.O_WRONLY | os.O_CREAT),
        (tmp_path, os.O_RDONLY | os.O_DIRECTORY),
        (Path("/etc/shadow"), os.O_RDONLY),
        (Path("/dev/shm/vgpu-test-landlock"), os.O_WRONLY | os.O_CREAT),
        (Path("/tmp/vgpu-test-landlock"), os.O_WRONLY | os.O_CREAT),
        (Path("/usr/vgpu-test-landlock"), os.O_WRONLY | os.O_CREAT),
    ]
    assert attempts(tmp_path / "uid-1000", tries) == ["EACCES"] * len(tries)


def test_what_it_needs_it_has(tmp_path):
    tries = [
        (Path("/etc/ld.so.cache"), os.O_RDONLY),
        (Path(sys.executable), os.O_RDONLY),
        (Path("/proc/self/maps"), os.O_RDONLY),
        (Path("/dev/null"), os.O_RDWR),
        (tmp_path / "uid-1000" / "new", os.O_RDWR | os.O_CREAT | os.O_TRUNC),
    ]
    assert attempts(tmp_path / "uid-1000", tries) == [""] * len(tries)


def test_the_driver_named_in_the_configuration_can_be_read(tmp_path, secret):
    driver = tmp_path / "driver"
    driver.mkdir()
    (driver / "libcuda.so.1").write_bytes(b"")
    (driver / "libnvidia-ptxjitcompiler.so.1").write_bytes(b"")
    tries = [(driver / "libcuda.so.1", os.O_RDONLY), (driver / "libnvidia-ptxjitcompiler.so.1", os.O_RDONLY)]
    assert attempts(tmp_path / "cache", [*tries, (secret, os.O_RDONLY)], str(driver / "libcuda.so.1")) == [
        "",
        "",
        "EACCES",
    ]


def test_the_drivers_cache_is_the_tenants(tmp_path):
    assert attempts(tmp_path / "uid-1000", [(Path("${CUDA_CACHE_PATH}/index"), os.O_RDWR | os.O_CREAT)]) == [""]
    assert (tmp_path / "uid-1000/nvidia/index").exists()


def test_a_cache_that_cannot_be_made_is_none():
    tries = [(Path("${CUDA_CACHE_PATH}/index"), os.O_RDWR | os.O_CREAT)]
    assert attempts(Path("/proc/nonexistent"), tries) != [""]


def test_a_thread_that_takes_no_signals_is_told(tmp_path):
    done = execute(tmp_path / "cache", "libcuda.so.1", True, [(tmp_path, os.O_RDONLY)])
    assert done.stderr == "<4>this worker's files are not confined: a thread does not answer\n"
    assert json.loads(done.stdout) == [0]


SCOPES_SCRIPT = """
import errno, json, os, signal, socket, sys, threading
from vgpud._executor import lib
from vgpud.worker import landlock
from vgpud.worker.confine import Files

name, scoped = sys.argv[1], sys.argv[2] == "scoped"
if not scoped:
    landlock.scopes = lambda: (0, ())

def result(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return ""

files, confined, got = Files("libcuda.so.1"), threading.Event(), threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: got.set())
said = []

def other():
    confined.wait()
    said.append(result(signal.pthread_kill, threading.main_thread().ident, signal.SIGUSR1))

thread = threading.Thread(target=other)
thread.start()
files.confine("/proc/nonexistent", lib.vgx_restrict_threads)
own = socket.socket(socket.AF_UNIX)
own.bind("\\0" + name + "-own")
own.listen()
outcome = {
    "signal": result(os.kill, os.getppid(), 0),
    "connect": result(socket.socket(socket.AF_UNIX).connect, "\\0" + name),
    "own socket": result(socket.socket(socket.AF_UNIX).connect, "\\0" + name + "-own"),
    "to a thread": result(signal.pthread_kill, thread.ident, signal.SIGUSR1),
}
confined.set()
thread.join()
got.wait()
print(json.dumps(outcome | {"from a thread": said[0]}))
"""
OWN = {"own socket": "", "to a thread": "", "from a thread": ""}


@pytest.mark.skipif(scopes()[0] != 3, reason="this kernel's Landlock lacks: " + ", ".join(scopes()[1]))
@pytest.mark.parametrize(
    ("how", "outcome"),
    [("scoped", {"signal": "EPERM", "connect": "EPERM"}), ("control", {"signal": "", "connect": ""})],
)
def test_other_processes_and_their_abstract_sockets_are_out_of_reach(how, outcome):
    name = f"vgpu-test-{os.getpid()}-{how}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        told = subprocess.run(
            [sys.executable, "-c", SCOPES_SCRIPT, name, how],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
    assert json.loads(told.stdout) == outcome | OWN


@pytest.mark.parametrize(
    ("version", "corrected", "bits", "missing"),
    [
        (5, 0, 0, ["Landlock's signal scope (Landlock 5 ", "Landlock's abstract socket scope (Landlock 5 "]),
        (6, None, 1, ["Landlock's signal scope (on this kernel it also "]),
        (6, 1, 1, ["Landlock's signal scope (on this kernel it also "]),
        (6, 2, 3, []),
        (7, 3, 3, []),
        (None, None, 0, ["Landlock (no Landlock in this kernel)"]),
    ],
)
def test_what_a_kernel_s_landlock_lacks_is_named(monkeypatch, version, corrected, bits, missing):
    def call(_number: int, _attributes: None, _nbytes: int, flags: int) -> int:
        answer = {1: version, 2: corrected}[flags]
        if answer is None:
            raise OSError(errno.EINVAL, "no Landlock in this kernel")
        return answer

    monkeypatch.setattr(landlock, "_call", call)
    found, named = scopes.__wrapped__()
    assert found == bits
    assert [name.startswith(start) for name, start in zip(named, missing, strict=True)] == [True] * len(missing)
