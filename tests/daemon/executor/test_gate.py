"""Weights on a card, with real workers: the driver is tests/bench/timed_card.c, whose kernels take a known time on a
card that all processes share. tests/daemon/executor/test_turn.py has the same in simulated time, and exactly."""

from __future__ import annotations

import mmap
import os
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from vgpud.tenancy import turns

from tests.conftest import ROOT
from tests.daemon.running import Running, wait_until
from tests.shim.client import PRELUDE, environment

PTX = b"""
.version 7.5
.target sm_75
.address_size 64
.visible .entry touch(.param .u64 data, .param .u64 other, .param .u32 n) { ret; }
"""
CLIENT = f"""
ctx = context()
module, function = c_void_p(), c_void_p()
ok(cuda.cuModuleLoadData(byref(module), {PTX!r}))
ok(cuda.cuModuleGetFunction(byref(function), module, b"touch"))
p, n = alloc(64), c_uint(1)
arguments = (c_void_p * 3)(*(ctypes.addressof(each) for each in (p, p, n)))

def launch(us, stream=None, number=1):
    ok(cuda.cuLaunchKernel(function, us, 1, 1, 32 * number, 1, 1, 0, stream, arguments, None))

launch(1)
ok(cuda.cuCtxSynchronize())
print("ready", flush=True)
sys.stdin.readline()
"""
SATURATE = "while True: launch(400, None, {number})"
TURNS = r'vgpu_tenant_turn_seconds_total{gpu="0",tenant="([^"]+)"} (\S+)'
WEIGHTS = {"heavy": 300, "light": 100}
ALONE_NS_AT = 5 * 8
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("gate")
    card, driver, config = folder / "card", folder / "libcuda.so.1", folder / "vgpud.toml"
    card.write_bytes(bytes(4096))
    source = ROOT / "tests/bench/timed_card.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f'-DCARD="{card}"', str(source), "-o", str(driver)], check=True)
    lines = [f"listen = ['unix:{folder}/s']", f"admin = '{folder}/admin.sock'", f"cache_dir = '{folder}'"]
    # Workers are started without the launcher, whose workers have user ids that may not open the card's file.
    worker = [sys.executable, "-m", "vgpud.worker", "--backend", "cuda", "--libcuda", str(driver)]
    lines += ["backend = 'cuda'", f"libcuda = '{driver}'", f"worker_command = {worker!r}"]
    for name, weight in WEIGHTS.items():
        lines += ["[[shares]]", f"name = '{name}'", f"weight = {weight}"]
        lines += ["[[tokens]]", f"name = '{name}'", f"value = '{token(name)}'", f"share = '{name}'"]
    config.touch(mode=0o600)
    config.write_text("\n".join(lines))
    running = Running.start(config, folder, "log")
    try:
        running.wait_ready()
        yield running
    finally:
        running.end()


def token(name: str) -> str:
    return f"token-of-the-{name}-tenant"


@pytest.fixture
def start(running: Running) -> Iterator[Start]:
    """Start a tenant's program, which waits for a line before `text`."""
    started: list[subprocess.Popen[str]] = []

    def program(name: str, text: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PRELUDE + CLIENT + text]
        env = environment(str(running.endpoint), VGPU_TOKEN=token(name))
        found = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(found)
        assert read(found) == "ready"
        return found

    yield program
    for each in started:
        each.kill()  # the kernels that it has launched would take seconds
        each.communicate(timeout=60)


