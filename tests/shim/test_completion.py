"""Waits and events without a round trip: flags that the device writes; with and without spinning."""

import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.shim.client import PRELUDE, run
from tests.shim.spinning import TOOLS

Run = Callable[..., CompletedProcess[str]]


def calls_after_flags(log: Path) -> list[tuple[str, str]]:
    """The calls after the first cuCtxGetFlags in a client's trace, and how each was answered."""
    calls = re.findall(r"(cu\w+)\(.* \[(\w+), \S+ us\]$", log.read_text(), re.M)
    begin = [name for name, _ in calls].index("cuCtxGetFlags")
    return calls[begin + 1 :]


@pytest.fixture
def simulate_traced(h100: str, tmp_path: Path) -> Callable[[str], list[tuple[str, str]]]:
    """Run a program; returns how each call after its cuCtxGetFlags was answered: (call, local, queued or waited)."""

    def traced(program: str) -> list[tuple[str, str]]:
        log = tmp_path / "log"
        text = TOOLS + textwrap.dedent(program)
        run(h100, text, VGPU_SPIN_US="50", VGPU_LOG="trace", VGPU_LOG_FILE=str(log))
        return calls_after_flags(log)

    return traced


def test_a_wait_shows_all_that_was_given(simulate_spinning) -> None:
    simulate_spinning(
        """
        p, s, t = alloc(4), stream(), stream(0)
        k = kernel(b"add_one")
        for on in (s, t, None):
            fill(p, 0, 1, on)
            waits = [lambda: cuda.cuStreamSynchronize(on), cuda.cuCtxSynchronize]
            for i in range(60):
                ok(launch(k, p, on))
                ok(waits[i % 2]())
                assert get(p, 4, s) == (i + 1).to_bytes(4, "little")
        """
    )


def test_a_wait_for_one_stream_is_none_for_another(simulate_spinning) -> None:
    """That one stream is done does not imply that the context or the legacy stream is done."""
    simulate_spinning(
        """
        s, t = stream(), stream(0)
        go = threading.Event()
        wait = HOST(lambda _: go.wait() and None)
        for held in (s, t):
            go.clear()
            ok(cuda.cuLaunchHostFunc(held, wait, None))
            other = t if held is s else s
            fill(alloc(64), 1, 16, s if held is t else t)
            ok(cuda.cuStreamSynchronize(other))
            assert cuda.cuStreamQuery(other) == 0
            assert cuda.cuStreamQuery(held) == NOT_READY
            done = []
            def synchronize():
                ok(cuda.cuCtxSetCurrent(ctx))
                done.append(cuda.cuCtxSynchronize())
            waiter = threading.Thread(target=synchronize)
            waiter.start()
            time.sleep(0.1)
            assert not done
            go.set()
            waiter.join()
            assert done == [0]
            assert cuda.cuStreamQuery(held) == 0
        """
    )


def test_the_legacy_stream_waits_for_blocking_streams(simulate_spinning) -> None:
    simulate_spinning(
        """
        t = stream(0)
        order = []
        slow = HOST(lambda _: (time.sleep(0.05), order.append("t"))[0])
        for _ in range(3):
            order.clear()
            ok(cuda.cuLaunchHostFunc(t, slow, None))
            fill(alloc(64), 1, 16)
            ok(cuda.cuStreamSynchronize(None))
            assert order == ["t"]
        """
    )


def test_events_are_as_far_as_their_stream(simulate_spinning) -> None:
    simulate_spinning(
        """
        s, e, later = stream(), event(), event()
        p = alloc(64)
        go = threading.Event()
        wait = HOST(lambda _: go.wait() and None)
        for _ in range(20):
            go.clear()
            fill(p, 1, 16, s)
            ok(cuda.cuEventRecord(e, s))
            ok(cuda.cuEventSynchronize(e))
            assert cuda.cuEventQuery(e) == 0
            ok(cuda.cuLaunchHostFunc(s, wait, None))
            ok(cuda.cuEventRecord(later, s))
            assert cuda.cuEventQuery(e) == 0
            assert cuda.cuEventQuery(later) == NOT_READY
            go.set()
            ok(cuda.cuEventSynchronize(later))
            assert cuda.cuEventQuery(later) == 0 and cuda.cuStreamQuery(s) == 0
        """
    )


