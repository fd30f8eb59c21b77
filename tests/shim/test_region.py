"""Rings and pinned memory in memory that a virtual machine shares with its host. Here this machine plays the virtual
machine and a file the ivshmem device; tests/vm uses real guests (`make build` first)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import wait_until
from tests.daemon.vm.region_host import RegionHost, region_host
from tests.patience import PATIENCE_S
from tests.shim.client import PRELUDE, environment
from tests.shim.simulated import KERNELS
from tests.shim.test_ring import THREADS

MAPPED = """
def in_region(address):
    '''Whether an address lies in the memory shared with the host.'''
    for line in open("/proc/self/maps"):
        begin, end = (int(x, 16) for x in line.split()[0].split("-"))
        if begin <= address < end:
            return line.rstrip().endswith("/memory")
    return False
def pinned(nbytes):
    p = c_void_p()
    ok(cuda.cuMemHostAlloc(byref(p), c_size_t(nbytes), 0))
    return p.value
"""


@pytest.fixture(scope="module")
def host() -> Iterator[RegionHost]:
    with region_host(mib=64, sessions=2) as host:
        yield host


@pytest.fixture(autouse=True)
def nothing_held(request: pytest.FixtureRequest) -> None:
    """Wait until the previous test's sessions have returned their ranges: their workers end late on a busy machine."""
    for name in {"host", "narrow"} & set(request.fixturenames):
        running = request.getfixturevalue(name).running
        wait_until(lambda running=running: not running.status()["sessions"])


@pytest.fixture(scope="module")
def narrow() -> Iterator[RegionHost]:
    """A host whose region has room for one ring."""
    with region_host(mib=32, sessions=1) as host:
        yield host


@pytest.fixture(scope="module")
def roomy() -> Iterator[RegionHost]:
    """A host whose region has room for one session with staging memory."""
    with region_host(mib=128, sessions=1) as host:
        yield host


