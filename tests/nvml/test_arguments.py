"""Finding devices; a wrong argument gives the error of NVIDIA's library, and no output is written."""

from __future__ import annotations

import ctypes

import pytest

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND = 0, 2, 3, 6, 7, 13
VERSION_MISMATCH = 25
MEMORY_V2 = 0x02000028


@pytest.fixture
def device(nvml: ctypes.CDLL) -> ctypes.c_void_p:
    return handle(nvml, 0)


def handle(nvml: ctypes.CDLL, index: int) -> ctypes.c_void_p:
    found = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(found)) == SUCCESS
    return found


def text(nvml: ctypes.CDLL, name: str, device: ctypes.c_void_p) -> bytes:
    buffer = ctypes.create_string_buffer(96)
    assert nvml[name](device, buffer, 96) == SUCCESS
    return buffer.value


def lookup(nvml: ctypes.CDLL, name: str, key: bytes | None) -> tuple[int, int | None]:
    found = ctypes.c_void_p()
    return nvml[name](key, ctypes.byref(found)), found.value


def test_index_beyond_the_devices(nvml: ctypes.CDLL) -> None:
    found = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(2, ctypes.byref(found)) == INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, None) == INVALID_ARGUMENT
    assert found.value is None


def test_lookups_lead_back(nvml: ctypes.CDLL) -> None:
    for index in range(2):
        device = handle(nvml, index)
        uuid = text(nvml, "nvmlDeviceGetUUID", device)
        assert lookup(nvml, "nvmlDeviceGetHandleByUUID", uuid) == (SUCCESS, device.value)
        assert lookup(nvml, "nvmlDeviceGetHandleByUUID", uuid.upper()) == (SUCCESS, device.value)
        number = ctypes.c_uint()
        assert nvml.nvmlDeviceGetIndex(device, ctypes.byref(number)) == SUCCESS
        assert number.value == index


@pytest.mark.parametrize("key", [b"0000:01:00.0", b"00000000:01:00.0", b"0:1:0", b"01:00.0", b"0000:01:00"])
def test_by_pci_address(nvml: ctypes.CDLL, key: bytes) -> None:
    assert lookup(nvml, "nvmlDeviceGetHandleByPciBusId_v2", key) == (SUCCESS, handle(nvml, 0).value)
    assert lookup(nvml, "nvmlDeviceGetHandleByPciBusId", key) == (SUCCESS, handle(nvml, 0).value)


@pytest.mark.parametrize(
    ("name", "key", "result"),
    [
        ("nvmlDeviceGetHandleByPciBusId_v2", b"0000:77:00.0", NOT_FOUND),
        ("nvmlDeviceGetHandleByPciBusId_v2", b"0000:01:00.1", NOT_FOUND),
        ("nvmlDeviceGetHandleByPciBusId_v2", b"somewhere", INVALID_ARGUMENT),
        ("nvmlDeviceGetHandleByPciBusId_v2", b"0000:01:00.0 ", INVALID_ARGUMENT),
        ("nvmlDeviceGetHandleByPciBusId_v2", None, INVALID_ARGUMENT),
        ("nvmlDeviceGetHandleByUUID", b"GPU-00000000-0000-0000-0000-000000000000", NOT_FOUND),
        ("nvmlDeviceGetHandleByUUID", b"GPU-", NOT_FOUND),
        ("nvmlDeviceGetHandleByUUID", None, INVALID_ARGUMENT),
        ("nvmlDeviceGetHandleBySerial", b"0000000000000", NOT_FOUND),
    ],
)
def test_lookup_of_what_is_not_there(nvml: ctypes.CDLL, name: str, key: bytes | None, result: int) -> None:
    assert lookup(nvml, name, key) == (result, None)


@pytest.mark.parametrize("wild", [0, 1, 8, 2**47 - 8, 2**64 - 1])
def test_wild_handle(nvml: ctypes.CDLL, wild: int) -> None:
    assert nvml.nvmlDeviceGetMemoryInfo(ctypes.c_void_p(wild), (ctypes.c_uint64 * 3)()) == INVALID_ARGUMENT