def test_an_event_in_a_held_stream_is_not_done_though_the_stream_was_idle(simulate_spinning) -> None:
    """An idle blocking stream waits for the legacy stream; work of another thread may come before the record."""
    simulate_spinning(
        """
        s, e = stream(0), event()
        p = alloc(64)
        go = threading.Event()
        wait = HOST(lambda _: go.wait() and None)
        fill(p, 1, 16, s)
        ok(cuda.cuCtxSynchronize())
        ok(cuda.cuLaunchHostFunc(None, wait, None))
        ok(cuda.cuEventRecord(e, s))
        assert cuda.cuEventQuery(e) == NOT_READY
        go.set()
        ok(cuda.cuEventSynchronize(e))
        s, u = stream(), stream()
        for _ in range(20):
            go.clear()
            fill(p, 1, 16, s)
            ok(cuda.cuStreamSynchronize(s))
            ok(cuda.cuEventRecord(e, s))
            assert cuda.cuEventQuery(e) == 0 and cuda.cuStreamQuery(s) == 0
            ok(cuda.cuStreamWaitEvent(u, e, 0))  # complete: nothing to wait for
            def hold():
                ok(cuda.cuCtxSetCurrent(ctx))
                ok(cuda.cuLaunchHostFunc(s, wait, None))
            other = threading.Thread(target=hold)
            other.start()
            other.join()
            assert cuda.cuStreamQuery(s) == NOT_READY and cuda.cuStreamQuery(u) == 0
            ok(cuda.cuEventRecord(e, s))
            assert cuda.cuEventQuery(e) == NOT_READY and cuda.cuStreamQuery(s) == NOT_READY
            ok(cuda.cuStreamWaitEvent(u, e, 0))
            assert cuda.cuStreamQuery(u) == NOT_READY
            go.set()
            ok(cuda.cuStreamSynchronize(u))
        """
    )


def test_an_event_in_an_idle_stream_is_complete_without_asking(simulate_traced) -> None:
    """The client knows that the stream is idle; a time is still the worker's."""
    waited = simulate_traced(
        """
        s, e, timed = stream(), event(), new(cuda.cuEventCreate, 0)
        fill(alloc(64), 1, 16, s)
        ok(cuda.cuStreamSynchronize(s))
        ok(cuda.cuCtxGetFlags(byref(c_uint())))  # the trace is read from here
        for _ in range(3):
            ok(cuda.cuEventRecord(e, s))
            ok(cuda.cuEventSynchronize(e))
            ok(cuda.cuStreamWaitEvent(None, e, 0))
            ok(cuda.cuStreamSynchronize(s))
        ok(cuda.cuEventRecord(timed, s))
        ok(cuda.cuEventSynchronize(timed))
        ms = c_float(9)
        ok(cuda.cuEventElapsedTime(byref(ms), timed, timed))
        assert ms.value == 0
        """
    )
    assert [way for _, way in waited[:12]] == ["queued", *["local"] * 11], waited  # the worker has the first record
    name, way = waited[14]
    assert name.startswith("cuEventElapsedTime"), waited
    assert way == "waited"


