"""While a call makes the host work for seconds, a line on the program's stderr says on what."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running, vgpud_with_real_workers
from tests.shim.client import PRELUDE, PYTHON, environment, run
from tests.shim.fake_daemon import FakeDaemon, Fields, Memory
from tests.shim.test_reason import POKE

WORKER = Path(__file__).with_name("slow_worker.py")
LAUNCH = f"""
context()
module = new(cuda.cuModuleLoadData, {POKE!r})
kernel = new(cuda.cuModuleGetFunction, module, b"_Z4pokePi")
p = alloc(4)
parameters = (c_void_p * 1)(ctypes.cast(ctypes.pointer(p), c_void_p))
ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None))
ok(cuda.cuCtxSynchronize())
print("done")
"""


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[int]:
    """A FIFO's descriptor; compiles of `slow` last until a byte is written to it."""
    os.mkfifo(tmp_path / "bell")
    descriptor = os.open(tmp_path / "bell", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(params=["shared memory", "socket"])
def slow(request: pytest.FixtureRequest, tmp_path: Path, bell: int) -> Iterator[Running]:
    """A vgpud whose compiles last until the test writes to `bell`."""
    command = [sys.executable, str(WORKER), str(tmp_path / "bell"), "--backend", "simulator"]
    shared = str(request.param == "shared memory").lower()
    yield from vgpud_with_real_workers(tmp_path, f"worker_command = {command!r}\nshared_memory = {shared}\n")


@pytest.mark.parametrize("where", ["asked for", "terminal"])
def test_a_compile_is_named_while_the_program_waits_for_it(slow: Running, bell: int, where: str) -> None:
    reader, terminal = os.openpty()
    env = environment(str(slow.endpoint), VGPU_PROGRESS="1" if where == "asked for" else "")
    with subprocess.Popen(
        [*PYTHON, "-c", PRELUDE + LAUNCH],
        env=env,
        stdout=subprocess.PIPE,
        stderr=terminal if where == "terminal" else subprocess.PIPE,
        text=True,
    ) as client:
        os.close(terminal)
        with open(reader) if where == "terminal" else client.stderr as stderr:  # type: ignore[union-attr]
            line = stderr.readline()
            os.write(bell, b"!")
            assert client.communicate(timeout=60)[0] == "done\n"
    assert re.fullmatch(r"vgpu\[\d+\]: compiling kernel poke\(int\*\): later runs find it compiled\n", line), line
    if where == "asked for":
        os.close(reader)
    slow.wait_log(r'worker says.*line="?compiling kernel poke')


def progress(text: bytes, flags: int = 0) -> bytes:
    """A progress record, which is not a reply to a call."""
    body = text + bytes(-len(text) % 8)
    return struct.pack("<IHHII", 16 + len(body), 0, flags, 0, 0) + body


def said(path: Path, record: bytes, expected: int, **changes: str) -> list[str]:
    """Output of a client whose host sends `record` before the reply to a call; the call must return `expected`."""

    def refuse(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        return 209, {}, b""

    refuse.before = record  # type: ignore[attr-defined]
    with FakeDaemon(path, **Memory().handlers | {"cuCtxSetLimit": refuse}) as daemon:
        program = f"""
            os.dup2(1, 2)
            context()
            alloc(16)
            assert (result := cuda.cuCtxSetLimit(0, c_size_t(1))) == {expected}, result
        """
        output = run(daemon.url, textwrap.dedent(program), **changes)
        assert "progress" in daemon.hellos[0]["features"]
    return output.splitlines()


def test_nobody_who_reads_a_programs_output_is_disturbed(path: Path) -> None:
    assert said(path, progress(b"compiling\0"), 209) == []


@pytest.mark.parametrize("changes", [{"VGPU_PROGRESS": "1"}, {"VGPU_LOG": "info", "VGPU_PROGRESS": "0"}])
def test_who_asks_for_it_is_told(path: Path, changes: dict[str, str]) -> None:
    assert [line for line in said(path, progress(b"compiling\x1b[2J"), 209, **changes) if "compiling\\x1b[2J" in line]


@pytest.mark.parametrize(("changes", "count"), [({}, 1), ({"VGPU_PROGRESS": "0"}, 1), ({"VGPU_LOG": "off"}, 0)])
def test_why_the_host_ends_the_session_is_told_to_everybody(path: Path, changes: dict[str, str], count: int) -> None:
    lines = said(path, progress(b"compiling\x1b[2J", flags=1), 209, **changes)
    assert len([line for line in lines if "compiling\\x1b[2J" in line]) == count == len(lines)


def test_a_host_that_never_stops_is_silent_in_the_end(path: Path) -> None:
    assert len(said(path, progress(b"compiling") * 1000, 209, VGPU_PROGRESS="1")) == 16


@pytest.mark.parametrize("record", [progress(b"x" * 2000), progress(b"")], ids=["long", "empty"])
def test_a_record_of_no_such_form_ends_the_session(path: Path, record: bytes) -> None:
    [line] = said(path, record, 46)
    assert "a reply that fits no call" in line
