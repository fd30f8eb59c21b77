"""vgpud's NVML service, without a client: which processes a client may see, and answers to malformed requests."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from vgpud.devices.inventory import Inventory, load_inventory
from vgpud.log import get_logger
from vgpud.nvml.call import CALLS, NvmlResult
from vgpud.nvml.service import NvmlService
from vgpud.proto import Answer, ClientInfo, Nvml
from vgpud.tenancy.peer import Peer
from vgpud.tenancy.session import Session

MIB = 1 << 20
MEMORY_V2 = 0x02000028


class FakeWorker:
    """A worker with only what the NVML service uses."""

    def __init__(self, pid: int, used: tuple[int, ...] | None) -> None:
        self.pid = pid
        self._used = used

    async def memory(self) -> tuple[int, ...] | None:
        return self._used


def session(number: int, peer: Peer, *, token: str | None = None, pid: int = 0, worker: Any = None) -> Session:
    made = Session(number, 1, peer, ClientInfo(pid=pid), token, get_logger())
    made.worker = worker
    return made


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    return load_inventory("simulator", "h100,t4", "libcuda.so.1")


@pytest.fixture
def service(inventory: Inventory) -> NvmlService:
    return NvmlService(inventory)


def ask(service: NvmlService, asking: Session, others: list[Session], call: str, device: int, *given: int) -> Answer:
    return asyncio.run(service.answer(Nvml(call, device, given), asking, [asking, *others]))


def processes(answer: Answer) -> list[tuple[int, int]]:
    assert answer.result == NvmlResult.SUCCESS
    return [struct.unpack("<IxxxxQ", item[:16]) for item in answer.value[0]]


def test_another_guest_is_not_seen(service: NvmlService) -> None:
    asking = session(1, Peer("vsock", cid=3))
    own = session(2, Peer("vsock", cid=3), pid=70, worker=FakeWorker(900, (5 * MIB, 0)))
    other = session(3, Peer("vsock", cid=4), pid=71, worker=FakeWorker(901, (7 * MIB, 0)))
    answer = ask(service, asking, [own, other], "nvmlDeviceGetComputeRunningProcesses_v3", 0)
    assert processes(answer) == [(70, 5 * MIB)]
    total, free, used = struct.unpack("<3Q", ask(service, asking, [own, other], "nvmlDeviceGetMemoryInfo", 0).value[0])
    assert used == 5 * MIB
    assert total == free + used


def test_another_tenant_of_the_same_address_is_not_seen(service: NvmlService) -> None:
    peer = Peer("tcp", host="10.0.0.1")
    asking = session(1, peer, token="a")
    other = session(2, peer, token="b", pid=9, worker=FakeWorker(900, (MIB, 0)))
    assert processes(ask(service, asking, [other], "nvmlDeviceGetComputeRunningProcesses", 0)) == []


def test_a_share_sees_its_devices_alone(service: NvmlService, inventory: Inventory) -> None:
    """The T4 alone, as device 0, and at the address of the first stub in a VM."""
    peer = Peer("vsock", cid=3)
    asking, other = session(1, peer), session(2, peer, pid=7, worker=FakeWorker(900, (3 * MIB, 5 * MIB)))
    own = session(3, peer, pid=8, worker=FakeWorker(901, (2 * MIB,)))
    asking.devices = own.devices = (1,)  # `other` had its worker before the share was changed
    assert ask(service, asking, [], "nvmlDeviceGetName", 0).value == [inventory.fields["devices"][1]["name"]]
    assert ask(service, asking, [], "nvmlDeviceGetName", 1).result == NvmlResult.INVALID_ARGUMENT
    running = ask(service, asking, [other, own], "nvmlDeviceGetComputeRunningProcesses", 0)
    assert processes(running) == [(7, 5 * MIB), (8, 2 * MIB)]
    asking.pci = ("0000:42:00.0", "0000:43:00.0")
    rows = [row for row in ask(service, asking, [], "snapshot", -1).value if row[0] != -1]
    assert {row[0] for row in rows} == {0}
    asked = ask(service, asking, [], "nvmlDeviceGetPciInfo_v3", 0).value
    assert [row[4] for row in rows if row[1] == "nvmlDeviceGetPciInfo_v3"] == [asked]
    assert b"0000:42:00.0" in asked[0]


def test_a_worker_that_does_not_tell(service: NvmlService) -> None:
    """The worker's memory use is unknown, so the device's is, too; the process is listed on every device."""
    asking = session(1, Peer("vsock", cid=3), pid=5, worker=FakeWorker(900, None))
    assert ask(service, asking, [], "nvmlDeviceGetMemoryInfo_v2", 0, MEMORY_V2).result == NvmlResult.NOT_SUPPORTED
    answer = ask(service, asking, [], "nvmlDeviceGetComputeRunningProcesses_v2", 1)
    assert processes(answer) == [(5, 2**64 - 1)]


def test_two_sessions_may_use_more_than_there_is(service: NvmlService, inventory: Inventory) -> None:
    total_nbytes = inventory.fields["devices"][1]["memory_nbytes"]
    peer = Peer("vsock", cid=3)
    both = [session(n, peer, worker=FakeWorker(n, (0, total_nbytes - MIB))) for n in (2, 3)]
    total, free, used = struct.unpack(
        "<3Q", ask(service, session(1, peer), both, "nvmlDeviceGetMemoryInfo", 1).value[0]
    )
    assert (total, free, used) == (total_nbytes, 0, total_nbytes)


@pytest.mark.parametrize(
    ("question", "result"),
    [
        (Nvml("nvmlDeviceSetPersistenceMode", 0, (1,)), NvmlResult.NOT_SUPPORTED),
        (Nvml("no such name", 0), NvmlResult.NOT_SUPPORTED),
        (Nvml("nvmlDeviceGetName", 2), NvmlResult.INVALID_ARGUMENT),
        (Nvml("nvmlDeviceGetName", -1), NvmlResult.INVALID_ARGUMENT),
        (Nvml("nvmlDeviceGetName", 0, (1,)), NvmlResult.INVALID_ARGUMENT),
        (Nvml("nvmlDeviceGetMaxClockInfo", 0, (99,)), NvmlResult.NOT_SUPPORTED),
        (Nvml("nvmlDeviceGetTemperature", 0, (0,)), NvmlResult.NOT_SUPPORTED),
    ],
)
@pytest.mark.asyncio
async def test_nonsense(service: NvmlService, question: Nvml, result: NvmlResult) -> None:
    asking = session(1, Peer("vsock", cid=3))
    answer = await service.answer(question, asking, [asking])
    assert (answer.result, answer.value) == (result, None)


def test_the_snapshot_leaves_out_only_what_changes(service: NvmlService) -> None:
    rows = ask(service, session(1, Peer("vsock", cid=3)), [], "snapshot", -1).value
    told = {name for _, name, _, _, _ in rows}
    assert set(CALLS) - told == {
        name for name in CALLS if "MemoryInfo" in name.replace("BAR1", "") and "BAR1" not in name
    } | {f"nvmlDeviceGetComputeRunningProcesses{version}" for version in ("", "_v2", "_v3")}
    for device, name, given, result, value in rows:
        assert name in CALLS
        assert -1 <= device < 2
        assert given is None or len(given) == CALLS[name].argument_count
        assert (value is None) == (result != 0)


def test_a_guests_own_address_is_in_every_answer_about_pci(service: NvmlService) -> None:
    asking, other = session(1, Peer("vsock", cid=3)), session(2, Peer("vsock", cid=4))
    asking.pci = ("0001:0a:1f.0",)
    told = {name: value for device, name, _, _, value in ask(service, asking, [], "snapshot", -1).value if device == 0}
    for name in ("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3"):
        assert told[name] == ask(service, asking, [], name, 0).value
        assert b"0001:0A:1F.0" in told[name][0]
        assert b"0000:01:00.0" in ask(service, other, [], name, 0).value[0]
        assert ask(service, asking, [], name, 1) == ask(service, other, [], name, 1)
