"""Initialisation: counted, after fork, without a daemon, and when the daemon ends and returns."""

from __future__ import annotations

import ctypes
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from vgpud.cli.private_daemon import PrivateDaemon

from tests.descriptors import open_descriptors
from tests.patience import quickest_s

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION = 0, 1, 2, 3, 4
DRIVER_NOT_LOADED, GPU_IS_LOST, VERSION_MISMATCH = 9, 15, 18
ROUNDS = 5000


def count(library: ctypes.CDLL) -> tuple[int, int]:
    """(result, number of devices; 77 if it was not written)."""
    number = ctypes.c_uint(77)
    return library.nvmlDeviceGetCount_v2(ctypes.byref(number)), number.value


def memory_info(library: ctypes.CDLL) -> int:
    device = ctypes.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == SUCCESS
    return library.nvmlDeviceGetMemoryInfo(device, (ctypes.c_uint64 * 3)())


def test_counted(guest: ctypes.CDLL) -> None:
    assert count(guest) == (UNINITIALIZED, 77)
    assert guest.nvmlShutdown() == UNINITIALIZED
    assert guest.nvmlInit_v2() == SUCCESS
    assert guest.nvmlInitWithFlags(0) == SUCCESS
    assert guest.nvmlShutdown() == SUCCESS
    assert count(guest) == (SUCCESS, 2)
    assert guest.nvmlShutdown() == SUCCESS
    assert count(guest) == (UNINITIALIZED, 77)
    assert guest.nvmlShutdown() == UNINITIALIZED


def test_null(nvml: ctypes.CDLL) -> None:
    assert nvml.nvmlDeviceGetCount_v2(None) == INVALID_ARGUMENT


def test_every_function_refuses_before_init(guest: ctypes.CDLL) -> None:
    """Every function refuses even wild pointers, because no argument may be read before initialisation."""
    names = (Path(__file__).parents[2] / "protocol/data/nvml-580-exports.txt").read_text().split()
    others = {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString", "nvmlInternalGetExportTable"}
    wild = [ctypes.c_void_p(1)] * 6
    assert {name: guest[name](*wild) for name in names if name not in others} == {
        name: UNINITIALIZED for name in names if name not in others
    }


def usage() -> tuple[int, int]:
    """Open descriptors and resident pages of this process."""
    return len(open_descriptors()), int(Path("/proc/self/statm").read_text().split()[1])


def test_rounds_without_growth(guest: ctypes.CDLL) -> None:
    def rounds(number: int) -> None:
        for _ in range(number):
            assert guest.nvmlInit_v2() == SUCCESS
            assert memory_info(guest) == SUCCESS
            assert guest.nvmlShutdown() == SUCCESS

    rounds(50)
    fds, pages = usage()
    rounds(ROUNDS)
    assert usage()[0] == fds
    assert usage()[1] - pages < 256  # 1 MiB


def test_threads(guest: ctypes.CDLL) -> None:
    """Threads initialise, query and shut down at once: each call returns SUCCESS or UNINITIALIZED."""
    results: list[set[int]] = []

    def work() -> None:
        seen = set()
        for _ in range(50):
            seen.add(guest.nvmlInit_v2())
            seen.add(count(guest)[0])
            seen.add(memory_info(guest))
            seen.add(guest.nvmlShutdown())
            seen.add(count(guest)[0])
        results.append(seen)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert set.union(*results) <= {SUCCESS, UNINITIALIZED}
    assert count(guest) == (UNINITIALIZED, 77)


def test_a_forked_child_starts_again(in_guest: Callable[..., CompletedProcess[str]]) -> None:
    code = """
import os, pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
child = os.fork()
if child == 0:
    try:
        n.nvmlDeviceGetMemoryInfo(device)
    except n.NVMLError_Uninitialized:
        n.nvmlInit()
        os._exit(0 if n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).total > 0 else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
assert n.nvmlDeviceGetMemoryInfo(device).total > 0
n.nvmlShutdown()
"""
    result = in_guest(code)
    assert (result.returncode, result.stderr) == (0, "")


def test_exit_without_shutdown(in_guest: Callable[..., CompletedProcess[str]]) -> None:
    result = in_guest("import pynvml as n; n.nvmlInit(); n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0))")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_no_daemon_is_no_driver(guest: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VGPU_ENDPOINT", f"unix:{tmp_path}/nobody.sock")
    assert guest.nvmlInit_v2() == DRIVER_NOT_LOADED
    assert count(guest) == (UNINITIALIZED, 77)


def test_nothing_configured_is_no_driver(guest: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VGPU_ENDPOINT")
    monkeypatch.setenv("VGPU_GUEST_CONF", "/nonexistent")

    def init_s() -> float:
        start = time.monotonic()
        assert guest.nvmlInit_v2() == DRIVER_NOT_LOADED
        return time.monotonic() - start

    assert quickest_s(init_s, 1) < 1  # the library waits for nothing


def test_garbage_instead_of_a_daemon(guest: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{tmp_path}/garbage.sock")
    listener.listen()

    def answer() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(4096)
            sock.sendall(b"\x05\x00\x00\x00hello")

    thread = threading.Thread(target=answer)
    thread.start()
    monkeypatch.setenv("VGPU_ENDPOINT", f"unix:{tmp_path}/garbage.sock")
    assert guest.nvmlInit_v2() == VERSION_MISMATCH
    thread.join()
    listener.close()


def test_restarted_daemon(guest: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The snapshot outlives the daemon; a live query reaches the new daemon, or returns GPU_IS_LOST."""
    link = tmp_path / "vgpud.sock"
    monkeypatch.setenv("VGPU_ENDPOINT", f"unix:{link}")
    name = ctypes.create_string_buffer(96)
    device = ctypes.c_void_p()

    def point_to(daemon: PrivateDaemon) -> None:
        link.unlink(missing_ok=True)
        link.symlink_to(daemon.endpoint.path)

    with PrivateDaemon("h100") as daemon:
        point_to(daemon)
        assert guest.nvmlInit_v2() == SUCCESS
        assert memory_info(guest) == SUCCESS
    assert memory_info(guest) == GPU_IS_LOST
    assert guest.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == SUCCESS
    assert guest.nvmlDeviceGetName(device, name, 96) == SUCCESS
    with PrivateDaemon("t4") as daemon:
        point_to(daemon)
        assert memory_info(guest) == GPU_IS_LOST  # the new daemon has other devices than the snapshot
    with PrivateDaemon("h100") as daemon:
        point_to(daemon)
        assert memory_info(guest) == SUCCESS
    assert guest.nvmlShutdown() == SUCCESS