def test_a_record_in_an_idle_stream_replaces_one_that_is_not_over(simulate_traced) -> None:
    """The worker knows the earlier record, so the later one is sent; so is one after a capture has had the event."""
    waited = simulate_traced(
        """
        busy, s, t, e = stream(), stream(), stream(), event()
        go = threading.Event()
        wait = HOST(lambda _: go.wait() and None)
        p = alloc(64)
        for each in (busy, s, t):
            fill(p, 1, 16, each)
            ok(cuda.cuStreamSynchronize(each))
        ok(cuda.cuEventRecord(e, s))
        ok(cuda.cuLaunchHostFunc(busy, wait, None))
        ok(cuda.cuCtxGetFlags(byref(c_uint())))  # the trace is read from here
        ok(cuda.cuEventRecord(e, busy))
        assert cuda.cuEventQuery(e) == NOT_READY
        ok(cuda.cuEventRecord(e, s))
        assert cuda.cuEventQuery(e) == 0
        ok(cuda.cuStreamWaitEvent(t, e, 0))
        assert cuda.cuStreamQuery(t) == 0
        go.set()
        ok(cuda.cuStreamSynchronize(busy))
        ok(cuda.cuEventRecord(e, busy))
        ok(cuda.cuStreamBeginCapture_v2(t, 2))
        ok(cuda.cuEventRecord(e, t))
        graph = c_void_p()
        ok(cuda.cuStreamEndCapture(t, byref(graph)))
        ok(cuda.cuEventRecord(e, s))
        ok(cuda.cuEventSynchronize(e))
        ok(cuda.cuEventRecord(e, s))
        """
    )
    records = [way for name, way in waited if name.startswith("cuEventRecord")]
    assert records == ["queued", "queued", "local", "queued", "queued", "local"], waited


def test_an_event_of_another_context_is_not_complete_without_asking(simulate_spinning) -> None:
    """Recording it in a stream of this context is an error, which the next call that waits reports."""
    simulate_spinning(
        """
        e = event()
        other = new(cuda.cuCtxCreate_v2, 0, 0)
        s = stream()
        fill(alloc(64), 1, 16, s)
        ok(cuda.cuStreamSynchronize(s))
        assert 400 in (cuda.cuEventRecord(e, s), cuda.cuEventSynchronize(e))
        """
    )


def test_many_threads_in_one_stream(simulate_spinning) -> None:
    """After any thread has waited for a stream, earlier launches of all threads in that stream are done."""
    simulate_spinning(
        """
        s, k, N = stream(), kernel(b"add_one"), 40
        cells = [alloc(4) for _ in range(6)]
        for c in cells: fill(c, 0, 1, s)
        ok(launch(k, cells[0], s)); fill(cells[0], 0, 1, s)
        def work(c):
            ok(cuda.cuCtxSetCurrent(ctx))
            for i in range(N):
                ok(launch(k, c, s))
                if i % 8 == 7: ok(cuda.cuStreamSynchronize(s))
        for round in range(4):
            threads = [threading.Thread(target=work, args=(c,)) for c in cells]
            for t in threads: t.start()
            for t in threads: t.join()
            ok(cuda.cuStreamSynchronize(s))
            t = stream()
            for c in cells: assert get(c, 4, t) == (N * (round + 1)).to_bytes(4, "little")
        """
    )


def test_a_wait_after_a_copy_waits_for_what_another_thread_has_added(simulate_spinning) -> None:
    """The copy's own flag is set before."""
    simulate_spinning(
        """
        import threading
        p, s = alloc(1 << 20), stream()
        for nbytes in (20_000, 100_000, 1 << 20):
            go, held = threading.Event(), []
            hold = HOST(lambda _: go.wait() and None)
            def add():
                ok(cuda.cuCtxSetCurrent(ctx))
                ok(cuda.cuLaunchHostFunc(s, hold, None))
            put(p, bytes([7]) * nbytes, s)
            adding = threading.Thread(target=add)
            adding.start()
            adding.join()
            def release():
                held.append(cuda.cuStreamQuery(s))
                go.set()
            releasing = threading.Timer(0.2, release)
            releasing.start()
            ok(cuda.cuStreamSynchronize(s))
            assert held == [NOT_READY]
            releasing.join()
            put(p, bytes([8]) * nbytes, s)
            ok(cuda.cuStreamSynchronize(s))
            ok(cuda.cuStreamSynchronize(s))
            assert get(p, nbytes, s) == bytes([8]) * nbytes
        """
    )


