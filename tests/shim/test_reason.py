"""The host's reason for a failure is sent to the client and shown once to the user of the program."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import ROOT
from tests.programs.toolchain import MACHINE_CODE, PTX, cuda13
from tests.shim.client import PRELUDE, run
from tests.shim.fake_daemon import FakeDaemon, Fields, Memory
from tests.shim.simulated import KERNELS

Run = Callable[..., CompletedProcess[str]]

BAD = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { bogus.u32 %r1; }\0"
UNSUPPORTED = b""".version 8.1
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a) {
  .reg .b64 %rd<4>;
  .reg .b32 %r<4>;
  ld.param.u64 %rd1, [a];
  txq.width.b32 %r1, [%rd1];
  ret;
}
\0"""


POKE = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry _Z4pokePi(.param .u64 a) {
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [a];
  st.global.u32 [%rd1], 1;
  ret;
}
\0"""


@pytest.fixture
def python(h100_run: Run) -> Callable[..., list[str]]:
    """Run a program's text; returns the library's lines on stderr, without their prefix."""

    def run_text(program: str, **changes: str) -> list[str]:
        text = (
            PRELUDE
            + KERNELS
            + f"BAD, UNSUPPORTED, POKE = {BAD!r}, {UNSUPPORTED!r}, {POKE!r}\n"
            + textwrap.dedent(program)
        )
        done = h100_run([sys.executable, "-c", text], env=changes)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return told(done)

    return run_text


def told(done: CompletedProcess[str]) -> list[str]:
    return re.findall(r"^vgpu\[\d+\]: (.*)$", done.stderr, re.MULTILINE)


SAME_TEXTS = """
import ctypes, sys
libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]
theirs, runtime, driver = libraries
for library in (theirs, runtime):
    library.cudaGetErrorString.restype = ctypes.c_char_p
for code in range(1100):
    text, expected = ctypes.c_char_p(), theirs.cudaGetErrorString(code)
    if code not in (202, 916):  # of the driver alone
        assert runtime.cudaGetErrorString(code) == expected, code
        if driver.cuGetErrorString(code, ctypes.byref(text)) == 0:
            assert text.value == expected, (code, text.value)
print("same")
"""


