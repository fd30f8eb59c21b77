"""No tenant reads what another one has left in device memory or pinned memory.

tests/gpu/test_residue.py tests the same on a card. The control searches memory that it has written itself, to show
that the search finds what is present.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running, vgpud_with_real_workers
from tests.shim.client import PRELUDE, environment

SECRET = 0x5EC12E7
WORDS = 4 << 20
LEAVE = f"""
context()
p = alloc({4 * WORDS})
ok(cuda.cuMemsetD32_v2(p, {SECRET}, c_size_t({WORDS})))
ok(cuda.cuCtxSynchronize())
host = c_void_p()
ok(cuda.cuMemAllocHost_v2(byref(host), c_size_t(1 << 20)))
ctypes.memset(host, 0x5e, 1 << 20)
"""
SEARCH = f"""
secret = ({SECRET}).to_bytes(4, "little")
def found(p, nbytes):
    back = create_string_buffer(nbytes)
    ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(nbytes)))
    return back.raw.count(secret)
"""
LOOK = f"""
context()
{SEARCH}
pieces = [alloc(1 << 20) for _ in range(32)] + [alloc({4 * WORDS})]
print(sum(found(p, 1 << 20) for p in pieces[:-1]) + found(pieces[-1], {4 * WORDS}))
host = c_void_p()
ok(cuda.cuMemAllocHost_v2(byref(host), c_size_t(1 << 20)))
assert ctypes.string_at(host, 1 << 20) == bytes(1 << 20)
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path)


def program(running: Running, text: str) -> str:
    command = [sys.executable, "-c", PRELUDE + text]
    done = subprocess.run(
        command, env=environment(str(running.endpoint)), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_next_session_finds_nothing_of_the_last(running: Running) -> None:
    for _ in range(2):
        program(running, LEAVE)
        assert program(running, LOOK) == "0"


def test_nor_does_the_same_session_after_it_has_freed_memory(running: Running) -> None:
    text = LEAVE + SEARCH + "ok(cuda.cuMemFree_v2(p))\n" + LOOK.partition(SEARCH)[2]
    assert program(running, text) == "0"


def test_control_the_search_finds_what_is_there(running: Running) -> None:
    assert program(running, f"{LEAVE}{SEARCH}print(found(p, {4 * WORDS}))") == str(WORDS)
