"""Memory and events shared between two clients, end to end (`make build` first)."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from tests.daemon.hostile_session import STREAM, HostileSession
from tests.daemon.ipc_client import IpcClient
from tests.daemon.running import Running, wait_until

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY = 1, 2, 201, 400, 600
NOT_SUPPORTED, CAPTURE_UNSUPPORTED = 801, 900
INTERPROCESS, NO_TIMING = 4, 2
LONG = 20_000_000  # iterations of a kernel: some seconds

Start = Callable[..., Running]


def share(maker: IpcClient, opener: IpcClient, nbytes: int) -> tuple[int, int, bytes]:
    """Share new memory; return its address in the maker, its address in the opener, and the handle."""
    address = maker(f"memory({nbytes})")
    code, handle = maker(f"get_memory({address})")
    assert code == 0
    code, opened = opener(f"open_memory({handle})")
    assert code == 0
    return address, opened, handle


@pytest.mark.parametrize("nbytes", [4, 10_000, 3 << 20])
def test_P05_two_clients_see_each_others_writes(pair, nbytes):
    a, b = pair
    data = secrets.token_bytes(nbytes // 4 * 4)
    address = a(f"memory({nbytes})")
    assert a(f"put({address}, {data})") == 0
    code, handle = a(f"get_memory({address})")
    assert code == 0
    code, opened = b(f"open_memory({handle})")
    assert code == 0
    assert opened % 512 == 0
    assert b(f"look({opened}, {nbytes})") == data  # the contents from before the export
    n = nbytes // 4
    assert b(f"add({opened}, {n})") == 0
    assert b("cuda.cuCtxSynchronize()") == 0
    assert a(f"add({address}, {n})") == 0
    words = [int.from_bytes(data[4 * i : 4 * i + 4], "little") for i in range(n)]
    expected = b"".join(((word + 2) % 2**32).to_bytes(4, "little") for word in words)
    assert a(f"look({address}, {nbytes})") == b(f"look({opened}, {nbytes})") == expected
    assert b(f"close_memory({opened})") == 0
    assert a(f"look({address}, {nbytes})") == expected  # closing affects the opener only
    assert a(f"free({address})") == 0


def test_memory_is_opened_where_the_program_uses_no_addresses(pair):
    a, b = pair
    address = a(f"memory({10_000})")
    assert a(f"put({address}, {bytes(range(100))})") == 0
    code, handle = a(f"get_memory({address})")
    assert code == 0
    place = b(f"memory({256 << 20})") + (256 << 20)  # where the simulator goes on
    assert b(f"occupy({place}, {1 << 30})")
    code, opened = b(f"open_memory({handle})")
    assert code == 0
    assert opened + 10_000 <= place or opened >= place + (1 << 30)
    assert b(f"look({opened}, 100)") == bytes(range(100))
    assert b(f"open_memory({handle})") == (0, opened)
    assert b(f"close_memory({opened})") == 0
    assert b(f"look({opened}, 100)") == bytes(range(100)), "it is open once more"
    assert b(f"close_memory({opened})") == 0
    assert b(f"close_memory({opened})") == INVALID_VALUE, "attempts leave nothing open"


def test_a_handle_is_of_the_allocation_and_the_same_every_time(pair):
    a, b = pair
    address, opened, handle = share(a, b, 8192)
    assert a(f"get_memory({address} + 5000)") == (0, handle)
    assert b(f"open_memory({handle})") == (0, opened)
    assert b(f"close_memory({opened})") == 0
    assert b(f"look({opened}, 4)") == bytes(4)  # still open: it was opened twice
    assert b(f"close_memory({opened})") == 0
    assert b(f"close_memory({opened})") == INVALID_VALUE
    assert b(f"put({opened}, b'abcd')") != 0
    assert a(f"free({address})") == 0


def test_a_handle_ends_with_the_memory_and_what_was_opened_does_not_fault(pair):
    a, b = pair
    address, opened, handle = share(a, b, 4096)
    assert a(f"put({address}, b'still here')") == 0
    assert a(f"free({address})") == 0
    assert b(f"open_memory({handle})") == (INVALID_VALUE, 1)
    assert b(f"look({opened}, 10)") in (b"still here", bytes(10))  # undefined according to CUDA
    assert b(f"close_memory({opened})") == 0
    fresh = a("memory(4096)")
    assert a(f"look({fresh}, 10)") == bytes(10)
    assert a(f"get_memory({fresh})")[1] != handle
    assert a(f"free({fresh})") == 0


def test_wrong_handles_have_one_answer(pair, host):
    a, b = pair
    address, opened, handle = share(a, b, 4096)
    assert a(f"open_memory({handle})") == (INVALID_CONTEXT, 1)  # its own handle: an H100 answers the same
    near = bytes([handle[0] ^ 1]) + handle[1:]
    for wrong in (bytes(64), near, handle[1:] + handle[:1], secrets.token_bytes(64)):
        assert b(f"open_memory({wrong})") == (INVALID_VALUE, 1)
        assert b(f"open_event({wrong})")[0] == INVALID_VALUE
    assert b(f"open_event({handle})")[0] == INVALID_VALUE  # memory is not an event
    assert b(f"open_memory({handle}, 2)") == (INVALID_VALUE, 1)
    assert "names nothing that this client may open" in host.log
    assert handle.hex() not in host.log
    assert repr(handle) not in host.log
    assert b(f"close_memory({opened})") == 0
    assert a(f"free({address})") == 0


def test_only_memory_of_its_own_kind_is_shared(pair):
    a, b = pair
    address, opened, _handle = share(a, b, 4096)
    assert b(f"free({opened})") == INVALID_VALUE  # it is the other client's memory
    assert b(f"cuda.cuMemFreeAsync(c_uint64({opened}), None)") == INVALID_VALUE
    assert b(f"get_memory({opened})")[0] == INVALID_VALUE
    assert a(f"attribute({address}, 10)") == (0, 1)
    assert b(f"attribute({opened}, 10)") == (0, 0)
    pool = a("(lambda p: (cuda.cuMemAllocAsync(byref(p), c_size_t(4096), None), p.value))(c_uint64())")
    assert pool[0] == 0
    assert a(f"get_memory({pool[1]})")[0] == INVALID_VALUE
    assert a(f"attribute({pool[1]}, 10)") == (0, 0)
    pinned = a("(lambda p: (cuda.cuMemAllocHost_v2(byref(p), c_size_t(4096)), p.value))(c_void_p())")
    assert pinned[0] == 0
    assert a(f"get_memory({pinned[1]})")[0] == INVALID_VALUE
    assert a("get_memory(0x1000)")[0] == INVALID_VALUE
    assert a(f"cuda.cuIpcGetMemHandle(None, c_uint64({address}))") == INVALID_VALUE
    assert b(f"close_memory({opened} + 8)") == INVALID_VALUE
    assert b(f"close_memory({opened})") == 0
    assert a(f"free({address})") == 0


def test_events_order_what_two_clients_do(pair):
    a, b = pair
    address, opened, _ = share(a, b, 40_000)
    code, event = a("event()")
    assert code == 0
    code, handle = a(f"get_event({event})")
    assert code == 0
    code, other = b(f"open_event({handle})")
    assert code == 0
    assert b(f"query({other})") == b(f"synchronize({other})") == 0  # the event was never recorded
    first, second = a("stream()"), b("stream()")
    assert a(f"shut({first})") == a(f"add({address}, 10000, {first})") == 0
    assert a(f"record({event}, {first})") == 0
    assert a(f"query({event})") == b(f"query({other})") == NOT_READY
    assert b(f"wait({second}, {other})") == 0
    assert b(f"add({opened}, 10000, {second})") == 0
    assert b(f"record({other}, {second})") == 0  # either client may record it
    assert a("open_gates()") is None
    assert a(f"synchronize({event})") == 0
    assert a(f"look({address}, 40000)") == (2).to_bytes(4, "little") * 10_000
    assert a(f"query({event})") == b(f"query({other})") == 0
    assert b(f"cuda.cuEventDestroy_v2(c_void_p({other}))") == a(f"cuda.cuEventDestroy_v2(c_void_p({event}))") == 0
    assert b(f"open_event({handle})")[0] == INVALID_VALUE
    assert a(f"query({event})") == a(f"get_event({event})")[0] == INVALID_HANDLE
    assert b(f"close_memory({opened})") == 0
    assert a(f"free({address})") == 0


def test_a_stream_that_was_clean_waits_all_the_same(pair):
    """The client knows which streams are idle, and does not ask the worker about those."""
    a, b = pair
    address, opened, _ = share(a, b, 512)
    event = a("event()")[1]
    other = b(f"open_event({a(f'get_event({event})')[1]})")[1]
    busy, clean = a("stream()"), b("stream()")
    for _ in range(2):
        assert b(f"add({opened}, 1, {clean})") == b(f"cuda.cuStreamSynchronize(c_void_p({clean}))") == 0
        assert a(f"shut({busy})") == a(f"add({address}, 1, {busy})") == a(f"record({event}, {busy})") == 0
        assert b(f"wait({clean}, {other})") == 0
        assert b(f"cuda.cuStreamQuery(c_void_p({clean}))") == NOT_READY
        assert a("open_gates()") is None
        assert b(f"cuda.cuStreamSynchronize(c_void_p({clean}))") == b(f"query({other})") == 0
    assert b(f"look({opened}, 4)") == (4).to_bytes(4, "little")
    assert b(f"close_memory({opened})") == a(f"free({address})") == 0


def test_many_waits_for_one_event(pair):
    """More waits than the worker runs in host functions: beyond that number the calling thread waits."""
    a, b = pair
    address, opened, _ = share(a, b, 512)
    event = a("event()")[1]
    other = b(f"open_event({a(f'get_event({event})')[1]})")[1]
    busy = a("stream()")
    assert a(f"add({address}, 1, {busy}, {LONG // 4})") == 0
    assert a(f"record({event}, {busy})") == 0
    waits = f"[(wait(s, {other}), add({opened} + 4 * i, 1, s)) for i, s in enumerate([stream() for _ in range(24)])]"
    assert b(waits) == [(0, 0)] * 24
    assert b("cuda.cuCtxSynchronize()") == 0
    assert a(f"look({address}, 96)") == (2).to_bytes(4, "little") + (1).to_bytes(4, "little") * 23
    assert b(f"cuda.cuEventDestroy_v2(c_void_p({other}))") == a(f"cuda.cuEventDestroy_v2(c_void_p({event}))") == 0
    assert b(f"close_memory({opened})") == 0
    assert a(f"free({address})") == 0


def test_events_that_cannot_be_shared(pair):
    a, b = pair
    assert a(f"event({INTERPROCESS})")[0] == INVALID_VALUE  # an event with timing
    code, ordinary = a(f"event({NO_TIMING})")
    assert code == 0
    assert a(f"get_event({ordinary})")[0] == INVALID_HANDLE
    event = a("event()")[1]
    handle = a(f"get_event({event})")[1]
    assert a(f"get_event({event})") == (0, handle)
    assert a(f"open_event({handle})")[0] == INVALID_CONTEXT
    other = b(f"open_event({handle})")[1]
    assert b(f"get_event({other})")[0] == INVALID_HANDLE  # only its maker may export it
    stream = a("stream()")
    assert a(f"cuda.cuStreamBeginCapture_v2(c_void_p({stream}), 0)") == 0
    assert a(f"record({event}, {stream})") == CAPTURE_UNSUPPORTED
    assert a(f"cuda.cuStreamEndCapture(c_void_p({stream}), byref(c_void_p()))") != 0
    assert a(f"cuda.cuEventElapsedTime_v2(byref(c_float()), c_void_p({event}), c_void_p({event}))") == INVALID_HANDLE


def test_a_client_that_dies(host, pair):
    """Memory opened from the dead client stays, its handles end, and a wait for its unfinished work is an error."""
    _, b = pair
    dying = IpcClient(str(host.endpoint))
    address, opened, handle = share(dying, b, 4096)
    event, busy = dying("event()")[1], dying("stream()")
    event_handle = dying(f"get_event({event})")[1]
    other = b(f"open_event({event_handle})")[1]
    assert dying(f"put({address}, b'last words')") == 0
    assert dying(f"add({address} + 1024, 1, {busy}, 1 << 60)") == 0
    assert dying(f"record({event}, {busy})") == 0
    stream = b("stream()")
    assert b(f"wait({stream}, {other})") == 0
    dying.kill()
    assert b(f"cuda.cuStreamSynchronize(c_void_p({stream}))") == INVALID_HANDLE
    assert b(f"query({other})") == b(f"cuda.cuStreamSynchronize(c_void_p({stream}))") == 0
    assert b(f"look({opened}, 10)") == b"last words"
    assert b(f"close_memory({opened})") == 0
    wait_until(lambda: b(f"open_memory({handle})")[0] == INVALID_VALUE)
    assert b(f"open_event({event_handle})")[0] == INVALID_VALUE


def test_what_a_context_owned_is_shared_no_more(host, pair):
    _, b = pair
    a = IpcClient(str(host.endpoint))
    _, opened, handle = share(a, b, 4096)
    assert a("cuda.cuDevicePrimaryCtxReset_v2(0)") == 0
    assert b(f"open_memory({handle})") == (INVALID_VALUE, 1)
    assert b(f"close_memory({opened})") == 0
    a.end()


def test_nothing_is_left(host):
    """Exports end with their sessions."""
    a, b = IpcClient(str(host.endpoint)), IpcClient(str(host.endpoint))
    before = host.status()["metrics"]["ipc_objects"]
    share(a, b, 4096)
    a(f"get_event({a('event()')[1]})")
    assert host.status()["metrics"]["ipc_objects"] == before + 2
    a.end()
    b.end()
    wait_until(lambda: host.status()["metrics"]["ipc_objects"] == before)


def test_a_tenant_shares_so_much(start: Start) -> None:
    host = start(worker=None, extra="limits.ipc_objects_per_tenant = 3\n")
    a = IpcClient(str(host.endpoint))
    addresses = [a("memory(512)") for _ in range(4)]
    handles = [a(f"get_memory({address})") for address in addresses]
    assert [code for code, _ in handles] == [0, 0, 0, OUT_OF_MEMORY]
    assert a(f"get_event({a('event()')[1]})")[0] == OUT_OF_MEMORY
    assert a(f"look({addresses[3]}, 4)") == bytes(4)
    assert a(f"free({addresses[0]})") == 0
    assert a(f"get_memory({addresses[3]})")[0] == 0
    a.end()


def test_tenants_do_not_meet(start: Start) -> None:
    """A handle is invalid with another token, though the user and the address are the same."""
    tokens = "".join(f"[[tokens]]\nname = '{name}'\nvalue = '{name * 16}'\n" for name in "xy")
    host = start(worker=None, extra=tokens, listen=["tcp://127.0.0.1:0"])
    maker, friend = (IpcClient(str(host.endpoint), VGPU_TOKEN="x" * 16) for _ in range(2))
    stranger = IpcClient(str(host.endpoint), VGPU_TOKEN="y" * 16)
    address, _, handle = share(maker, friend, 4096)
    assert stranger(f"open_memory({handle})") == (INVALID_VALUE, 1)
    event = maker("event()")[1]
    event_handle = maker(f"get_event({event})")[1]
    assert friend(f"open_event({event_handle})")[0] == 0
    assert stranger(f"open_event({event_handle})")[0] == INVALID_VALUE
    assert maker(f"attribute({address}, 10)") == (0, 1)
    for client in (maker, friend, stranger):
        client.end()


def test_without_a_tenant_nothing_is_shared(start: Start) -> None:
    """All users of a machine share its address, so the owner of these clients is unknown, and they get an error."""
    host = start(worker=None, listen=["tcp://127.0.0.1:0"])
    client = IpcClient(str(host.endpoint))
    address = client("memory(4096)")
    assert client(f"get_memory({address})")[0] == NOT_SUPPORTED
    assert client("open_memory(bytes(64))")[0] == client("event()")[0] == NOT_SUPPORTED
    assert client(f"attribute({address}, 10)") == (0, 0)
    device = "(lambda v: (cuda.cuDeviceGetAttribute(byref(v), 125, 0), v.value))(c_int())"
    assert client(device) == (0, 0)
    client.end()


def test_exporting_waits_for_what_runs(pair):
    """Exporting moves the memory: a kernel that uses it continues unharmed."""
    a, b = pair
    address, busy = a("memory(40000)"), a("stream()")
    assert a(f"add({address}, 10000, {busy}, {LONG // 8})") == 0
    code, handle = a(f"get_memory({address})")
    assert code == 0
    code, opened = b(f"open_memory({handle})")
    assert a("cuda.cuCtxSynchronize()") == 0
    assert b(f"look({opened}, 40000)") == (1).to_bytes(4, "little") * 10_000
    assert b(f"close_memory({opened})") == 0
    assert a(f"free({address})") == 0


@pytest.mark.parametrize(
    "name",
    ["vgpuIpcEventRecord", "vgpuIpcEventWait", "vgpuIpcEventQuery", "vgpuIpcEventSynchronize", "vgpuIpcEventDestroy"],
)
def test_an_event_that_was_never_made_is_a_violation(host, name):
    with HostileSession(host) as hostile:
        hostile.send(
            name, event=5, **({"hStream": STREAM} if name in ("vgpuIpcEventRecord", "vgpuIpcEventWait") else {})
        )
        assert hostile.ended() == ("exit 1", "protocol violation: a handle that was never made")


def test_an_id_is_taken_once(host):
    for second, field in (("vgpuIpcEventCreate", "event"), ("cuIpcOpenEventHandle", "phEvent")):
        with HostileSession(host) as hostile:
            hostile.ok("vgpuIpcEventCreate", event=1)
            hostile.send(second, **{field: 1})
            assert hostile.ended() == ("exit 1", f"protocol violation: {field} taken")


def test_what_a_client_without_our_library_says(host):
    """Invented addresses, memory that is not open, an event that could not be opened, and calls without a reply."""
    with HostileSession(host) as hostile:
        for address in (0, 1, hostile.memory + 4096, 2**47, 2**64 - 1):
            assert hostile.call("cuIpcGetMemHandle", dptr=address)[0] == INVALID_VALUE
            assert hostile.call("cuIpcCloseMemHandle", dptr=address)[0] == INVALID_VALUE
        assert hostile.call("cuIpcCloseMemHandle", dptr=hostile.memory)[0] == INVALID_VALUE
        assert hostile.call("cuIpcOpenMemHandle_v2", handle=2**512 - 1, flags=2**32 - 1)[0] == INVALID_VALUE
        assert hostile.call("cuIpcOpenEventHandle", phEvent=1)[0] == INVALID_VALUE
        assert hostile.call("vgpuIpcEventRecord", event=1, hStream=STREAM)[0] == INVALID_HANDLE
        assert hostile.call("vgpuIpcEventQuery", event=0)[0] == INVALID_HANDLE
        token = hostile.ok("cuIpcGetMemHandle", dptr=hostile.memory + 100)
        hostile.send_queued("cuIpcGetMemHandle", dptr=hostile.memory)
        assert hostile.ok("cuIpcGetMemHandle", dptr=hostile.memory) == token
        assert hostile.is_served()


def test_a_session_has_so_many_events(host):
    with HostileSession(host) as hostile:
        made = 0
        while hostile.call("vgpuIpcEventCreate", event=made + 1)[0] == 0:
            made += 1
            assert made <= 8192
        assert made > 100
        hostile.ok("vgpuIpcEventDestroy", event=1)
        hostile.ok("vgpuIpcEventCreate", event=made + 2)
        assert hostile.is_served()