@pytest.mark.client
def test_descriptions_of_errors_stay_nvidias() -> None:
    ours = ROOT / "build/guest"
    files = [cuda13().root / "lib/libcudart.so.13", ours / "cudart/13/libcudart.so.13", ours / "libcuda.so.1"]
    command = [sys.executable, "-c", SAME_TEXTS, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "same\n", done.stderr


def test_gr1_code_that_fits_no_device_is_named_with_the_remedy(vgpu_run: Run) -> None:
    program = cuda13().build("saxpy", MACHINE_CODE)
    done = vgpu_run([program])
    assert done.returncode == 1
    [line] = told(done)
    assert "no PTX that runs on sm_90: rebuild with -gencode arch=compute_75,code=compute_75" in line
    assert "CUPY_COMPILE_WITH_PTX=1 and CUPY_ACCELERATORS=" in line  # GR6: with only one of them, sums are 0
    assert told(vgpu_run([program], env={"VGPU_LOG": "off"})) == []


def test_gr6_an_unchecked_program_does_not_go_on_without_its_kernels(vgpu_run: Run) -> None:
    toolchain = cuda13()
    done = vgpu_run([toolchain.build("unchecked", MACHINE_CODE)])
    assert (done.returncode, done.stdout) == (3, "told unchecked: cudaErrorNoKernelImageForDevice\n")
    assert len(told(done)) == 1
    done = vgpu_run([toolchain.build("unchecked", PTX)])
    assert (done.returncode, done.stdout, told(done)) == (0, "ok unchecked\n", [])


REFUSED = """
    context()
    library = new(cuda.cuLibraryLoadData, BAD, None, None, 0, PRESERVED, VALUES, 1)
    kernel = new(cuda.cuLibraryGetKernel, library, b"k")
    same = new(cuda.cuKernelGetFunction, kernel)
    assert cuda.cuFuncGetAttribute(byref(c_int()), 0, same) == 218
    assert cuda.cuKernelGetAttribute(byref(c_int()), 0, kernel, 0) == 218
    assert cuda.cuFuncSetAttribute(same, 8, 1024) == cuda.cuKernelSetAttribute(8, 1024, kernel, 0) == 218
    blocks = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    assert blocks(byref(c_int()), same, 32, c_size_t(0), 0) == 218
    other = function(module(), b"scale")
    ok(launch(other, 64, None, params(c_uint64(0), c_uint(0), c_uint(3), c_uint64(0))))
    ok(cuda.cuCtxSynchronize())
"""


def test_a_kernel_that_cannot_run_ends_the_context_when_it_is_launched(python) -> None:
    """NCCL queries the attributes of all its kernels and continues if some cannot run: only one warning is shown.

    GR6: CUB continues, too, and leaves at 0 the result that the kernel should have computed.
    """
    given = "PRESERVED, VALUES = (c_int * 1)(1), (c_void_p * 1)(1)\n"
    [warning] = python(given + textwrap.dedent(REFUSED))
    assert "kernel k cannot run (218), and its caller may go on without it: " in warning
    assert "bogus" in warning
    assert python(given + textwrap.dedent(REFUSED), VGPU_LOG="off") == []
    _warning, line = python(
        given
        + textwrap.dedent(REFUSED)
        + textwrap.dedent("""
    assert launch(same, 1, None, None) == 218
    assert cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(4)) == 218
    """)
    )
    assert "kernel k cannot run (218)" in line
    assert "bogus" in line


def test_gr2_a_fault_names_its_kernel(python) -> None:
    program = """
    context()
    f = function(module(), b"scale")
    ok(launch(f, 64, None, params(c_uint64(16), c_uint(64), c_uint(3), c_uint64(0))))
    assert cuda.cuCtxSynchronize() == 700
    assert cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(4)) == 700
    """
    [line] = python(program)
    assert "scale" in line
    assert "700" in line
    assert "0x10" in line
    assert python(program, VGPU_LOG="off") == []


def test_gr7_a_fault_says_kind_address_kernel_and_nearest_allocation(python) -> None:
    [line] = python("""
    context()
    f = new(cuda.cuModuleGetFunction, new(cuda.cuModuleLoadData, POKE), b"_Z4pokePi")
    a = alloc(4096)
    ok(launch(f, 1, None, params(c_uint64(a.value + 4096 * 100))))
    assert cuda.cuCtxSynchronize() == 700
    """)
    assert re.match(r"kernel poke\(int\*\) ended with error 700: ", line)
    assert "write of 4 bytes" in line
    assert "block: [0,0,0], thread: [0,0,0]" in line
    assert "405504 bytes past the end of an allocation of 4096 bytes" in line
    assert "signal" not in line


def test_a_kernel_that_cannot_run_has_its_name_demangled(python) -> None:
    """The program has loaded no C++ library."""
    [line] = python("""
    context()
    given = b".version 7.0\\n.target sm_999\\n.visible .entry _Z4pokePi() { ret; }\\0"
    library = new(cuda.cuLibraryLoadData, given, None, None, 0, (c_int * 1)(1), (c_void_p * 1)(1), 1)
    assert launch(new(cuda.cuLibraryGetKernel, library, b"_Z4pokePi"), 1, None, None) == 218
    """)
    assert "kernel poke(int*) cannot run (218)" in line


def test_gr3_an_unsupported_instruction_ends_the_context(python) -> None:
    """A real card runs the kernel, so later calls must fail instead of reading memory that was never written."""
    [line] = python("""
    context()
    p = alloc(64)
    f = new(cuda.cuModuleGetFunction, new(cuda.cuModuleLoadData, UNSUPPORTED), b"k")
    assert launch(f, 1, None, params(p)) == 801
    assert cuda.cuCtxSynchronize() == 801
    assert cuda.cuMemcpyDtoH_v2(create_string_buffer(4), p, c_size_t(4)) == 801
    """)
    assert "kernel k" in line
    assert "txq.width.b32" in line


def test_gr4_the_jit_log_holds_the_reason(python) -> None:
    program = """
    context()
    def logs(capacity):
        info, error = create_string_buffer(b"x" * 400), create_string_buffer(b"x" * 400)
        options = (c_int * 5)(3, 4, 5, 6, 0)
        values = (c_void_p * 5)(ctypes.addressof(info), capacity, ctypes.addressof(error), capacity, 0)
        return info, error, options, values
    info, error, options, values = logs(400)
    m = c_void_p()
    assert cuda.cuModuleLoadDataEx(byref(m), BAD, 5, options, values) == 218
    assert b"line 4" in error.value and b"bogus" in error.value, error.value
    assert values[3] == len(error.value) and not values[1] and info.value == b""
    whole = error.value
    info, error, options, values = logs(20)
    assert cuda.cuModuleLoadDataEx(byref(m), BAD, 5, options, values) == 218
    assert error.value == whole[:19] and error.raw[20:21] == b"x" and values[3] == 19
    info, error, options, values = logs(400)
    ok(cuda.cuModuleLoadDataEx(byref(m), PTX, 5, options, values))
    assert not values[3] and error.value == b""
    info, error, options, values = logs(400)
    library = c_void_p()
    assert cuda.cuLibraryLoadData(byref(library), BAD, options, values, 5, None, None, 0) == 218
    assert error.value == whole
    info, error, options, values = logs(400)
    link, out, n = c_void_p(), c_void_p(), c_size_t()
    ok(cuda.cuLinkCreate_v2(5, options, values, byref(link)))
    bad = PTX.replace(b"sm_70", b"sm_99z")
    assert cuda.cuLinkAddData_v2(link, 1, bad, c_size_t(len(bad)), b"bad", 0, None, None) == 218
    assert b"cannot be linked" in error.value and b"sm_99z" in error.value, error.value
    """
    lines = python(program)
    assert 1 <= len(lines) <= 3
    assert all("bogus" in line or "cannot be linked" in line for line in lines)
    assert python(program, VGPU_LOG="off") == []


def test_gr5_what_is_not_implemented_is_named_once_when_it_is_called(python) -> None:
    assert (
        python("""
    context()
    function = c_void_p()
    assert cuda.cuGetProcAddress_v2(b"cuMulticastCreate", byref(function), 12010, c_uint64(0), None) == 0
    """)
        == []
    )
    assert python("""
    context()
    for _ in range(3):
        assert cuda.cuMulticastCreate(None, None) == 801
    """) == ["cuMulticastCreate is not implemented: CUDA_ERROR_NOT_SUPPORTED"]


def test_a_process_says_a_few_lines_and_where_there_are_more(python) -> None:
    program = """
    context()
    for name in open(LIST).read().split():
        assert getattr(cuda, name)(*[None] * 8) == 801
    """
    names = ["cuMulticastCreate", "cuMulticastAddDevice", "cuMulticastBindMem", "cuMulticastBindAddr"]
    names += ["cuMulticastUnbind", "cuCheckpointProcessLock", "cuCheckpointProcessUnlock", "cuCheckpointProcessRestore"]
    text = f"import io; LIST = None; open = lambda _: io.StringIO({' '.join(names)!r})\n" + textwrap.dedent(program)
    lines = python(text)
    assert len(lines) == 7
    assert "VGPU_LOG=error" in lines[-1]
    assert len(python(text, VGPU_LOG="error")) == len(names)


def test_a_lost_host_is_one_line(path: Path) -> None:
    def die(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        raise EOFError

    with FakeDaemon(path, cuMemAlloc_v2=die) as daemon:
        output = run(
            daemon.url,
            """
            os.dup2(1, 2)
            context()
            for _ in range(3):
                assert cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(16)) == 46
            """,
        )
    assert len(re.findall(r"^vgpu\[\d+\]: session lost: ", output, re.MULTILINE)) == 1


def test_a_hosts_words_are_bounded_and_escaped(path: Path) -> None:
    """A lying host: control characters, lines of another form, results out of range, one line that never ends."""
    words = b"R 2 \x1b[2Jclear\nX 2 no\nR 99999 no\nR -1 no\nEE\nR 2\nR 3 " + b"y" * 5000 + b"\nR 4 "

    def refuse(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        return 2, {}, b""

    def say(fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        return 0, {}, (words * 40)[: fields["capacity"]]

    refuse.notices = say.notices = 2  # type: ignore[attr-defined]
    with FakeDaemon(path, cuMemAlloc_v2=refuse, vgpuTakeReasons=say) as daemon:
        output = run(
            daemon.url,
            """
            os.dup2(1, 2)
            context()
            for _ in range(3):
                assert cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(16)) == 2
            """,
        )
    lines = output.splitlines()
    assert 2 <= len(lines) <= 7
    assert max(map(len, lines)) < 2100
    assert "\\x1b[2Jclear" in lines[0]
    assert "\x1b" not in output
    assert not any(" no" in line for line in lines)


def test_an_ended_context_is_the_hosts_word_too(path: Path) -> None:
    def refuse(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        return 209, {}, b""

    def say(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        return 0, {}, b"E 209 no code\n"

    refuse.notices = 2  # type: ignore[attr-defined]
    handlers = Memory().handlers | {"cuCtxSetLimit": refuse, "vgpuTakeReasons": say}
    with FakeDaemon(path, **handlers) as daemon:
        run(
            daemon.url,
            """
            context()
            alloc(16)
            assert cuda.cuCtxSetLimit(0, c_size_t(1)) == 209
            assert cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(16)) == 209
            """,
        )