def test_a_fault_ends_waits_and_copies_with_its_error(simulate_spinning) -> None:
    for end in (
        "cuda.cuStreamSynchronize(s)",
        "cuda.cuCtxSynchronize()",
        "cuda.cuMemcpyDtoHAsync_v2(back, p, c_size_t(64), s)",
        "cuda.cuMemcpyDtoHAsync_v2(back, p, c_size_t(9 << 20), s)",
        "(cuda.cuEventRecord(e, s), cuda.cuEventSynchronize(e))[1]",
    ):
        simulate_spinning(
            f"""
            s, e, p, k = stream(), event(), alloc(9 << 20), kernel(b"wild")
            back = create_string_buffer(9 << 20)
            ok(launch(k, p, s))
            ok(cuda.cuStreamSynchronize(s))
            ok(launch(k, 0x10, s))
            assert {end} == ILLEGAL_ADDRESS
            assert cuda.cuCtxSynchronize() == ILLEGAL_ADDRESS
            """
        )


def test_the_error_of_a_queued_call_is_told_at_the_next_wait(simulate_spinning) -> None:
    simulate_spinning(
        """
        s, p = stream(), alloc(64)
        fill(p, 1, 16, s)
        ok(cuda.cuStreamSynchronize(s))
        far = c_uint64(0x7FFF12345000)  # nobody's: the worker finds out
        results = [cuda.cuMemcpyDtoHAsync_v2(create_string_buffer(n), far, c_size_t(n), s) for n in (8, 1 << 20)]
        assert all(results), results
        ok(cuda.cuCtxSynchronize())
        fill(p, 2, 16, s)
        assert get(p, 4, s) == (2).to_bytes(4, "little")
        """
    )


def test_contexts_come_and_go(simulate_spinning) -> None:
    """Destroying a context unregisters the context's memory in the client and in the worker."""
    simulate_spinning(
        """
        def mapped(): return sum("vgpu-pinned" in line for line in open("/proc/self/maps"))
        for i in range(40):
            c = c_void_p()
            ok(cuda.cuCtxCreate_v2(byref(c), 0, 0))
            s, p = stream(), alloc(1 << 20)
            put(p, bytes([i]) * (1 << 20), s)
            assert get(p, 1 << 20, s) == bytes([i]) * (1 << 20)
            fill(p, i, 16, s)
            ok(cuda.cuStreamSynchronize(s))
            ok(cuda.cuCtxDestroy_v2(c))
            assert mapped() <= 2, mapped()
        """
    )


def test_a_wait_that_nothing_precedes_is_none_on_a_socket_either(vgpu_run: Run, tmp_path: Path) -> None:
    """On a socket a wait costs a round trip, so none is made if a copy to the host or a wait came just before."""
    log = tmp_path / "log"
    config = tmp_path / "vgpud.toml"
    config.write_text("shared_memory = false\n")
    program = """
        p, s = alloc(4), stream(0)
        k = kernel(b"add_one")
        def item(on):
            ok(launch(k, p, on))
            back = get(p, 4, on)
            ok(cuda.cuStreamSynchronize(on))
            return back
        fill(p, 0, 1)
        for on in (None, None, s, s):
            print(item(on)[0], flush=True)
            ok(cuda.cuCtxSynchronize())
            ok(cuda.cuCtxSynchronize())
        put(p, b"abcd", s)
        ok(cuda.cuStreamSynchronize(s))
        ok(cuda.cuStreamSynchronize(s))
        ok(cuda.cuMemcpyHtoD_v2(p, b"efgh", c_size_t(4)))
        assert get(p, 4) == b"efgh"
    """
    done = vgpu_run(
        [sys.executable, "-c", PRELUDE + TOOLS + textwrap.dedent(program)],
        env={"VGPU_LOG": "trace", "VGPU_LOG_FILE": str(log)},
        options=["--config", str(config)],
    )
    assert (done.returncode, done.stdout.split()) == (0, ["1", "2", "3", "4"]), done.stderr
    waits = [line for line in log.read_text().splitlines() if "Synchronize" in line or "HtoD_v2" in line]
    ways = ["waited" if "waited" in line else "none" for line in waits]
    assert ways[:12] == ["none"] * 12  # the copies to the host have already waited
    assert ways[12:14] == ["waited", "none"]