def start(host: RegionHost, program: str, **changes: str) -> subprocess.Popen[str]:
    env = environment(None, **{**host.environment, "VGPU_LOG": "info", **changes})
    text = PRELUDE + MAPPED + textwrap.dedent(program)
    return subprocess.Popen(
        [sys.executable, "-c", text],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(host: RegionHost, program: str, **changes: str) -> tuple[str, str]:
    """Run a program to its end; returns its standard output and the library's log."""
    process = start(host, program, **changes)
    out, log = process.communicate(timeout=60)
    assert process.returncode == 0, (out, log)
    return out, log


COMPUTE = """
context()
n = 3_000_001
p, back = alloc(n), create_string_buffer(n)
ok(cuda.cuMemcpyHtoD_v2(p, bytes(range(256)) * (n // 256) + b"x" * (n % 256), c_size_t(n)))
ok(cuda.cuMemsetD8_v2(p, 7, c_size_t(1000)))
ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(n)))
assert back.raw[:1000] == b"\\7" * 1000 and back.raw[1000] == 1000 % 256 and back.raw[-1:] == b"x"
"""


def test_calls_and_copies_travel_in_it_and_it_says_so(host):
    _, log = run(host, COMPUTE + "assert any(l.rstrip().endswith('/memory') for l in open('/proc/self/maps'))")
    assert "shared memory with the host: 31 MiB" in log


def test_every_call_waits(host):
    run(host, COMPUTE, VGPU_SYNC="1")


def test_a_reply_that_takes_long(host):
    """If the client has polled for a while, the worker reports the reply on the socket; other threads continue."""
    run(
        host,
        THREADS
        + textwrap.dedent(
            """
            s = stream()
            gate = threading.Event()
            wait = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: gate.wait())
            ok(a(lambda: cuda.cuLaunchHostFunc(s, wait, None)))
            a.start(lambda: cuda.cuStreamSynchronize(s))
            fill(p, 5, None)
            assert value(p) == 5
            time.sleep(0.4)  # the client no longer polls
            gate.set()
            ok(a.wait())
            """
        ),
    )


def test_a_worker_that_has_gone_to_sleep_is_woken(host):
    run(host, COMPUTE + "time.sleep(0.4)\n" + COMPUTE.replace("context()", "") * 2)


ORDER = """
s = stream()
for i in range(100):
    a(lambda: fill(p, i, s))
    b(lambda: copy(q, p, s))
    a(lambda: fill(p, i + 1000, s))
    if i % 10 == 0:
        ok(b(lambda: cuda.cuStreamSynchronize(s)))
        assert value(q) == i, i
    e = a(lambda: new(cuda.cuEventCreate, 2))
    ok(a(lambda: cuda.cuEventRecord(e, s)))
    ok(b(lambda: cuda.cuStreamWaitEvent(None, e, 0)))
    assert b(lambda: value(p)) == i + 1000
"""


def test_order_between_threads(host):
    run(host, THREADS + ORDER)


def test_order_between_threads_with_and_without_a_ring(narrow):
    """The region has room for one ring: calls of other threads travel on the socket, in the same order."""
    run(narrow, THREADS + ORDER + "assert value(q) == 99\n")


def test_a_thread_without_a_ring_is_not_delayed_by_one_that_waits(narrow):
    run(
        narrow,
        THREADS
        + textwrap.dedent(
            """
            s, go = stream(), threading.Event()
            wait = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: go.wait() and None)
            ok(cuda.cuLaunchHostFunc(s, wait, None))
            done = []
            def other():
                ok(cuda.cuCtxSetCurrent(ctx))
                for _ in range(20): alloc(4096)
                go.set()
            thread = threading.Thread(target=other)
            thread.start()
            ok(cuda.cuStreamSynchronize(s))  # this thread has the ring; `other` lets it go
            thread.join()
            assert go.is_set()
            """
        ),
    )


PINNED = """
context()
n = 1 << 20
h, d = pinned(n), alloc(n)
assert in_region(h)
ctypes.memset(h, 5, n)
s, device = new(cuda.cuStreamCreate, 1), c_uint64()
ok(cuda.cuMemHostGetDevicePointer_v2(byref(device), c_void_p(h), 0))
assert device.value == h
ok(cuda.cuMemcpyHtoDAsync_v2(d, c_void_p(h), c_size_t(n), s))
ok(cuda.cuMemsetD8Async(c_uint64(h), 9, c_size_t(100), s))  # the device writes where we read
ok(cuda.cuStreamSynchronize(s))
assert ctypes.string_at(h, 101) == b"\\x09" * 100 + b"\\x05"
ok(cuda.cuMemcpyDtoHAsync_v2(c_void_p(h), d, c_size_t(n), s))
ok(cuda.cuStreamSynchronize(s))
assert ctypes.string_at(h, n) == b"\\x05" * n
"""


def test_a_fence_for_a_thread_without_a_ring_does_not_keep_a_host_function_from_ending(narrow):
    """A queued call blocks in the worker until a host function has run, and another thread's call has to follow it."""
    run(
        narrow,
        THREADS
        + textwrap.dedent(
            """
            s = stream()
            wait = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: time.sleep(0.3))
            for _ in range(3):
                ok(cuda.cuLaunchHostFunc(s, wait, None))
                for i in range(3000):  # more than a stream queues
                    fill(p, i, s)
                a(lambda: alloc(4096))
                ok(cuda.cuStreamSynchronize(s))
                assert a(lambda: value(p)) == 2999
            """
        ),
    )


def test_pinned_memory_is_the_same_memory_on_both_sides(host):
    run(host, PINNED)


AREAS = """
def areas():
    '''Sizes in KiB of what is mapped from the region where pinned memory lies: here, the library's own.'''
    lines = [line.split() for line in open("/proc/self/maps") if line.rstrip().endswith("/memory")]
    spans = [[int(x, 16) for x in line[0].split("-")] for line in lines]
    return sorted(end - begin >> 10 for begin, end in spans if 0x300000000000 <= begin < 0x380000000000)
context()
n = 5 << 20
p, back, s = alloc(n), create_string_buffer(n), new(cuda.cuStreamCreate, 1)
assert areas() == []
"""


def test_a_wait_watches_a_word_that_the_device_writes_in_it(host):
    run(
        host,
        AREAS
        + textwrap.dedent(
            """
            for i in range(50):
                ok(cuda.cuMemsetD8Async(p, i, c_size_t(n), s))
                ok(cuda.cuStreamSynchronize(s))
                assert areas() == [64]
            ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(100)))
            assert back.raw[:101] == bytes([49] * 100 + [0])
            """
        ),
        VGPU_SPIN_US="50",
    )


def test_large_copies_are_staged_in_it(roomy):
    run(
        roomy,
        AREAS
        + textwrap.dedent(
            """
            data = bytes(range(251)) * (n // 251)
            for i in range(3):
                at = c_uint64(p.value + i)
                ok(cuda.cuMemcpyHtoD_v2(at, data, c_size_t(len(data))))
                ok(cuda.cuMemcpyDtoH_v2(back, at, c_size_t(len(data))))
                assert back.raw[:len(data)] == data
            assert 8196 in areas()
            assert in_region(pinned(20 << 20))
            ok(cuda.cuDevicePrimaryCtxReset_v2(0))
            assert areas() == []
            """
        ),
    )


def test_pinned_memory_comes_back_and_begins_with_zeros(host):
    run(
        host,
        """
        context()
        for i in range(12):  # six times what there is
            h = pinned(8 << 20)
            assert in_region(h)
            assert ctypes.string_at(h, 8 << 20).count(0) == 8 << 20, i
            ctypes.memset(h, 0xAA, 8 << 20)
            ok(cuda.cuMemFreeHost(c_void_p(h)))
        held = [pinned(3 << 20) for _ in range(4)]
        for h in held[::2]: ok(cuda.cuMemFreeHost(c_void_p(h)))
        assert in_region(pinned(3 << 20)) and in_region(pinned(2 << 20))
        """,
    )


def test_when_the_range_is_full_pinned_memory_is_ordinary_and_works(host):
    """Kernels access a copy of it, whatever ring their launch travels in."""
    _, log = run(
        host,
        KERNELS
        + """
context()
n = 6 << 20
held = [pinned(n) for _ in range(4)]
assert [in_region(h) for h in held] == [True, True, False, False]
device, d = c_uint64(), alloc(n)
for h in held:
    ctypes.memset(h, 7, n)
    ok(cuda.cuMemcpyHtoD_v2(d, c_void_p(h), c_size_t(n)))
ok(cuda.cuMemHostGetDevicePointer_v2(byref(device), c_void_p(held[3]), 0))
assert device.value == held[3]
f = function(module(), b"scale")
def use(times):
    for _ in range(times):
        ok(launch(f, 64, None, params(device, c_uint(64), ctypes.c_uint8(3), c_uint64(0))))
threads = [threading.Thread(target=lambda: (context(), use(3))) for _ in range(2)]
for turn in range(5):
    ctypes.memmove(held[3], pack([1] * 64), 256)
    use(2)
    ok(cuda.cuCtxSynchronize())
    assert ctypes.string_at(held[3], 260) == pack([9] * 64 + [0x07070707])
for thread in threads: thread.start()
for thread in threads: thread.join()
ok(cuda.cuCtxSynchronize())
assert ctypes.string_at(held[3], 256) == pack([9 * 3**6] * 64)
""",
    )
    assert "6291456 bytes of pinned memory are not shared with the host: this session's range is full" in log


def test_the_third_session_does_without(host):
    ready = "context(); print(1, flush=True); sys.stdin.read()"
    holders = [start(host, ready) for _ in range(2)]
    for holder in holders:
        assert holder.stdout.readline() == "1\n"
    _, log = run(host, COMPUTE)
    assert "vgpud has no range left; calls travel on the socket" in log
    for holder in holders:
        holder.communicate(timeout=PATIENCE_S)
        assert holder.returncode == 0
    wait_until(lambda: not host.running.status()["sessions"])


@pytest.mark.parametrize("case", ["missing", "other", "forbidden", "off"])
def test_without_it_everything_travels_on_the_socket(host, tmp_path, case):
    path = tmp_path / "memory"
    if case == "other":
        path.write_bytes(host.memory.read_bytes()[:8192])  # like another vgpud's region, of another size
    if case == "forbidden":
        if os.geteuid() == 0:
            path = Path("/proc/sysrq-trigger")  # even root cannot open it for reading and writing
        else:
            path.touch(0)
    _, log = run(host, COMPUTE, VGPU_SHARED_MEMORY="off" if case == "off" else str(path))
    lines = [line for line in log.splitlines() if "no memory shared with the host" in line]
    assert len(lines) == (0 if case == "off" else 1), log
    assert not any(line.startswith("shared memory") for line in log.splitlines())


def test_a_program_whose_worker_dies_keeps_its_addresses_but_not_the_region(host):
    process = start(
        host,
        """
        context()
        h = pinned(1 << 20)
        assert in_region(h)
        print(1, flush=True)
        sys.stdin.readline()
        free = c_size_t()
        assert cuda.cuMemGetInfo_v2(byref(free), byref(free)) == 46
        assert not in_region(h) and not any(l.rstrip().endswith("/memory") for l in open("/proc/self/maps"))
        ctypes.memset(h, 1, 1 << 20)
        ok(cuda.cuDevicePrimaryCtxReset_v2(0))
        context()
        again = pinned(1 << 20)
        assert in_region(again)
        """,
    )
    assert process.stdout.readline() == "1\n"
    (session,) = host.running.status()["sessions"]
    os.kill(session["worker_pid"], 9)
    out, log = process.communicate("\n", timeout=60)
    assert process.returncode == 0, (out, log)


def test_a_forked_child_has_no_part_in_it(host):
    run(
        host,
        """
        ctx = context()
        p = alloc(100)
        child = os.fork()
        if child == 0:
            os._exit(0 if cuda.cuCtxSynchronize() == 3 else 1)
        assert os.waitpid(child, 0)[1] == 0
        ok(cuda.cuMemFree_v2(p))
        """,
    )
