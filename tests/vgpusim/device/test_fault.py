"""Kernels that fault, each in a process of its own, because a fault is permanent. Afterwards that process reports the
context's answers, and shows that another device still works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

PRELUDE = """
import ctypes, sys
from tests.vgpusim.device.conftest import Simulator, open_simulator
lib = open_simulator({path!r})
sim = Simulator(lib)
context = ctypes.c_void_p()
sim.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
sim.ok("cuCtxSetCurrent", context)
out = ctypes.c_uint64()
address = sim.alloc(4096)
"""


def run(path: Path, script: str) -> str:
    command = [sys.executable, "-c", PRELUDE.format(path=str(path)) + script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("launch", "code"),
    [
        ('"poke"), 0', 700),
        ('"poke"), 0x10', 700),
        ('"poke"), address + 4096', 700),
        ('"poke"), address - 4096', 700),
        ('"poke"), 1 << 63', 700),
        ('"shared"), 4096', 700),
        ('"shared"), 0xffffffff', 700),
        ('"print"), 0x123, 0', 700),
        ('"trap")', 719),
        ('"illegal")', 719),
        ('"assertion")', 710),
        ('"fault_while_waited_for"), 0, grid=64', 700),
    ],
)
def test_fault_is_sticky_and_the_process_lives(library_path: Path, launch: str, code: int) -> None:
    out = run(
        library_path,
        f"""
assert sim.launch(sim.kernel({launch}, shared=100) == 0
print(sim.cuCtxSynchronize(), sim.cuCtxSynchronize(), sim.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(16)),
      sim.cuStreamQuery(None), sim.load_module(ctypes.byref(out), b"vgt", ctypes.c_uint64(3)),
      sim.cuMemGetInfo_v2(None, None), sim.cuCtxCreate_v2(ctypes.byref(out), 0, 0), sim.cuDevicePrimaryCtxReset_v2(0),
      sim.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), sim.cuCtxSetCurrent(context),
      sim.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(16)))
print(lib.vgt_last_log().decode())
print(sim.output().decode(), end="")
sim.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 1)  # another device of the same process is unharmed
sim.ok("cuCtxSetCurrent", context)
address = sim.alloc(8 * 100)
assert sim.launch(sim.kernel("fill"), address, 1, grid=100) == 0
assert sim.read(address + 8 * 99, 8) == (100).to_bytes(8, "little")
""",
    )
    lines = out.splitlines()
    assert [int(word) for word in lines[0].split()] == [code] * 7 + [0, code, 0, 709]
    assert f"error {code}" in lines[1]
    if code == 710:
        assert lines[2] == "file.cu:12: kernel: block: [0,0,0], thread: [0,0,0] Assertion `x > 0` failed."


def test_a_thread_may_be_kicked_before_any_kernel_ran(library_path: Path) -> None:
    """The first launch may be stopped before one of its threads has begun: by default the signal ends the process."""
    out = run(library_path, "import threading\nlib.vgx_sim_kick(ctypes.c_ulong(threading.get_ident()))\nprint('alive')")
    assert out == "alive\n"


def test_kicks_that_have_waited_together_fit_the_signal_stack(library_path: Path) -> None:
    """A busy machine may not run a thread for many kicks, which it then gets at once."""
    out = run(
        library_path,
        """
import signal, threading
lib.vgx_sim_fault_thread_init()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN + 6})
for _ in range(400):
    lib.vgx_sim_kick(ctypes.c_ulong(threading.get_ident()))
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGRTMIN + 6})
print('alive')
""",
    )
    assert out == "alive\n"


def test_a_thread_that_was_kicked_out_can_be_kicked_again(library_path: Path) -> None:
    out = run(
        library_path,
        """
lib.vgx_sim_set_watchdog(ctypes.c_uint64(100))
for device in range(3):
    sim.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    sim.ok("cuCtxSetCurrent", context)
    assert sim.launch(sim.kernel("spin"), grid=64) == 0
    print(sim.cuCtxSynchronize())
