"""If the daemon answers nonsense, the library returns an error, writes no output and keeps working."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vgpud.devices.inventory import load_inventory
from vgpud.proto.packing import pack_map, unpack_map

from tests.nvml.conftest import LIBRARY, VARIABLES

SUCCESS, UNINITIALIZED, GPU_IS_LOST, VERSION_MISMATCH, UNKNOWN = 0, 1, 15, 18, 999
WELCOME = {
    "type": "welcome",
    "version": 1,
    "features": [],
    "epoch": 1,
    "caps": {"record_nbytes": 1 << 20},
    "inventory": load_inventory("simulator", "t4", "libcuda.so.1").fields,
}


class Script:
    """Answers every connection: the welcome, then `snapshot` (raw bytes of a map), then `live` for every question."""

    def __init__(self, path: str) -> None:
        self.snapshot = self.live = pack_map({"type": "answer", "result": 0, "value": []})
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def reply(self, asked: dict[str, Any]) -> bytes:
        if asked["type"] == "hello":
            return pack_map(WELCOME)
        return self.snapshot if asked["call"] == "snapshot" else self.live

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock, contextlib.suppress(OSError, EOFError):
                assert read(sock, 4) == b"VGPU"
                while True:
                    asked = unpack_map(read(sock, struct.unpack("<I", read(sock, 4))[0]))
                    body = self.reply(asked)
                    sock.sendall(struct.pack("<I", len(body)) + body)


def read(sock: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        more = sock.recv(nbytes - len(data))
        if not more:
            raise EOFError
        data += more
    return data


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Script]:
    path = f"{tmp_path_factory.mktemp('hostile')}/s"
    running = Script(path)
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        patch.setenv("VGPU_ENDPOINT", f"unix:{path}")
        yield running
    running.close()


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(LIBRARY))


def answer(value: Any, result: Any = 0) -> bytes:
    return pack_map({"type": "answer", "result": result, "value": value})


ROW = [0, "nvmlDeviceGetName", None, 0, ["T4"]]


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ([], SUCCESS),
        ([ROW], SUCCESS),
        ([[0, "nvmlDeviceGetSomethingNewer", None, 0, [1]], ROW], SUCCESS),
        (None, VERSION_MISMATCH),
        ({}, VERSION_MISMATCH),
        ([1], VERSION_MISMATCH),
        ([[0]], VERSION_MISMATCH),
        ([[64, "nvmlDeviceGetName", None, 0, []]], VERSION_MISMATCH),
        ([[-2, "nvmlDeviceGetName", None, 0, []]], VERSION_MISMATCH),
        ([[0, 7, None, 0, []]], VERSION_MISMATCH),
        ([[0, "nvmlDeviceGetName", [0] * 5, 0, []]], VERSION_MISMATCH),
        ([[0, "nvmlDeviceGetName", ["x"], 0, []]], VERSION_MISMATCH),
        ([[0, "nvmlDeviceGetName", None, 1000, []]], VERSION_MISMATCH),
        ([[0, "nvmlDeviceGetName", None, -1, []]], VERSION_MISMATCH),
    ],
)
def test_snapshot(script: Script, library: ctypes.CDLL, value: Any, result: int) -> None:
    script.snapshot = answer(value)
    assert library.nvmlInit_v2() == result
    if result == SUCCESS:
        assert library.nvmlShutdown() == SUCCESS
    assert library.nvmlShutdown() == UNINITIALIZED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nvmlDeviceGetTemperature", None),
        ("nvmlDeviceGetTemperature", []),
        ("nvmlDeviceGetTemperature", [1, 2]),
        ("nvmlDeviceGetTemperature", ["hot"]),
        ("nvmlDeviceGetTemperature", [2**32]),
        ("nvmlDeviceGetTemperature", [-(2**31) - 1]),
        ("nvmlDeviceGetMemoryInfo", [b"x" * 23]),
        ("nvmlDeviceGetMemoryInfo", [b"x" * 25]),
        ("nvmlDeviceGetMemoryInfo", [24]),
        ("nvmlDeviceGetComputeRunningProcesses", [7]),
        ("nvmlDeviceGetComputeRunningProcesses", [[b"x"]]),
        ("nvmlDeviceGetComputeRunningProcesses", [[b"x" * 16, b"x" * 15]]),
        ("nvmlDeviceGetVbiosVersion", [b"bytes"]),
        ("nvmlDeviceGetVbiosVersion", ["a\0b"]),
        ("nvmlDeviceGetVbiosVersion", [7]),
    ],
)
def test_live(script: Script, library: ctypes.CDLL, name: str, value: Any) -> None:
    script.snapshot, script.live = answer([]), answer(value)
    buffer = ctypes.create_string_buffer(b"\xee" * 64, 64)
    count = ctypes.c_uint(4)
    device = ctypes.c_void_p()
    assert library.nvmlInit_v2() == SUCCESS
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == SUCCESS
    arguments: dict[str, list[Any]] = {
        "nvmlDeviceGetTemperature": [0, buffer],
        "nvmlDeviceGetMemoryInfo": [buffer],
        "nvmlDeviceGetComputeRunningProcesses": [ctypes.byref(count), buffer],
        "nvmlDeviceGetVbiosVersion": [buffer, 64],
    }
    assert library[name](device, *arguments[name]) == UNKNOWN
    assert (buffer.raw, count.value) == (b"\xee" * 64, 4)
    script.live = pack_map({"type": "pong"})
    assert library[name](device, *arguments[name]) == GPU_IS_LOST
    assert library.nvmlShutdown() == SUCCESS


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bytes(script: Script, library: ctypes.CDLL, data: st.DataObject) -> None:
    """Whatever bytes arrive, the result is an NVML code and the library can be used again."""
    rows = [
        ROW,
        [0, "nvmlDeviceGetMemoryInfo", None, 0, [b"m" * 24]],
        [-1, "nvmlSystemGetDriverVersion", None, 0, ["1"]],
    ]
    body = bytearray(answer(rows))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    script.snapshot = bytes(body[: data.draw(st.integers(1, len(body)))])
    result = library.nvmlInit_v2()
    buffer, device = ctypes.create_string_buffer(96), ctypes.c_void_p()
    if result == SUCCESS:
        assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == SUCCESS
        library.nvmlDeviceGetName(device, buffer, 96)
        library.nvmlDeviceGetMemoryInfo(device, buffer)
        library.nvmlSystemGetDriverVersion(buffer, 96)
        assert library.nvmlShutdown() == SUCCESS
    else:
        assert 0 < result <= UNKNOWN
    assert library.nvmlShutdown() == UNINITIALIZED


def test_many_devices_fit(guest: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from vgpud.cli.private_daemon import PrivateDaemon

    with PrivateDaemon("h100:64") as daemon:
        monkeypatch.setenv("VGPU_ENDPOINT", str(daemon.endpoint))
        assert guest.nvmlInit_v2() == SUCCESS
        device, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        assert guest.nvmlDeviceGetHandleByIndex_v2(63, ctypes.byref(device)) == SUCCESS
        assert guest.nvmlDeviceGetName(device, name, 96) == SUCCESS
        assert name.value == b"NVIDIA H100 PCIe"
        assert guest.nvmlShutdown() == SUCCESS