def test_small_text_buffer(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> None:
    name = text(nvml, "nvmlDeviceGetName", device)
    buffer = ctypes.create_string_buffer(b"\xee" * 96, 96)
    for length in (0, 1, len(name)):
        assert nvml.nvmlDeviceGetName(device, buffer, length) == INSUFFICIENT_SIZE
    assert buffer.raw == b"\xee" * 96
    assert nvml.nvmlDeviceGetName(device, buffer, len(name) + 1) == SUCCESS
    assert nvml.nvmlDeviceGetName(device, None, 96) == INVALID_ARGUMENT


@pytest.mark.parametrize("version", [0, 1, 2, 40, 0x01000028, 0x02000020, 0x03000028])
def test_struct_of_another_version(nvml: ctypes.CDLL, device: ctypes.c_void_p, version: int) -> None:
    words = (ctypes.c_uint32 * 10)(version, *[0xEEEEEEEE] * 9)
    assert nvml.nvmlDeviceGetMemoryInfo_v2(device, words) == VERSION_MISMATCH
    assert list(words) == [version, *[0xEEEEEEEE] * 9]


def test_both_versions_of_memory_agree(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> None:
    v1 = (ctypes.c_uint64 * 4)(0, 0, 0, 0xEEEE)
    v2 = (ctypes.c_uint64 * 6)(MEMORY_V2, 0, 0xEEEE, 0, 0, 0xEEEE)
    assert nvml.nvmlDeviceGetMemoryInfo(device, v1) == SUCCESS
    assert nvml.nvmlDeviceGetMemoryInfo_v2(device, v2) == SUCCESS
    total, free, used, after = v1
    assert list(v2) == [MEMORY_V2, total, 0, free, used, 0xEEEE]
    assert total == free + used > 0
    assert after == 0xEEEE
    assert nvml.nvmlDeviceGetMemoryInfo(device, None) == INVALID_ARGUMENT


def test_process_list_without_a_count(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> None:
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, None, None) == INVALID_ARGUMENT
    count = ctypes.c_uint(4)
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), None) == INVALID_ARGUMENT
    assert count.value == 4


