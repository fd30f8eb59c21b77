"""A library uses its own definitions of its names, whatever else the process has loaded (GD4, GD5 of issue 13)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.shim.client import PRELUDE, ROOT

Run = Callable[..., CompletedProcess[str]]
LIBRARIES = ROOT / "build/guest"
NAMES = ["libcuda.so.1", "libnvidia-ml.so.1", *(f"cudart/{n}/libcudart.so.{n}" for n in ("12", "13"))]


def _readelf(*arguments: str | Path) -> str:
    return subprocess.run(["readelf", *map(str, arguments)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", [*NAMES, "cudart/11/libcudart.so.11.0"])
def test_no_relocation_names_what_the_library_defines(name: str) -> None:
    path = LIBRARIES / name
    defined = {
        match.group(1)
        for match in re.finditer(
            r"^ *\d+: [0-9a-f]{16} .* GLOBAL +DEFAULT +\d+ (\w+)", _readelf("-W", "--dyn-syms", path), re.MULTILINE
        )
    }
    assert len(defined) > 90
    named = set(re.findall(r"R_X86_64_\w+ +[0-9a-f]{16} (\w+)", _readelf("-W", "-r", path)))
    assert "malloc" in named  # readelf's output was parsed correctly
    assert not named & defined


@pytest.fixture
def preload(tmp_path: Path) -> Callable[[str], str]:
    """`preload(source)` compiles a library to preload and returns its path."""

    def build(source: str) -> str:
        library = tmp_path / "preloaded.so"
        command = ["cc", "-shared", "-fPIC", "-o", str(library), "-x", "c", "-", "-ldl"]
        subprocess.run(command, input=source.encode(), check=True)
        return str(library)

    return build


PROC = """
def proc(name):
    function = c_void_p()
    status = c_int()
    get = ctypes.CFUNCTYPE(c_int, c_char_p, c_void_p, c_int, c_uint64, c_void_p)(
        ctypes.cast(cuda.cuGetProcAddress_v2, c_void_p).value)
    ok(get(name, byref(function), 12000, c_uint64(0), byref(status)))
    return function.value
"""


def test_gd4_a_preloaded_cuinit_is_not_handed_out(vgpu_run: Run, preload: Callable[[str], str]) -> None:
    library = preload("int cuInit(unsigned f) { return 100; }")
    program = PRELUDE + PROC + "print(ctypes.CFUNCTYPE(c_int, c_uint)(proc(b'cuInit'))(0))"
    done = vgpu_run(["env", f"LD_PRELOAD={library}", sys.executable, "-c", program])
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_gd5_a_wrapper_of_cumemalloc_finds_the_real_one(vgpu_run: Run, preload: Callable[[str], str]) -> None:
    """The wrapper asks cuGetProcAddress for the function it wraps, as profilers do: it must not get itself."""
    library = preload(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n"
        "int calls;\n"
        "int cuMemAlloc_v2(unsigned long long *p, size_t n) {\n"
        "  static int (*real)(unsigned long long *, size_t);\n"
        '  int (*get)(const char *, void *, int, long, void *) = dlsym(RTLD_NEXT, "cuGetProcAddress_v2");\n'
        "  if (calls++ > 3) return 999;\n"
        '  if (!real && get("cuMemAlloc", &real, 12000, 0, NULL)) return 998;\n'
        "  return real(p, n);\n}\n"
    )
    program = (
        PRELUDE
        + f"""
ctypes.CDLL({str(LIBRARIES / "libcuda.so.1")!r}, ctypes.RTLD_GLOBAL)
wrapper = ctypes.CDLL({library!r})
context()
p = c_uint64()
print(wrapper.cuMemAlloc_v2(byref(p), c_size_t(4096)), c_int.in_dll(wrapper, "calls").value)
"""
    )
    done = vgpu_run(["env", f"LD_PRELOAD={library}:{LIBRARIES}/libcuda.so.1", sys.executable, "-c", program])
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done.stderr
