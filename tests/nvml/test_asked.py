"""What vgpud forwards to a host's NVML, from a program's call to the host's function and back.

The host's library is a stand-in whose answers can be told apart; between it and the guest's library are vgpud's
service and the control protocol.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vgpud.devices.inventory import load_inventory
from vgpud.nvml.host import HostNvml
from vgpud.nvml.service import NvmlService
from vgpud.proto import Nvml
from vgpud.proto.packing import pack_map
from vgpud.tenancy.peer import Peer

from tests.nvml.conftest import LIBRARY, VARIABLES
from tests.nvml.test_hostile import WELCOME, Script
from tests.nvml.test_service import FakeWorker, session

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, TIMEOUT = 0, 2, 3, 6, 7, 10
ECC, XID = 2, 8
MINE, WORKER = 41, 901  # the pid of the guest's one process, and its worker's


class Served(Script):
    """vgpud's NVML service behind the control protocol, for a guest with one process."""

    def __init__(self, path: str, service: NvmlService, inventory: dict[str, Any]) -> None:
        self._service = service
        self._asking = session(1, Peer("vsock", cid=3), pid=MINE, worker=FakeWorker(WORKER, (1, 1)))
        self._welcome = pack_map(WELCOME | {"inventory": inventory})
        super().__init__(path)

    def reply(self, asked: dict[str, Any]) -> bytes:
        if asked["type"] == "hello":
            return self._welcome
        question = Nvml(asked["call"], asked["device"], tuple(asked["arguments"]))
        answer = asyncio.run(self._service.answer(question, self._asking, [self._asking]))
        return pack_map({"type": "answer", "result": int(answer.result), "value": answer.value})


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("standin") / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("standin.c")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", path, source], check=True)
    library = ctypes.CDLL(str(path))
    library.standin_event.argtypes = [ctypes.c_uint, ctypes.c_uint64, ctypes.c_uint64]
    return library


