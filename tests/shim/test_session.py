"""The session as programs see it: start, loss of the worker, fork, threads, signals, end."""

import contextlib
import os
import random
import socket
import subprocess
import threading
import time
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.shim.client import LIBRARY, environment, run
from tests.shim.fake_daemon import FakeDaemon, Fields, Memory, blocking, frame, welcome


def test_loading_and_preloading_touch_no_socket(path: Path) -> None:
    """L14: nothing happens before the first call."""
    with FakeDaemon(path) as daemon:
        run(daemon.url, "pass")
        preload = f"{os.environ.get('LD_PRELOAD', '')}:{LIBRARY}".lstrip(":")  # a sanitizer's runtime stays first
        env = os.environ | {"LD_PRELOAD": preload, "VGPU_ENDPOINT": daemon.url}
        assert os.spawnve(os.P_WAIT, "/bin/true", ["/bin/true"], env) == 0
        assert daemon.connections == []


def test_d13_before_init_and_after(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        output = run(
            daemon.url,
            """
            n, p, c = c_int(5), c_void_p(), c_void_p()
            before = [cuda.cuDeviceGetCount(byref(n)), cuda.cuCtxGetCurrent(byref(c)), cuda.cuProfilerStart(),
                      cuda.cuMemAlloc_v2(byref(p), c_size_t(16)), cuda.cuStreamSynchronize(None)]
            assert n.value == 5
            print(*before, cuda.cuDriverGetVersion(byref(n)), n.value, cuda.cuInit(1), cuda.cuInit(0), cuda.cuInit(0))
            """,
        )
    assert output.split() == ["3", "3", "3", "3", "3", "0", "13000", "1", "0", "0"]


def test_the_worker_comes_with_the_first_context(path: Path) -> None:
    with FakeDaemon(path, **Memory().handlers) as daemon:
        run(daemon.url, "ok(cuda.cuInit(0)); n = c_int(); ok(cuda.cuDeviceGetCount(byref(n))); assert n.value == 1")
        assert daemon.calls == []
        run(daemon.url, "context(); alloc(100)")
        assert daemon.names() == ["cuDevicePrimaryCtxRetain", "cuMemAlloc_v2"]
        assert [context for *_, context in daemon.calls] == [0, 1]


def test_data_goes_there_and_back_in_pieces(path: Path) -> None:
    with FakeDaemon(path, **Memory().handlers) as daemon:
        run(
            daemon.url,
            """
            context()
            n = 5 * (1 << 20) + 13
            source = os.urandom(n)
            p, back = alloc(n), create_string_buffer(n)
            ok(cuda.cuMemcpyHtoD_v2(p, source, c_size_t(n)))
            ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(n)))
            assert back.raw == source
            """,
        )
        assert daemon.names().count("cuMemcpyHtoDAsync_v2") == 6


def die(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
    raise EOFError


def test_f01_worker_death_is_one_sticky_error_until_the_reset(path: Path) -> None:
    epochs = iter([7, 8])
    with FakeDaemon(
        path, lambda: frame(welcome(epoch=next(epochs))), **Memory().handlers, cuStreamSynchronize=die
    ) as daemon:
        run(
            daemon.url,
            """
            ctx = context()
            p, stream = alloc(4096), new(cuda.cuStreamCreate, 0)
            ok(cuda.cuEventRecord(new(cuda.cuEventCreate, 0), stream))
            assert cuda.cuCtxSynchronize() == 46
            q, n = c_uint64(1), c_int()
            assert cuda.cuMemAlloc_v2(byref(q), c_size_t(16)) == 46 and q.value == 1
            assert cuda.cuStreamQuery(stream) == 46
            assert cuda.cuMemcpyHtoD_v2(p, b"x" * 4096, c_size_t(4096)) == 46
            assert cuda.cuDevicePrimaryCtxRetain(byref(c_void_p()), 0) == 46
            assert cuda.cuDeviceGetCount(byref(n)) == 0
            ok(cuda.cuDevicePrimaryCtxReset_v2(0))
            assert cuda.cuMemAlloc_v2(byref(q), c_size_t(16)) == 201
            assert cuda.cuCtxSetCurrent(ctx) == 201
            fresh = context()
            assert fresh.value != ctx.value
            alloc(16)
            assert cuda.cuStreamQuery(stream) == 400
            assert cuda.cuMemFree_v2(p) == 1
            """,
        )
        assert len(daemon.connections) == 2


def test_reply_that_fits_no_call_ends_the_session(path: Path) -> None:
    def too_long(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        return 0, {"dptr": 1}, bytes(64)

    with FakeDaemon(path, cuMemAlloc_v2=too_long) as daemon:
        run(
            daemon.url,
            """
            context()
            p = c_uint64(9)
            assert cuda.cuMemAlloc_v2(byref(p), c_size_t(16)) == 46 and p.value == 9
            assert cuda.cuCtxSynchronize() == 46
            """,
        )


def test_p01_forked_child_is_not_initialized_and_the_parent_goes_on(path: Path) -> None:
    memory = Memory()
    with FakeDaemon(path, **memory.handlers) as daemon:
        run(
            daemon.url,
            """
            context()
            read, write = os.pipe()
            if os.fork() == 0:
                n, c, v = c_int(), c_void_p(), c_int()
                results = [cuda.cuInit(0), cuda.cuDeviceGetCount(byref(n)), cuda.cuMemGetInfo_v2(byref(n), byref(n)),
                           cuda.cuCtxGetCurrent(byref(c)), cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(16)),
                           cuda.cuDriverGetVersion(byref(v)), cuda.cuDevicePrimaryCtxReset_v2(0)]
                os.write(write, repr(results).encode())
                os._exit(0)
            os.wait()
            assert os.read(read, 100) == b"[3, 3, 3, 3, 3, 0, 3]"
            if os.fork() == 0:
                sys.exit(0)  # runs the library's destructor
            assert os.wait()[1] == 0
            alloc(16)
            """,
        )
        assert daemon.names() == ["cuDevicePrimaryCtxRetain", "cuMemAlloc_v2"]


def test_fork_before_init_leaves_both_free_to_start(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        run(
            daemon.url,
            """
            if os.fork() == 0:
                os._exit(cuda.cuInit(0))
            assert os.wait()[1] == 0
            ok(cuda.cuInit(0))
            """,
        )


def test_d19_dlclose_leaves_nothing(path: Path) -> None:
    """After dlclose no descriptor, thread or mapping remains, a hundred times, even with a callback thread."""

    @blocking
    def next_callback(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        time.sleep(60)
        return 600, {}, b""

    with FakeDaemon(path, vgpuNextCallback=next_callback) as daemon:
        run(
            daemon.url,
            f"""
            import _ctypes
            path = {str(LIBRARY)!r}
            _ctypes.dlclose(cuda._handle)
            fds, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
            HOST = ctypes.CFUNCTYPE(None, c_void_p)
            never = HOST(lambda _: None)
            for i in range(100):
                cuda = ctypes.CDLL(path)
                context()
                new(cuda.cuStreamCreate, 0)
                if i % 10 == 0:
                    ok(cuda.cuLaunchHostFunc(None, never, None))
                handle = cuda._handle
                del cuda
                _ctypes.dlclose(handle)
            assert len(os.listdir("/proc/self/fd")) == fds
            # A thread that has been joined is listed a moment longer.
            while len(os.listdir("/proc/self/task")) != threads: time.sleep(0.001)
            assert "libcuda" not in open("/proc/self/maps").read()
            """,
        )


def test_a_host_function_that_never_returns_does_not_hold_the_exit(path: Path, tmp_path: Path) -> None:
    due = iter([0])

    @blocking
    def next_callback(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        time.sleep(0.05)
        return (0, {"callback": 1, "status": 0}, b"") if next(due, None) == 0 else (600, {}, b"")

    source, program = tmp_path / "c.c", tmp_path / "c"
    source.write_text("""
        #include <unistd.h>
        int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
        int cuLaunchHostFunc(void *, void (*)(void *), void *);
        static volatile int inside;
        static void stay(void *unused) { inside = 1; (void)unused; for (;;) pause(); }
        int main(void) {
          void *context;
          if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
          if (cuLaunchHostFunc(0, stay, 0)) return 3;
          while (!inside) usleep(1000);
          return 0;
        }""")
    subprocess.run(["cc", str(source), "-o", str(program), str(LIBRARY)], check=True)
    with FakeDaemon(path, vgpuNextCallback=next_callback) as daemon:
        env = environment(daemon.url, LD_LIBRARY_PATH=str(LIBRARY.parent))
        assert subprocess.run([str(program)], env=env, timeout=PATIENCE_S, check=False).returncode == 0


def test_sixteen_threads_get_their_own_answers(path: Path) -> None:
    """Replies arrive out of order: a separate thread answers each call after a random time."""
    rng = random.Random(2)

    @blocking
    def limit(fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        time.sleep(rng.random() * 0.003)
        return 200 + fields["limit"], {}, b""

    with FakeDaemon(path, cuCtxSetLimit=limit) as daemon:
        run(
            daemon.url,
            """
            ctx = context()
            wrong = []
            def work(me):
                ok(cuda.cuCtxSetCurrent(ctx))
                for i in range(60):
                    asked = (me + i) % 3
                    result = cuda.cuCtxSetLimit(asked, c_size_t(0))
                    if result != 200 + asked:
                        wrong.append((me, i, result))
            threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
            for t in threads: t.start()
            for t in threads: t.join()
            assert not wrong, wrong[:3]
            """,
        )


def test_a_blocked_call_does_not_delay_another_thread(path: Path) -> None:
    release = threading.Event()

    @blocking
    def synchronize(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        return (0 if release.wait(PATIENCE_S) else 999), {}, b""

    def set_limit(fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        if fields["limit"] == 2:
            release.set()
        return 0, {}, b""

    with FakeDaemon(path, cuStreamSynchronize=synchronize, cuCtxSetLimit=set_limit) as daemon:
        run(
            daemon.url,
            """
            ctx = context()
            results = []
            def block():
                ok(cuda.cuCtxSetCurrent(ctx))
                ok(cuda.cuEventRecord(new(cuda.cuEventCreate, 0), None))  # something to wait for
                results.append(cuda.cuCtxSynchronize())
            threads = [threading.Thread(target=block) for _ in range(3)]
            for t in threads: t.start()
            time.sleep(0.1)
            for limit in (0, 1, 2):
                assert not results
                ok(cuda.cuCtxSetLimit(limit, c_size_t(0)))
            for t in threads: t.join()
            assert results == [0, 0, 0]
            """,
        )


def test_every_waiter_is_woken_by_the_workers_death(path: Path) -> None:
    with FakeDaemon(path) as daemon:

        @blocking
        def hang_up(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
            time.sleep(0.3)
            with contextlib.suppress(OSError):  # only the first of the eight calls can shut it down
                daemon.connections[-1].shutdown(socket.SHUT_RDWR)
            return 0, {}, b""

        daemon.answers["cuStreamSynchronize"] = hang_up
        output = run(
            daemon.url,
            """
            ctx = context()
            results = []
            ready = threading.Barrier(8)  # the worker dies at the first wait: all must have begun
            def block():
                ok(cuda.cuCtxSetCurrent(ctx))
                ok(cuda.cuEventRecord(new(cuda.cuEventCreate, 0), None))  # something to wait for
                ready.wait()
                results.append(cuda.cuCtxSynchronize())
            threads = [threading.Thread(target=block) for _ in range(8)]
            for t in threads: t.start()
            for t in threads: t.join()
            print(*results)
            """,
            VGPU_LOG="error",
        )
    assert output.split() == ["46"] * 8


def test_signals_do_not_break_calls(path: Path) -> None:
    @blocking
    def slow(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        time.sleep(0.02)
        return 0, {}, b""

    with FakeDaemon(path, cuCtxSetLimit=slow) as daemon:
        run(
            daemon.url,
            """
            import signal
            hits = [0]
            def hit(*_): hits[0] += 1
            signal.signal(signal.SIGALRM, hit)
            signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
            context()
            for _ in range(20):
                ok(cuda.cuCtxSetLimit(0, c_size_t(0)))
            assert hits[0] >= 10  # coalesced by the interpreter
            signal.setitimer(signal.ITIMER_REAL, 0)
            """,
        )


def test_errno_is_left_alone(path: Path) -> None:
    with FakeDaemon(path, **Memory().handlers) as daemon:
        run(
            daemon.url,
            """
            cuda = ctypes.CDLL(cuda._name, use_errno=True)
            for call in (lambda: cuda.cuInit(0), lambda: context(), lambda: cuda.cuMemcpy(None, None, c_size_t(5)),
                         lambda: cuda.cuMemHostAlloc(byref(c_void_p()), c_size_t(100), 0)):
                ctypes.set_errno(77)
                call()
                assert ctypes.get_errno() == 77
            """,
        )


def test_nothing_is_printed_unless_asked(path: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with FakeDaemon(path) as daemon:
        program = "context(); cuda.cuMulticastCreate(); cuda.cuMulticastCreate(); cuda.cuMemAlloc_v2(None, c_size_t(0))"
        assert run(daemon.url, program + "; sys.stderr.flush()") == ""
        run(daemon.url, program, VGPU_LOG="trace", VGPU_LOG_FILE=str(log))
    lines = log.read_text().splitlines()
    assert sum("cuMulticastCreate is not implemented" in line for line in lines) == 1
    assert any("cuMemAlloc_v2(dptr=(nil), bytesize=0) = 1 [local" in line for line in lines)
    assert any("cuDevicePrimaryCtxRetain" in line and "[waited" in line for line in lines)