def tell(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


def read(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def card(running: Running) -> bytes:
    return (running.config.parent / "card").read_bytes()


def counts(running: Running) -> list[int]:
    """The number of kernels that each program has submitted to the card, by the program's number."""
    return [0, *struct.unpack("<3q", card(running)[8:32])]


@contextmanager
def turns_file(running: Running) -> Iterator[mmap.mmap]:
    folder = Path(f"/proc/{running.process.pid}/fd")
    path, *_ = [each for each in folder.iterdir() if "vgpu-turns" in os.readlink(each)]
    with path.open("r+b") as file, mmap.mmap(file.fileno(), turns.NBYTES) as memory:
        yield memory


def test_two_that_saturate(running: Running, start: Start) -> None:
    """Parts of all kernels, by count. The programs launch more than the card can execute. Where the machine has no
    processor left for a worker in its turn, the turn passes unused, so the bound is wide; without turns both would get
    half.
    """
    programs = [start(name, SATURATE.format(number=number)) for number, name in enumerate(WEIGHTS, 2)]
    for program in programs:
        tell(program)
    wait_until(lambda: min(counts(running)[2:]) > 20)
    before = counts(running)
    wait_until(lambda: sum(counts(running)) > sum(before) + 2000)
    _, _, heavy, light = (now - then for now, then in zip(counts(running), before, strict=True))
    assert heavy / (heavy + light) > 0.57
    metrics = running.admin.metrics()
    turns = {name: float(took) for name, took in re.findall(TURNS, metrics)}
    assert turns["token:heavy"] > turns["token:light"] > 0


def test_what_another_has_queued_does_not_open_the_gate(running: Running, start: Start) -> None:
    """A tenant that was alone has filled the card's queue. A tenant that comes then must not queue all its work
    besides.
    """
    light = start("light", "for _ in range(5000): launch(400, None, 3)\nprint('queued', flush=True)\nsys.stdin.read()")
    heavy = start("heavy", SATURATE.format(number=2))
    before = counts(running)
    with turns_file(running) as memory:
        struct.pack_into("<Q", memory, ALONE_NS_AT, 1)  # a tenant that submits counts as alone at once
        try:
            tell(light)
            assert read(light) == "queued"
            wait_until(lambda: counts(running)[3] - before[3] == 5000)
        finally:
            struct.pack_into("<Q", memory, ALONE_NS_AT, turns.Policy().alone_ns)
    begun, free_ns = time.monotonic_ns(), struct.unpack("<q", card(running)[:8])[0]
    tell(heavy)
    while True:
        queued, now = counts(running)[2] - before[2], time.monotonic_ns()
        if now > free_ns:
            break
        assert queued <= 2 + (now - begun) / 5e6  # one more in each 5 ms, in case the first depends on it
        time.sleep(0.01)


def test_a_damaged_file_of_turns_stops_nobody(running: Running, start: Start) -> None:
    """What a compromised worker could write: the turn belongs for ever to a tenant that has no session."""
    programs = [start(name, "launch(50)\nok(cuda.cuCtxSynchronize())\nprint('done', flush=True)") for name in WEIGHTS]
    with turns_file(running) as memory:
        turn, held_until = turns._DEVICES_AT, turns._DEVICES_AT + 3 * 8  # of the first device
        struct.pack_into("<Q", memory, turn, 1 << 16 | turns.TENANTS)
        struct.pack_into("<Q", memory, held_until, 1 << 62)
        try:
            for program in programs:
                tell(program)
                assert read(program) == "done"
        finally:
            struct.pack_into("<Q", memory, turn, 0)
            struct.pack_into("<Q", memory, held_until, 0)
    running.wait_log("no turn on the card came within 2 s")  # the worker says so, and vgpud logs it a moment later


def test_captures_graphs_and_contexts_that_go(running: Running, start: Start) -> None:
    """Captured work waits for no turn; events of a destroyed context are not used again."""
    before = counts(running)
    tell(start("light", SATURATE.format(number=3)))
    program = start(
        "heavy",
        f"""
stream = new(cuda.cuStreamCreate, 1)
for turn in range(3):
    ok(cuda.cuStreamBeginCapture_v2(stream, 0))
    for _ in range(40):
        launch(1000, stream)
    graph, executable = c_void_p(), c_void_p()
    ok(cuda.cuStreamEndCapture(stream, byref(graph)))
    ok(cuda.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0)))
    for _ in range(10):
        ok(cuda.cuGraphLaunch(executable, stream))
    for _ in range(4):
        launch(50, stream, 2)
    ok(cuda.cuStreamSynchronize(stream))
ok(cuda.cuStreamDestroy_v2(stream))
ok(cuda.cuDevicePrimaryCtxRelease_v2(0))
context()
ok(cuda.cuModuleLoadData(byref(module), {PTX!r}))
ok(cuda.cuModuleGetFunction(byref(function), module, b"touch"))
for _ in range(20):
    launch(100, None, 2)
ok(cuda.cuCtxSynchronize())
print("done", flush=True)
""",
    )
    tell(program)
    assert read(program) == "done"
    after = counts(running)
    assert after[2] - before[2] == 3 * 4 + 20
    assert after[3] > before[3]
