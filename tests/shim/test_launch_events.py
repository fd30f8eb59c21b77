"""Events that a launch's attributes record."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from tests.shim.client import run
from tests.shim.spinning import TOOLS


@pytest.fixture(params=["0", "50"], ids=["sleeping", "spinning"])
def simulate(request: pytest.FixtureRequest, h100: str) -> Callable[[str], str]:
    program = TOOLS + "import queue, struct\n"
    return lambda text: run(h100, program + textwrap.dedent(text), VGPU_SPIN_US=request.param)


@pytest.mark.parametrize("attribute", [7, 12], ids=["programmatic", "completion"])
def test_an_event_that_a_launch_records_is_not_complete_as_of_an_earlier_record(simulate, attribute: int) -> None:
    simulate(
        f"""
        busy, s, t, e = stream(), stream(), stream(), event()
        go = threading.Event()
        wait = HOST(lambda _: go.wait() and None)
        p = alloc(64)
        k = kernel(b"add_one")
        fill(p, 1, 16, busy)
        fill(alloc(64), 1, 16, s)
        ok(cuda.cuCtxSynchronize())
        ok(cuda.cuEventRecord(e, s))
        assert cuda.cuEventQuery(e) == 0
        ok(cuda.cuLaunchHostFunc(busy, wait, None))
        attributes = create_string_buffer(struct.pack("<i4xQii48x", {attribute}, e.value, 0, 0), 72)
        config = struct.pack("<7I4xQQI4x", 1, 1, 1, 1, 1, 1, 0, busy.value, ctypes.addressof(attributes), 1)
        args = (c_void_p * 1)(ctypes.addressof(p))
        ok(cuda.cuLaunchKernelEx(config, k, args, None))
        assert cuda.cuEventQuery(e) == NOT_READY
        q = alloc(64)
        ok(cuda.cuStreamWaitEvent(t, e, 0))
        ok(cuda.cuMemcpyDtoDAsync_v2(q, p, c_size_t(64), t))
        go.set()
        assert get(q, 4, t) == struct.pack("<I", 2)
        assert cuda.cuEventQuery(e) == 0
        """
    )


LAUNCHES = {
    "kernel": """
        attributes = create_string_buffer(struct.pack("<i4xQii48x", 12, e.value, 0, 0), 72)
        config = struct.pack("<7I4xQQI4x", 1, 1, 1, 1, 1, 1, 0, s.value, ctypes.addressof(attributes), 1)
        def launch_with_event(): return cuda.cuLaunchKernelEx(config, k, args, None)
        """,
    "graph": """
        graph, replay = c_void_p(), c_void_p()
        ok(cuda.cuStreamBeginCapture_v2(s, 2))
        ok(launch(k, p, s))
        ok(cuda.cuEventRecordWithFlags(e, s, 1))
        ok(cuda.cuStreamEndCapture(s, byref(graph)))
        ok(cuda.cuGraphInstantiateWithFlags(byref(replay), graph, c_uint64(0)))
        def launch_with_event(): return cuda.cuGraphLaunch(replay, s)
        """,
}


@pytest.mark.parametrize("of", LAUNCHES)
def test_a_wait_of_another_thread_comes_after_the_launch_that_records_its_event(simulate, of: str) -> None:
    """The threads' records travel in two rings, and the launch is behind many others in the first."""
    simulate(
        """
        s, t, e = stream(), stream(), event()
        p, q = alloc(64), alloc(64)
        k = kernel(b"add_one")
        ok(launch(k, p, s))
        args = (c_void_p * 1)(ctypes.addressof(p))
        """
        + LAUNCHES[of]
        + """
        go, found = queue.Queue(), queue.Queue()
        def waits():
            ok(cuda.cuCtxSetCurrent(ctx))
            fill(q, 0, 16, t)
            while go.get():
                ok(cuda.cuStreamWaitEvent(t, e, 0))
                found.put(get(p, 4, t))
        thread = threading.Thread(target=waits)
        thread.start()
        fill(p, 0, 16, s)
        try:
            for i in range(1, 20):
                for _ in range(300): fill(q, 0, 16, s)
                ok(launch_with_event())
                go.put(True)
                assert found.get() == struct.pack("<I", i), i
        finally:
            go.put(False)
            thread.join()
        """
    )
