"""CUDA programs that NVIDIA's compiler linked to the shared runtime, run with vgpu's runtime."""

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cudart.runtimes import BY_NUMBER, MAJORS, Major
from tests.programs.test_programs import SIZES, assert_ok
from tests.programs.toolchain import PER_THREAD, SHARED, Flavour, cuda13

Run = Callable[..., CompletedProcess[str]]
OURS = ("--cudart", "vgpu")
PER_THREAD_SHARED = Flavour("per-thread-shared", PER_THREAD.options, "shared")
NO_BODY = {"graph_memory", "textures"}  # these call functions that vgpu's runtime lacks (docs/cudart.md)
NAMES = [name for name in [*SIZES, "errors", "properties", "kernel_printf"] if name not in NO_BODY]

FIRST_CALLS = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW)
count = ctypes.c_int(-1)
assert library.cudaGetDeviceCount(ctypes.byref(count)) == 0 and count.value == 1, count
pointer = ctypes.c_void_p()
assert library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0
assert library.cudaFree(pointer) == 0
files = {line.split()[-1] for line in open("/proc/self/maps") if "libcuda" in line}
print(*sorted(files), sep="\\n")
"""


@pytest.mark.client
@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", NAMES)
def test_program(h100_run: Run, name: str) -> None:
    program = cuda13().build(name, SHARED)
    assert_ok(h100_run([program], options=OURS), name)
    if name in SIZES:
        size = SIZES[name][0] + secrets.randbelow(SIZES[name][1] - SIZES[name][0])
        assert_ok(h100_run([program, secrets.randbelow(2**31), size], options=OURS), name)


@pytest.mark.client
@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", ["streams", "threads", "copies"])
def test_program_with_a_default_stream_for_each_thread(h100_run: Run, name: str) -> None:
    assert_ok(h100_run([cuda13().build(name, PER_THREAD_SHARED)], options=OURS), name)


@pytest.mark.client
@pytest.mark.timeout(700)
def test_program_that_finds_no_runtime_is_given_ours(vgpu_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    program = cuda13().build("saxpy", SHARED)
    result = vgpu_run([program], env={"VGPU_LOG": "info", "VGPU_LOG_FILE": os.devnull, "LD_LIBRARY_PATH": ""})
    assert_ok(result, "saxpy")
    # A machine whose loader finds NVIDIA's runtime 13 uses that one; in both cases a line names the library.
    assert "libcudart.so.13 is " in result.stderr


def preload(library: Path) -> dict[str, str]:
    return {"LD_PRELOAD": os.pathsep.join(filter(None, [str(library), os.environ.get("LD_PRELOAD", "")]))}


@pytest.mark.client
@pytest.mark.timeout(700)
def test_L04_preloaded(vgpu_run: Run) -> None:
    """The preloaded library has the soname that the program needs, so NVIDIA's library on the path is not loaded."""
    toolchain = cuda13()
    library = BY_NUMBER[13].ours
    env = {**preload(library), "LD_LIBRARY_PATH": str(toolchain.library_folder())}
    assert_ok(vgpu_run([toolchain.build("symbols", SHARED)], env=env, options=("--cudart", "program")), "symbols")


@pytest.mark.parametrize("mode", ["by path", "by name", "preloaded"])
@pytest.mark.parametrize("major", MAJORS, ids=lambda major: str(major.number))
def test_L04_L05_one_runtime_and_one_driver_however_loaded(h100_run: Run, major: Major, mode: str) -> None:
    name = str(major.ours) if mode == "by path" else major.soname
    env = preload(major.ours) if mode == "preloaded" else {}
    options = OURS if mode == "by name" else ("--cudart", "program")
    result = h100_run([sys.executable, "-c", FIRST_CALLS, name], env=env, options=options)
    assert result.returncode == 0, result.stderr
    files = [Path(line) for line in result.stdout.split()]
    runtimes = [file for file in files if file.name.startswith("libcudart.so")]
    assert [file.resolve() for file in runtimes] == [major.ours.resolve()]
    assert len({file.resolve() for file in files} - {major.ours.resolve()}) == 1
