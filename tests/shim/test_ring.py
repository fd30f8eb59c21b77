"""Rings: the effect of a call is visible to every call that begins after its return, in any thread."""

import textwrap
from collections.abc import Callable

import pytest

from tests.shim.client import run

THREADS = """
import queue, struct
N = 1024
def stream(flags=1): return new(cuda.cuStreamCreate, flags)
def event(): return new(cuda.cuEventCreate, 2)
def value(p):
    back = create_string_buffer(4 * N)
    ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(4 * N)))
    words = set(struct.unpack(f"<{N}I", back.raw))
    assert len(words) == 1, words
    return words.pop()
def fill(p, v, s): ok(cuda.cuMemsetD32Async(p, c_uint(v), c_size_t(N), s))
def copy(q, p, s): ok(cuda.cuMemcpyDtoDAsync_v2(q, p, c_size_t(4 * N), s))
class Worker:
    '''A thread with a ring of its own that runs what it is given, one after the other.'''
    def __init__(self, ctx):
        self.jobs, self.done, self.ctx = queue.Queue(), queue.Queue(), ctx
        threading.Thread(target=self.loop, daemon=True).start()
    def loop(self):
        ok(cuda.cuCtxSetCurrent(self.ctx))
        for job in iter(self.jobs.get, None):
            try: self.done.put((job(), None))
            except BaseException as error: self.done.put((None, error))
    def start(self, job): self.jobs.put(job)
    def wait(self):
        result, error = self.done.get()
        if error: raise error
        return result
    def __call__(self, job):
        self.start(job)
        return self.wait()
ctx = context()
a, b = Worker(ctx), Worker(ctx)
p, q = alloc(4 * N), alloc(4 * N)
"""


@pytest.fixture
def simulate(h100: str) -> Callable[[str], str]:
    return lambda program: run(h100, THREADS + textwrap.dedent(program))


def test_a_stream_used_by_two_threads(simulate) -> None:
    simulate(
        """
        s = stream()
        for i in range(300):
            a(lambda: fill(p, i, s))
            b(lambda: copy(q, p, s))
            a(lambda: fill(p, i + 1000, s))
            if i % 10 == 0:
                ok(b(lambda: cuda.cuStreamSynchronize(s)))
                assert value(q) == i, i
        """
    )


@pytest.mark.parametrize("handle", [None, "stream()"])
def test_threads_take_turns_in_a_stream_whose_calls_wait_in_a_ring(simulate, handle) -> None:
    """A call joins the ring of the stream's last call, or waits by a fence if many records follow that call there."""
    simulate(
        f"""
        s = {handle}
        c, d = Worker(ctx), Worker(ctx)
        big = alloc(1 << 20)
        data = bytes(1 << 20)
        for i in range(40):
            threads = [a, b, c, d][i % 4 :] + [a, b, c, d][: i % 4]
            fill(p, 0, s)
            for _ in range(4):
                ok(threads[0](lambda: cuda.cuMemcpyHtoDAsync_v2(big, data, c_size_t(1 << 20), s)))
            for j in range(80):
                threads[j % 4](lambda: fill(p, 1000 * i + j, s))
                if j % 7 == 0:
                    threads[(j + 1) % 4](lambda: copy(q, p, s))
            ok(threads[i % 3](lambda: cuda.cuStreamSynchronize(s)))
            assert (value(p), value(q)) == (1000 * i + 79, 1000 * i + 77), i
        """
    )


def test_threads_launch_in_one_stream_at_once(simulate) -> None:
    """Nothing is lost or done twice when eight threads push to each other's rings, and wait in between."""
    simulate(
        """
        s = stream()
        mine = [alloc(4 * N) for _ in range(8)]
        failed = []
        threading.excepthook = lambda args: failed.append(args)
        def work(i):
            ok(cuda.cuCtxSetCurrent(ctx))
            for j in range(600):
                fill(mine[i], j, s if i % 2 else None)
                if j % 50 == 49:
                    ok(cuda.cuStreamSynchronize(s))
                    assert value(mine[i]) == j
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not failed, failed
        assert [value(m) for m in mine] == [599] * 8
        """
    )


def test_an_event_carries_order_from_stream_to_stream(simulate) -> None:
    simulate(
        """
        s, t = stream(), stream()
        for i in range(200):
            e = a(event)
            a(lambda: fill(p, i, s))
            ok(a(lambda: cuda.cuEventRecord(e, s)))
            ok(b(lambda: cuda.cuStreamWaitEvent(t, e, 0)))
            b(lambda: copy(q, p, t))
            ok(b(lambda: cuda.cuStreamSynchronize(t)))
            assert value(q) == i, i
            ok(a(lambda: cuda.cuEventDestroy_v2(e)))
        """
    )


def test_the_legacy_stream_orders_blocking_streams(simulate) -> None:
    simulate(
        """
        s = stream(0)
        for i in range(200):
            ok(a(lambda: cuda.cuMemsetD32_v2(p, c_uint(i), c_size_t(N))))
            b(lambda: copy(q, p, s))
            assert a(lambda: value(q)) == i, i
        """
    )


def test_a_thread_that_waits_delays_no_other(simulate) -> None:
    """Thread a sleeps in cuStreamSynchronize until `go` is set, after all calls of thread b have returned."""
    simulate(
        """
        s = stream()
        go = threading.Event()
        HOST = ctypes.CFUNCTYPE(None, c_void_p)
        wait = HOST(lambda _: go.wait() and None)
        ok(a(lambda: cuda.cuLaunchHostFunc(s, wait, None)))
        a.start(lambda: cuda.cuStreamSynchronize(s))
        for _ in range(20):
            b(lambda: alloc(4096))
        free, total = c_size_t(), c_size_t()
        ok(b(lambda: cuda.cuMemGetInfo_v2(byref(free), byref(total))))
        assert a.done.empty()
        go.set()
        ok(a.wait())
        """
    )


def test_many_threads_come_and_go(simulate) -> None:
    """A thread releases its ring when it ends: hundreds of threads need only as many rings as live at once."""
    simulate(
        """
        def work(i):
            ok(cuda.cuCtxSetCurrent(ctx))
            mine, s = alloc(4 * N), stream()
            fill(mine, i, s)
            ok(cuda.cuStreamSynchronize(s))
            assert value(mine) == i
            ok(cuda.cuStreamDestroy_v2(s))
            ok(cuda.cuMemFree_v2(mine))
        failed = []
        threading.excepthook = lambda args: failed.append(args)
        for round in range(40):
            threads = [threading.Thread(target=work, args=(round * 8 + i,)) for i in range(8)]
            for t in threads: t.start()
            for t in threads: t.join()
        assert not failed, failed
        mapped = sum("vgpu-ring" in line for line in open("/proc/self/maps"))
        assert 1 <= mapped <= 32, mapped
        """
    )


def test_a_ring_goes_round(simulate) -> None:
    """More bytes than a ring holds, in pieces that do not fit exactly at the ring's end."""
    simulate(
        """
        size = 3_000_001
        big = alloc(size)
        for i in range(8):
            data = bytes([i]) * size
            ok(cuda.cuMemcpyHtoD_v2(big, data, c_size_t(size)))
            back = create_string_buffer(size)
            ok(cuda.cuMemcpyDtoH_v2(back, big, c_size_t(size)))
            assert back.raw == data, i
        for i in range(20000):
            fill(p, i, None)
        assert value(p) == 19999
        """
    )
