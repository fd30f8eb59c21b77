"""The vsock device as seen by a guest that follows the protocol: streams, credit, half-close, reset, restart."""

from __future__ import annotations

import os
import socket
import stat
import struct

from vgpud.vm.control import control_path
from vgpud.vm.mux import STREAMS_MAX
from vgpud.vm.packet import RECEIVE, SEND, Op
from vgpud.vm.stream import BUF_ALLOC

from tests.daemon.running import wait_until
from tests.daemon.vm.driver import CID, PORT, Driver, receive_exactly
from tests.patience import PATIENCE_S


def test_the_socket_is_the_groups(bare: Driver) -> None:
    assert stat.S_IMODE(os.stat(bare.path).st_mode) == 0o660
    assert stat.S_IMODE(os.stat(control_path(str(bare.path))).st_mode) == 0o600


def test_the_guest_reads_its_cid(driver: Driver) -> None:
    answer = driver.ask(24, struct.pack("<III", 0, 8, 0) + bytes(8))
    assert answer == struct.pack("<IIIQ", 0, 8, 0, CID)
    assert driver.ask(24, struct.pack("<III", 4, 8, 0) + bytes(8)) == b""  # beyond the configuration's end


def test_bytes_go_both_ways(driver: Driver) -> None:
    host = driver.open()
    driver.send(Op.RW, data=b"from the guest")
    assert host.recv(100) == b"from the guest"
    host.sendall(b"from the host")
    packet = driver.packet(Op.RW)
    assert packet.data == b"from the host"
    assert (packet.header.source_port, packet.port) == (PORT, 1024)


def test_header_and_data_in_one_descriptor(driver: Driver) -> None:
    """Linux 6.3 and newer send packets like this."""
    host = driver.open()
    from vgpud.vm.packet import HEADER, Header

    text = HEADER.pack(*Header(CID, 2, 1024, PORT, 5, 1, Op.RW, 0, 1 << 18, 0)) + b"whole"
    driver.memory[0x20_0000 : 0x20_0000 + len(text)] = text
    driver.rings[1].describe(0, 0x1000_0000 + 0x20_0000, len(text))
    driver.add_and_wait(0)
    assert host.recv(100) == b"whole"


def test_a_port_nobody_listens_on(driver: Driver) -> None:
    driver.send(Op.REQUEST, target_port=22)
    assert driver.packet().op == Op.RST
    driver.send(Op.RW, port=5, data=b"no such stream")
    assert driver.packet().op == Op.RST


def test_packets_that_are_not_ours_are_dropped(driver: Driver) -> None:
    """Packets from another CID, or to a CID other than the host's, get no answer and do no harm."""
    driver.send(Op.REQUEST, source_cid=CID + 1)
    driver.send(Op.REQUEST, target_cid=CID + 1)
    driver.send(Op.REQUEST, source_cid=2**64 - 1)
    driver.open()
    assert not driver.streams


def test_other_socket_types_are_refused(driver: Driver) -> None:
    driver.send(Op.REQUEST, type=2)  # SEQPACKET
    assert driver.packet().op == Op.RST


def test_the_host_sends_no_more_than_the_guest_has_room_for(driver: Driver) -> None:
    host = driver.open(alloc=10_000)
    sent = bytes(range(256)) * 100
    host.sendall(sent)
    got = b""
    while len(got) < 10_000:
        got += driver.packet(Op.RW).data
    assert driver.packet().op == Op.CREDIT_REQUEST
    driver.send(Op.CREDIT_UPDATE, alloc=10_000, forwarded=0)  # no new credit
    assert not driver.poll(0.2)
    driver.send(Op.CREDIT_UPDATE, alloc=10_000, forwarded=len(got))
    while len(got) < 20_000:
        got += driver.packet(Op.RW).data
    driver.send(Op.CREDIT_UPDATE, alloc=10_000, forwarded=len(got))
    while len(got) < len(sent):
        got += driver.packet(Op.RW).data
    assert got == sent


