"""On a socket, once there are host functions, one thread reads ahead (daemon/executor/vgx_ahead.h)."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from tests.shim.client import PRELUDE

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
