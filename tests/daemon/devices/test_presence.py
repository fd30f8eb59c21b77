"""Withdrawing a device ends the sessions that use it, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from vgpud.cli.admin_client import AdminError
from vgpud.cli.main import vgpu
from vgpud.devices.presence import Presence
from vgpud.devices.watch import DeviceWatch, parse_uevent, parse_xid

from tests.daemon.running import Running, vgpud_with_real_workers, wait_until
from tests.daemon.serving.test_succession import Program, restart

CONTEXT = """
def context_on(device):
    ctx = c_void_p()
    ok(cuda.cuInit(0))
    result = cuda.cuCtxCreate_v2(byref(ctx), 0, device)
    return result
"""
COMPUTE = "ok(cuda.cuMemsetD32_v2(p, 7, c_size_t(16)))\nok(cuda.cuCtxSynchronize())\n"


@pytest.fixture(params=["shared memory", "socket"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    shared = str(request.param == "shared memory").lower()
    yield from vgpud_with_real_workers(tmp_path, f"gpus = 'h100:2'\nshared_memory = {shared}\n")


def order(running: Running, *arguments: str) -> str:
    done = CliRunner().invoke(vgpu, ["device", *arguments, "--admin", str(running.admin_path)])
    assert done.exit_code == 0, done.output
    return done.output


def test_only_the_sessions_of_a_device_end_with_it(running: Running) -> None:
    url = str(running.endpoint)
    stays = Program(url, f"{CONTEXT}\nok(context_on(0)); p = alloc(64)", COMPUTE)
    goes = Program(
        url,
        f"{CONTEXT}\nok(context_on(1)); p = alloc(64)",
        "assert cuda.cuMemsetD32_v2(p, 7, c_size_t(16)) or 46 == cuda.cuCtxSynchronize()\n",
    )
    both = Program(url, f"{CONTEXT}\nok(context_on(0)); p = alloc(64)", f"assert context_on(1) == 46\n{COMPUTE}")
    greeted = Program(url, "ok(cuda.cuInit(0))", f"{CONTEXT}\nassert context_on(1) == 46\n")
    assert order(running, "withdraw", "1", "--why", "it has fallen off") == "1 sessions ended\n"
    assert "it has fallen off" in order(running, "list")
    wait_until(lambda: len(running.admin.get("sessions")["sessions"]) == 3)
    for program in (stays, goes, both, greeted):
        program.step()
    restart(running)
    assert running.status()["out_of_service"] == {"1": "it has fallen off"}
    late = Program(url, "ok(cuda.cuInit(0))", f"{CONTEXT}\nassert context_on(1) == 46\n")
    late.step()
    order(running, "restore", "1")
    again = Program(url, f"{CONTEXT}\nok(context_on(1)); p = alloc(64)", COMPUTE)
    for program in (stays, again):
        program.step()
    for program in (stays, goes, both, greeted, late, again):
        program.end()
    assert "device 1 is out of service: it has fallen off" in running.log


def test_what_is_no_device_is_refused(running: Running) -> None:
    for device in ("2", "-1", "x"):
        with pytest.raises(AdminError, match="there is no device"):
            running.admin.request("PUT", "devices", device, "service")
    with pytest.raises(AdminError, match="why: a text"):
        running.admin.request("DELETE", "devices", "0", "service", document={"why": "two\nlines"})
    assert running.status()["out_of_service"] == {}


UEVENT = (
    b"remove@/devices/pci0000:00/0000:00:02.0/0000:01:00.0\0ACTION=remove\0SUBSYSTEM=pci\0PCI_SLOT_NAME=0000:01:00.0\0"
)
XID = "4,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_the_kernels_words_are_read() -> None:
    assert parse_uevent(UEVENT) == ("remove", "0000:01:00.0")
    for other in (
        b"",
        b"add@/x\0ACTION=add\0SUBSYSTEM=usb\0PCI_SLOT_NAME=0000:01:00.0\0",
        b"\xff\xfe=\0=",
        b"add@/x\0",
    ):
        assert parse_uevent(other) is None
    assert parse_xid(XID) == ("0000:01:00", 79)
    assert parse_xid("NVRM: Xid (PCI:0000:01:00): 31, pid=1, MMU Fault") == ("0000:01:00", 31)
    assert parse_xid("somebody says Xid 79") is None


def test_what_they_mean_for_devices() -> None:
    masks: list[int] = []
    presence = Presence(["0000:01:00.0", "0000:C1:00.0"], masks.append)
    xids: list[tuple[str, int]] = []

    def gone(address: str, why: str) -> None:
        if (device := presence.at(address)) is not None:
            presence.withdraw(device, why)

    watch = DeviceWatch(gone, lambda _address: None, lambda *found: xids.append(found))
    watch.take_line(XID.replace("79", "31"))
    assert presence.states == ["", ""]  # Xid 31 is a program's fault, not the device's
    watch.take_line(XID)
    watch.take_line(XID)
    watch.take_uevent(UEVENT.replace(b"0000:01:00.0", b"0000:c1:00.0"))
    watch.take_uevent(UEVENT.replace(b"0000:01:00.0", b"0000:05:00.0"))
    assert presence.states == ["Xid 79: it has fallen off the bus", "it has left the bus"]
    assert masks == [1, 3]
    assert [number for _address, number in xids] == [31, 79, 79]
    assert presence.restore(0)
    assert not presence.restore(0)
    assert presence.mask == 2


@pytest.mark.asyncio
async def test_it_listens_to_the_kernel_alone() -> None:
    """Open and close the sources of kernel events, as far as this machine lets a process open them."""

    async def watch() -> None:
        found = DeviceWatch(lambda *_: None, lambda *_: None, lambda *_: None)
        found.start()
        found.close()

    await watch()