def test_field_values_say_so_one_by_one(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> None:
    values = (ctypes.c_uint32 * 20)(*[1] * 20)
    assert nvml.nvmlDeviceGetFieldValues(device, 2, values) == SUCCESS
    assert [values[7], values[17]] == [NOT_SUPPORTED, NOT_SUPPORTED]
    assert nvml.nvmlDeviceGetFieldValues(device, 0, values) == INVALID_ARGUMENT


def test_peer_status_of_every_pair(nvml: ctypes.CDLL) -> None:
    """NCCL asks for every pair while it initialises: any error, even for a device with itself, ends NCCL."""
    devices = [handle(nvml, 0), handle(nvml, 1)]
    status = ctypes.c_uint(77)
    found = {}
    for a, first in enumerate(devices):
        for b, second in enumerate(devices):
            for index in (0, 1):
                assert nvml.nvmlDeviceGetP2PStatus(first, second, index, ctypes.byref(status)) == SUCCESS
                found[a, b, index] = status.value
    assert found == {(a, b, i): 0 if a == b else 5 for a in (0, 1) for b in (0, 1) for i in (0, 1)}
    assert nvml.nvmlDeviceGetP2PStatus(devices[0], None, 0, ctypes.byref(status)) == INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetP2PStatus(devices[0], devices[1], 9, ctypes.byref(status)) == INVALID_ARGUMENT


def test_nccls_names_answer(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> None:
    """NCCL accepts NOT_SUPPORTED for NVLink and fabric; a guest answers that it has no confidential computing."""
    number = ctypes.c_uint(77)
    assert nvml.nvmlDeviceGetNvLinkState(device, 0, ctypes.byref(number)) == NOT_SUPPORTED
    assert nvml.nvmlDeviceGetNvLinkCapability(device, 0, 0, ctypes.byref(number)) == NOT_SUPPORTED
    assert nvml.nvmlDeviceGetNvLinkRemotePciInfo(device, 0, ctypes.create_string_buffer(68)) == NOT_SUPPORTED
    fabric = (ctypes.c_uint32 * 16)(0x02000024)
    assert nvml.nvmlDeviceGetGpuFabricInfoV(device, fabric) == NOT_SUPPORTED
    assert nvml.nvmlDeviceGetGpuFabricInfoV(device, (ctypes.c_uint32 * 16)()) == NOT_SUPPORTED
    assert number.value == 77
    settings = (ctypes.c_uint32 * 6)(0x01000014, 7, 7, 7, 7, 7)
    assert nvml.nvmlSystemGetConfComputeSettings(settings) == SUCCESS
    assert list(settings) == [0x01000014, 0, 0, 0, 0, 7]
    state = (ctypes.c_uint32 * 4)(7, 7, 7, 7)
    assert nvml.nvmlSystemGetConfComputeState(state) == SUCCESS
    assert list(state) == [0, 0, 0, 7]


def test_private_tables(guest: ctypes.CDLL) -> None:
    table = ctypes.c_void_p(0xEEEE)
    known = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
    assert guest.nvmlInternalGetExportTable(ctypes.byref(table), known[::-1]) == FUNCTION_NOT_FOUND
    assert table.value is None
    assert guest.nvmlInternalGetExportTable(ctypes.byref(table), known) == SUCCESS
    assert table.value is not None
    words = (ctypes.c_uint64 * 270).from_address(table.value)
    assert words[0] == 2160
    assert all(words)
    assert ctypes.CFUNCTYPE(ctypes.c_int)(words[1])() == NOT_SUPPORTED


def test_event_sets(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> None:
    event_set = ctypes.c_void_p()
    assert nvml.nvmlEventSetCreate(ctypes.byref(event_set)) == SUCCESS
    for mask, result in ((0, SUCCESS), (1 | 2 | 8, SUCCESS), (8 | 16, NOT_SUPPORTED)):
        assert nvml.nvmlDeviceRegisterEvents(device, ctypes.c_uint64(mask), event_set) == result
    assert nvml.nvmlDeviceRegisterEvents(None, ctypes.c_uint64(8), event_set) == INVALID_ARGUMENT
    assert nvml.nvmlEventSetWait_v2(event_set, ctypes.create_string_buffer(64), 1) == 10
    assert nvml.nvmlEventSetFree(event_set) == SUCCESS
    assert nvml.nvmlEventSetFree(event_set) == INVALID_ARGUMENT


def test_error_strings(guest: ctypes.CDLL) -> None:
    import pynvml

    guest.nvmlErrorString.restype = ctypes.c_char_p
    ours = {code: guest.nvmlErrorString(code).decode() for code in range(10)}
    assert ours[9] == "Driver Not Loaded"
    assert {code: text for code, text in ours.items() if text != str(pynvml.NVMLError(code)) and code} == {}
    assert guest.nvmlErrorString(999) == guest.nvmlErrorString(12345) == b"Unknown Error"


def test_cuda_visible_devices_is_not_nvmls(nvml: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    number = ctypes.c_uint()
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)) == SUCCESS
    assert number.value == 2


@pytest.mark.parametrize(
    ("name", "nbytes"), [("nvmlDeviceGetPciInfo", 32), ("nvmlDeviceGetPciInfo_v2", 36), ("nvmlDeviceGetPciInfo_v3", 68)]
)
def test_n02_an_older_name_writes_no_more_than_its_struct(
    nvml: ctypes.CDLL, device: ctypes.c_void_p, name: str, nbytes: int
) -> None:
    """hashcat calls the oldest name with a struct of 52 bytes on its stack."""
    for filler in (b"\xee", b"\x11"):
        buffer = ctypes.create_string_buffer(filler * 128, 128)
        assert getattr(nvml, name)(device, buffer) == 0
        assert buffer.raw[nbytes:] == filler * (128 - nbytes)
        assert buffer.raw[:12] == b"0000:01:00.0"