def test_the_guest_hears_of_credit_in_time(driver: Driver) -> None:
    """The size of a guest's own buffer limits its credit, too, however large the host's buffer is."""
    alloc = 8192
    host = driver.open(alloc=alloc)
    sent = told = 0
    for _ in range(50):
        driver.send(Op.RW, data=b"x" * 2048, alloc=alloc)
        sent += 2048
        receive_exactly(host, 2048)
        while sent - told > alloc // 2:
            told = driver.packet(Op.CREDIT_UPDATE).header.fwd_cnt


def test_a_host_that_does_not_read_holds_the_guest_up(driver: Driver) -> None:
    """The device buffers no more than the guest has credit for; when the host reads, everything arrives in order."""
    host = driver.open()
    sent = bytearray()
    forwarded = 0
    while True:
        if len(sent) - forwarded >= BUF_ALLOC:
            if not driver.packets and not driver.poll(0.5):
                break  # no credit came: the buffers of the host and of this test are full
            forwarded = driver.packet(Op.CREDIT_UPDATE).header.fwd_cnt
            continue
        data = os.urandom(16_384)
        driver.send(Op.RW, data=data)
        sent += data
    got = receive_exactly(host, len(sent))
    assert got == sent
    assert driver.packet(Op.CREDIT_UPDATE).header.fwd_cnt > forwarded


def test_sending_without_credit_resets_that_stream_alone(driver: Driver) -> None:
    other = driver.open(port=9)
    driver.open()
    for _ in range(64):
        driver.send(Op.RW, data=bytes(0x1_0000 - 1))
        if driver.packets or driver.poll(0):
            packet = driver.packets.popleft()
            if packet.op == Op.RST:
                break
    else:
        while driver.packet().op != Op.RST:
            pass
    driver.send(Op.RW, port=9, data=b"still here")
    assert other.recv(100) == b"still here"


def test_the_guest_closes_half(driver: Driver) -> None:
    host = driver.open()
    driver.send(Op.RW, data=b"last words")
    driver.send(Op.SHUTDOWN, flags=SEND)
    assert host.recv(100) == b"last words"
    assert host.recv(100) == b""
    host.sendall(b"answer")
    assert driver.packet(Op.RW).data == b"answer"
    driver.send(Op.SHUTDOWN, flags=SEND | RECEIVE)
    assert driver.packet().op == Op.RST  # confirmed: the port may be used again
    assert host.recv(100) == b""
    driver.open()


def test_the_host_closes_half(driver: Driver) -> None:
    host = driver.open()
    host.sendall(b"last words")
    host.shutdown(socket.SHUT_WR)
    assert driver.packet(Op.RW).data == b"last words"
    packet = driver.packet()
    assert (packet.op, packet.header.flags) == (Op.SHUTDOWN, SEND)
    driver.send(Op.RW, data=b"answer")
    assert host.recv(100) == b"answer"
    host.close()
    packet = driver.packet()
    assert (packet.op, packet.header.flags) == (Op.SHUTDOWN, SEND | RECEIVE)
    driver.send(Op.RST)
    driver.open()


def test_the_host_closes_with_bytes_on_their_way(driver: Driver) -> None:
    host = driver.open()
    sent = bytes(100_000)
    host.sendall(sent)
    host.close()
    got = 0
    while got < len(sent):
        got += len(driver.packet(Op.RW).data)
    assert driver.packet().op == Op.SHUTDOWN


def test_a_worker_that_died_resets_what_still_comes(driver: Driver) -> None:
    driver.open().close()
    assert driver.packet().op == Op.SHUTDOWN
    driver.send(Op.RW, data=b"too late")
    assert driver.packet().op == Op.RST


def test_the_guest_resets_a_stream(driver: Driver) -> None:
    host = driver.open()
    driver.send(Op.RST)
    assert host.recv(100) == b""