@pytest.fixture(scope="module")
def nvml(standin: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    loaded = load_inventory("simulator", "h100:2", "libcuda.so.1")
    fields = loaded.fields | {"backend": "cuda"}
    for device in fields["devices"]:  # both reach the other, as two cards on one switch
        device["peers"] = struct.pack("<5i", 0, 1, 0, 0, 0) * 2
    path = f"{tmp_path_factory.mktemp('asked')}/s"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vgpud.nvml.service.HostNvml", lambda given: HostNvml(given, standin._name))
        served = Served(path, NvmlService(type(loaded)(fields, loaded.gpus, loaded.host_seed)), fields)
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        patch.setenv("VGPU_ENDPOINT", f"unix:{path}")
        library = ctypes.CDLL(str(LIBRARY))
        assert library.nvmlInit_v2() == SUCCESS
        yield library
        assert library.nvmlShutdown() == SUCCESS
    served.close()


@pytest.fixture
def devices(nvml: ctypes.CDLL) -> list[ctypes.c_void_p]:
    found = [ctypes.c_void_p(), ctypes.c_void_p()]
    for index, device in enumerate(found):
        assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == SUCCESS
    return found


def test_field_values_come_one_by_one(nvml: ctypes.CDLL, devices: list[ctypes.c_void_p]) -> None:
    layout = struct.Struct("<IIQQIIQ")
    values = ctypes.create_string_buffer(
        b"".join(layout.pack(*row, 0, 0, 0, 0, 0) for row in [(82, 0), (90, 1), (138, 2), (91, 3)])
    )
    assert nvml.nvmlDeviceGetFieldValues(devices[1], 4, values) == SUCCESS
    rows = [layout.unpack_from(values, i * layout.size) for i in range(4)]
    assert rows[0] == (82, 0, 5, 0, 3, SUCCESS, 82001)
    assert rows[1][:2] + rows[1][5:6] == (90, 1, NOT_SUPPORTED)
    assert rows[2] == (138, 2, 5, 0, 3, SUCCESS, 138021)
    assert rows[3][:2] + rows[3][5:6] == (91, 3, INVALID_ARGUMENT)
    assert nvml.nvmlDeviceClearFieldValues(devices[0], 1, values) == SUCCESS
    assert layout.unpack_from(values, 0)[5] == NOT_SUPPORTED


def test_samples_say_first_how_much_room_they_need(nvml: ctypes.CDLL, devices: list[ctypes.c_void_p]) -> None:
    kind, count = ctypes.c_uint(), ctypes.c_uint()
    since = ctypes.c_uint64(2**40)
    ask = nvml.nvmlDeviceGetSamples
    assert ask(devices[0], 1, since, ctypes.byref(kind), ctypes.byref(count), None) == SUCCESS
    assert count.value >= 3
    samples = (ctypes.c_uint64 * (2 * count.value))()
    assert ask(devices[0], 1, since, ctypes.byref(kind), ctypes.byref(count), samples) == SUCCESS
    assert (kind.value, count.value) == (1, 3)
    assert list(samples[:6]) == [2**40, 100, 2**40 + 1, 101, 2**40 + 2, 102]
    count.value = 2
    assert ask(devices[0], 1, since, ctypes.byref(kind), ctypes.byref(count), samples) == INSUFFICIENT_SIZE
    assert count.value == 3


def test_only_the_guests_own_processes(nvml: ctypes.CDLL, devices: list[ctypes.c_void_p]) -> None:
    layout = struct.Struct("<I4xQIIII")
    count, since = ctypes.c_uint(9), ctypes.c_uint64(77)
    ask = nvml.nvmlDeviceGetProcessUtilization
    assert ask(devices[0], None, ctypes.byref(count), since) == INSUFFICIENT_SIZE
    assert count.value == 1
    samples = ctypes.create_string_buffer(layout.size)
    assert ask(devices[0], samples, ctypes.byref(count), since) == SUCCESS
    assert layout.unpack(samples.raw[: layout.size]) == (MINE, 77, 11, 0, 0, 0)
    pids = (ctypes.c_uint * 8)()
    count.value = 8
    assert nvml.nvmlDeviceGetAccountingPids(devices[0], ctypes.byref(count), pids) == SUCCESS
    assert list(pids[: count.value]) == [MINE]
    stats = (ctypes.c_uint * 16)()
    assert nvml.nvmlDeviceGetAccountingStats(devices[0], MINE, stats) == SUCCESS
    assert stats[0] == WORKER
    assert nvml.nvmlDeviceGetAccountingStats(devices[0], WORKER, stats) == NOT_FOUND


def test_states_clocks_and_offsets(nvml: ctypes.CDLL, devices: list[ctypes.c_void_p]) -> None:
    states = (ctypes.c_uint * 17)(*[77] * 17)
    assert nvml.nvmlDeviceGetSupportedPerformanceStates(devices[0], states, 4) == INSUFFICIENT_SIZE
    assert states[0] == 77
    assert nvml.nvmlDeviceGetSupportedPerformanceStates(devices[0], states, 12) == SUCCESS
    assert list(states[:4]) == [2, 0, 32, 77]
    assert nvml.nvmlDeviceGetSupportedPerformanceStates(devices[0], states, 68) == SUCCESS
    assert list(states) == [2, 0, *[32] * 15]
    count, clocks = ctypes.c_uint(0), (ctypes.c_uint * 2)()
    assert nvml.nvmlDeviceGetSupportedMemoryClocks(devices[0], ctypes.byref(count), None) == INSUFFICIENT_SIZE
    assert count.value == 2
    assert nvml.nvmlDeviceGetSupportedMemoryClocks(devices[0], ctypes.byref(count), clocks) == SUCCESS
    assert list(clocks) == [2619, 1593]
    offset = (ctypes.c_int * 6)(0x01000018, 2, 5, 0, 0, 0)
    assert nvml.nvmlDeviceGetClockOffsets(devices[0], offset) == SUCCESS
    assert list(offset) == [0x01000018, 2, 5, -25, 0, 0]


def test_pairs_of_devices(nvml: ctypes.CDLL, devices: list[ctypes.c_void_p]) -> None:
    path = ctypes.c_uint()
    ask = nvml.nvmlDeviceGetTopologyCommonAncestor
    assert ask(devices[1], devices[0], ctypes.byref(path)) == SUCCESS
    assert path.value == 20
    assert ask(devices[0], devices[1], ctypes.byref(path)) == SUCCESS
    assert path.value == 11
    assert ask(devices[0], None, ctypes.byref(path)) == INVALID_ARGUMENT
    # the stand-in lacks these two, as an older host's library does
    assert nvml.nvmlDeviceOnSameBoard(devices[0], devices[1], ctypes.byref(path)) == NOT_SUPPORTED
    assert nvml.nvmlDeviceGetP2PStatus(devices[0], devices[1], 2, ctypes.byref(path)) == SUCCESS
    assert path.value == 5
    assert nvml.nvmlDeviceGetP2PStatus(devices[0], devices[1], 0, ctypes.byref(path)) == SUCCESS
    assert path.value == 0


def test_events(nvml: ctypes.CDLL, standin: ctypes.CDLL, devices: list[ctypes.c_void_p]) -> None:
    """A set gets events of the types that it registered, from its registration on; no set gets errors that programs
    caused.
    """
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    assert nvml.nvmlEventSetCreate(ctypes.byref(first)) == SUCCESS
    assert nvml.nvmlEventSetCreate(ctypes.byref(second)) == SUCCESS
    register = nvml.nvmlDeviceRegisterEvents
    assert register(devices[0], ctypes.c_uint64(16), first) == NOT_SUPPORTED
    assert register(devices[0], ctypes.c_uint64(0), first) == SUCCESS
    assert register(devices[0], ctypes.c_uint64(XID), first) == SUCCESS
    assert register(devices[1], ctypes.c_uint64(XID | ECC), second) == SUCCESS
    for event in [(0, XID, 31), (0, ECC, 1), (1, XID, 48), (0, XID, 79), (1, ECC, 2)]:
        assert standin.standin_event(*event)
    layout = struct.Struct("<QQQII")
    data = ctypes.create_string_buffer(b"\xee" * layout.size, layout.size)

    def take(events: ctypes.c_void_p, timeout_ms: int = 60000) -> Any:
        code = nvml.nvmlEventSetWait_v2(events, data, timeout_ms)
        return layout.unpack(data.raw) if code == SUCCESS else code

    assert take(first) == (devices[0].value, XID, 79, 7, 8)
    assert take(second) == (devices[1].value, XID, 48, 7, 8)
    assert take(second) == (devices[1].value, ECC, 2, 7, 8)
    assert take(first, 1) == take(second, 1) == TIMEOUT
    assert standin.standin_event(0, XID, 95)
    data = ctypes.create_string_buffer(b"\xee" * layout.size, layout.size)
    assert nvml.nvmlEventSetWait(first, data, 60000) == SUCCESS  # the older struct ends before the instances
    assert layout.unpack(data.raw) == (devices[0].value, XID, 95, 0xEEEEEEEE, 0xEEEEEEEE)
    late = ctypes.c_void_p()
    assert nvml.nvmlEventSetCreate(ctypes.byref(late)) == SUCCESS
    assert register(devices[0], ctypes.c_uint64(XID), late) == SUCCESS
    assert take(late, 1) == TIMEOUT
    for event_set in (first, second, late):
        assert nvml.nvmlEventSetFree(event_set) == SUCCESS
    assert take(first, 1) == INVALID_ARGUMENT
