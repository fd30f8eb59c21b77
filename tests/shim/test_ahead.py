"""On a socket, once there are host functions, one thread reads ahead (daemon/executor/vgx_ahead.h)."""

from __future__ import annotations

import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from tests.shim.client import PRELUDE, run
from tests.shim.fake_daemon import FakeDaemon, Memory, blocking

PROGRAM = """
HOST = ctypes.CFUNCTYPE(None, c_void_p)
context()
held, free = new(cuda.cuStreamCreate, 1), new(cuda.cuStreamCreate, 1)
n = 1 << 18
words, back = alloc(4 * n), (c_uint * n)()
for turn in range(20):
    go, ran = threading.Event(), []
    wait = HOST(lambda _: (go.wait(), ran.append(turn))[0] and None)
    ok(cuda.cuLaunchHostFunc(held, wait, None))
    for i in range(300):  # executed in order, though read before
        ok(cuda.cuMemsetD32Async(words, c_uint(turn * 1000 + i), c_size_t(n), free))
    source = (c_uint * n)(*range(turn, turn + n))
    ok(cuda.cuMemcpyHtoDAsync_v2(words, source, c_size_t(4 * n), free))
    ok(cuda.cuMemcpyDtoHAsync_v2(back, words, c_size_t(4 * n), free))
    ok(cuda.cuStreamSynchronize(free))
    assert back[:] == source[:] and not ran and cuda.cuStreamQuery(held) == 600
    go.set()
    ok(cuda.cuStreamSynchronize(held))
    assert ran == [turn]
ok(cuda.cuMemsetD32Async(words, c_uint(7), c_size_t(n), free))
print("done")
"""


def test_what_is_read_ahead_is_executed_in_order(
    vgpu_run: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    config = tmp_path / "vgpud.toml"
    config.write_text("shared_memory = false\n")
    program = [sys.executable, "-c", PRELUDE + textwrap.dedent(PROGRAM)]
    done = vgpu_run(program, options=["--config", str(config)])
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


COPIES = """
HOST = ctypes.CFUNCTYPE(None, c_void_p)
context()
if HOST_FUNCTION:
    nothing = HOST(lambda _: None)
    ok(cuda.cuLaunchHostFunc(new(cuda.cuStreamCreate, 1), nothing, None))
n = 1 << 20
stream, memory, source = new(cuda.cuStreamCreate, 1), alloc(n), create_string_buffer(n)
for _ in range(64):
    ok(cuda.cuMemcpyHtoDAsync_v2(memory, source, c_size_t(n), stream))
os._exit(0)
"""


def test_with_host_functions_few_bytes_are_under_way(tmp_path: Path) -> None:
    """The worker has to keep what it reads ahead, so a call waits for its reply every 16 MiB."""
    over = threading.Event()
    next_callback = blocking(lambda *_: (over.wait(), (600, {}, b""))[1])
    with FakeDaemon(tmp_path / "s", cuMemAlloc_v2=Memory().alloc, vgpuNextCallback=next_callback) as daemon:
        waits = []
        for host_function in (False, True):
            before = len(daemon.waited)
            run(daemon.url, f"HOST_FUNCTION = {host_function}\n{COPIES}")
            waits.append(daemon.waited[before:].count("cuMemcpyHtoDAsync_v2"))
        over.set()
    assert waits == [0, 3]


SMALL = """
context()
nothing = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None)
ok(cuda.cuLaunchHostFunc(new(cuda.cuStreamCreate, 1), nothing, None))
stream = new(cuda.cuStreamCreate, 1)
memory, zero, count = alloc(4), c_uint(0), c_size_t(1)
for _ in range(180_000):
    cuda.cuMemsetD32Async(memory, zero, count, stream)
os._exit(0)
"""


def test_what_keeping_takes_counts_as_under_way(tmp_path: Path) -> None:
    """The worker keeps a certain number of bytes however many records they are, and even if the tenant may have no
    more of its memory."""
    over = threading.Event()
    next_callback = blocking(lambda *_: (over.wait(), (600, {}, b""))[1])
    with FakeDaemon(tmp_path / "s", cuMemAlloc_v2=Memory().alloc, vgpuNextCallback=next_callback) as daemon:
        run(daemon.url, SMALL)
        over.set()
        assert daemon.waited.count("cuMemsetD32Async") == 1