""",
    )
    assert out.split() == ["702"] * 3


def test_a_launch_may_end_before_its_threads_begin(library_path: Path) -> None:
    out = run(
        library_path,
        """
lib.vgx_sim_set_watchdog(ctypes.c_uint64(100))
ctypes.c_int.in_dll(lib, "vgt_held_back").value = 1
assert sim.launch(sim.kernel("fill"), address, 1, grid=64) == 0
print(sim.cuCtxSynchronize())
""",
    )
    assert out == "702\n"


def test_a_kick_waits_until_a_kernels_time_is_counted(library_path: Path) -> None:
    """Python waits for one post for each kernel that has used up its time (vgx_sim_schedule_wait)."""
    run(library_path, "assert lib.vgt_kick_while_counting() == 1\nlib.vgx_sim_schedule_wait()")


def test_fault_names_the_kernel_and_the_allocation(library_path: Path) -> None:
    out = run(
        library_path,
        """
assert sim.launch(sim.kernel("poke"), address + 4100) == 0
sim.cuCtxSynchronize()
print(lib.vgt_last_log().decode())
print(hex(address + 4100))
""",
    )
    line, expected = out.splitlines()
    assert "kernel poke" in line
    assert expected in line
    assert "write to address" in line
    assert "4 bytes past the end of an allocation of 4096 bytes" in line


def test_watchdog_ends_an_endless_kernel_and_what_was_queued(library_path: Path) -> None:
    out = run(
        library_path,
        """
lib.vgx_sim_set_watchdog(ctypes.c_uint64(100))
assert sim.launch(sim.kernel("spin"), grid=64) == 0
assert sim.launch(sim.kernel("fill"), address, 1) == 0
print(sim.cuCtxSynchronize(), sim.cuMemcpyHtoD_v2(out, b"x", ctypes.c_size_t(1)))
""",
    )
    assert out.split() == ["702", "702"]


def test_faults_outside_kernels_go_where_they_went(library_path: Path) -> None:
    script = """
assert sim.launch(sim.kernel("fill"), address, 1) == 0
sim.ok("cuCtxSynchronize")
import faulthandler; faulthandler.disable()
ctypes.string_at(16)
"""
    command = [sys.executable, "-c", PRELUDE.format(path=str(library_path)) + script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == -11


def test_copy_of_memory_that_was_taken_away(library_path: Path) -> None:
    """A client may truncate the file of its pinned memory: a SIGBUS in the copy becomes that context's error."""
    out = run(
        library_path,
        """
import mmap, os
fd = os.memfd_create("pinned")
os.ftruncate(fd, 8192)
memory = mmap.mmap(fd, 8192)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
sim.ok("cuMemHostRegister_v2", ctypes.c_void_p(start), ctypes.c_size_t(8192), 0)
os.ftruncate(fd, 0)
print(sim.cuMemcpyHtoD_v2(ctypes.c_uint64(address), ctypes.c_void_p(start), ctypes.c_size_t(4096)))
print(sim.cuCtxSynchronize())
""",
    )
    assert out.split() == ["700", "700"]


def test_waits_for_words_that_nobody_writes_end_with_the_session(library_path: Path) -> None:
    """After that the device is of no use, as after a fault."""
    out = run(
        library_path,
        """
word, stream = sim.alloc(4), sim.stream(1)
sim.ok("cuMemsetD32_v2", ctypes.c_uint64(word), 0, ctypes.c_size_t(1))
sim.ok("cuStreamWaitValue32_v2", stream, ctypes.c_uint64(word), 1, 0)
sim.ok("cuStreamWriteValue32_v2", stream, ctypes.c_uint64(word), 2, 0)
print(sim.cuStreamQuery(stream))
sim.words_end(True)
print(sim.cuStreamSynchronize(stream), sim.cuStreamWaitValue32_v2(stream, ctypes.c_uint64(word), 1, 0))
""",
    )
    assert out.split() == ["600", "709", "709"]