def test_many_streams_and_no_more(driver: Driver) -> None:
    streams = [driver.open(port=1000 + index) for index in range(100)]
    for index in range(100):
        driver.send(Op.RW, port=1000 + index, data=b"%d" % index)
    for index, host in enumerate(streams):
        assert host.recv(100) == b"%d" % index
        host.sendall(b"%d" % index)
    got = {}
    while len(got) < 100:
        packet = driver.packet(Op.RW)
        got[packet.port - 1000] = packet.data
    assert got == {index: b"%d" % index for index in range(100)}
    for host in streams:
        host.close()


def test_the_limit_of_streams(driver: Driver) -> None:
    streams = [driver.open(port=1000 + index) for index in range(STREAMS_MAX)]
    driver.send(Op.REQUEST, port=1)
    assert driver.packet(Op.RST).port == 1
    streams[7].close()  # an ended stream makes room
    assert driver.packet(Op.SHUTDOWN).port == 1007
    driver.send(Op.REQUEST, port=1)
    assert driver.packet(Op.RST).port == 1007
    assert driver.packet().op == Op.RESPONSE
    for host in streams:
        host.close()


def test_a_guest_without_buffers_for_packets_loses_none(bare: Driver) -> None:
    bare.set_up(rx_buffers=1)
    hosts = [bare.open(port=1000 + index) for index in range(10)]
    for host in hosts:
        host.sendall(b"x" * 10_000)
    got = 0
    while got < 100_000:
        got += len(bare.packet(Op.RW).data)
    for host in hosts:
        host.close()


def test_a_guest_that_was_reset_has_no_streams(driver: Driver) -> None:
    host = driver.open()
    for ring in driver.rings[:2]:
        driver.ask(11, struct.pack("<II", ring.index, 0))
    driver.set_up()
    assert host.recv(100) == b""
    driver.open()


def test_a_guest_that_was_stopped_goes_on(driver: Driver) -> None:
    host = driver.open()
    for ring in driver.rings[:2]:
        _, base = struct.unpack("<II", driver.ask(11, struct.pack("<II", ring.index, 0)))
        driver.set_up_ring(ring, base)
    driver.rings[0].notify()
    driver.send(Op.RW, data=b"here again")
    assert host.recv(100) == b"here again"
    host.sendall(b"welcome")
    assert driver.packet(Op.RW).data == b"welcome"


def test_a_guest_that_ran_before_is_told_to_forget_its_streams(bare: Driver) -> None:
    """The VMM passes the event ring, and its rings have been used before, with an earlier process of the device."""
    bare.connect()
    bare.set_up(rings=3, base=77)
    events = bare.rings[2]
    bare.memory[0x30_0000:0x30_0004] = b"\xff" * 4
    events.describe(0, 0x1000_0000 + 0x30_0000, 8, 2)
    events.add(0)
    events.notify()
    assert wait_until(events.used) == [(0, 4)]
    assert bare.memory[0x30_0000:0x30_0004] == bytes(4)


def test_a_second_vmm_is_turned_away(driver: Driver) -> None:
    with socket.socket(socket.AF_UNIX) as second:
        second.settimeout(PATIENCE_S)
        second.connect(str(driver.path))
        assert second.recv(1) == b""
    driver.open()


def test_the_vmm_may_come_again(driver: Driver) -> None:
    host = driver.open()
    driver.vmm.close()
    assert host.recv(1) == b""
    driver.wait_message("vm", connected=False)
    driver.vmm = None
    driver.set_up()
    driver.open()


def test_vgpud_may_come_again(driver: Driver) -> None:
    """Streams continue without vgpud; new ones are refused until another vgpud has found the device."""
    host = driver.open()
    driver.control.close()
    driver.send(Op.RW, data=b"on its own")
    assert host.recv(100) == b"on its own"

    def refused() -> bool:
        driver.send(Op.REQUEST, port=2)
        return driver.packet(Op.RST, Op.RESPONSE).op == Op.RST

    wait_until(refused)
    driver.control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    driver.control.settimeout(PATIENCE_S)
    driver.control.connect(str(control_path(str(driver.path))))
    assert driver.wait_message("hello")["cid"] == CID
    assert driver.receive_control() == {"type": "vm", "connected": True}
    driver.open(port=3)
