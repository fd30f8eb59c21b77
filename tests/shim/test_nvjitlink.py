"""The library in front of nvJitLink, with NVIDIA's behind it: PTX and LTO-IR come out as PTX that the driver loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from vgpu_guest.libraries import LIBRARIES
from vgpusim.image import image
from vgpusim.ptx.text import PtxText

from tests.pypi import packages

COMPILERS = ":".join(str(LIBRARIES / "compiler" / name) for name in ("libnvrtc.so.13", "libnvJitLink.so.13"))
NVIDIA = ("nvidia-nvjitlink==13.0.*", "nvidia-cuda-nvrtc==13.0.*")
PROGRAM = r"""
import ctypes, sys
nvrtc, linker = ctypes.CDLL("libnvrtc.so.13"), ctypes.CDLL("libnvJitLink.so.13")
KERNEL = b'extern "C" __device__ float f(float); extern "C" __global__ void k(float *x) { *x = f(*x); }'
CALLEE = b'extern "C" __device__ float f(float x) { return 2 * x + 1; }'
TYPES = {"PTX": 2, "LTOIR": 3, "CUBIN": 1, "CUDADEVRT": 6, "ANY": 10}
def texts(*options):
    return (ctypes.c_char_p * len(options))(*options)
def compiled(source, what):
    made, nbytes = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(made), source, b"a.cu", 0, None, None) == 0
    options = (b"-arch=sm_90", b"-rdc=true", *([b"-dlto"] if what == "LTOIR" else []))
    assert nvrtc.nvrtcCompileProgram(made, len(options), texts(*options)) == 0
    what = "LTOIR" if what == "LTOIR" else "PTX"
    getattr(nvrtc, f"nvrtcGet{what}Size")(made, ctypes.byref(nbytes))
    data = ctypes.create_string_buffer(nbytes.value)
    getattr(nvrtc, f"nvrtcGet{what}")(made, data)
    return data.raw
def call(name, *arguments):
    return getattr(linker, f"__nvJitLink{name}_13_0")(*arguments)
options, inputs = sys.argv[2].encode().split(), sys.argv[3:]
made, nbytes = ctypes.c_void_p(), ctypes.c_size_t()
print("create", call("Create", ctypes.byref(made), len(options), texts(*options)))
for kind, source in zip(inputs, (KERNEL, CALLEE)):
    data = compiled(source, kind) if kind in ("PTX", "LTOIR", "ANY") else b"\x7fELF" + bytes(60)
    if kind == "CUDADEVRT":
        data = b"!<arch>\n" + bytes(60)
    if kind == "BAD":
        data = compiled(CALLEE, "PTX").replace(b"ret;", b"bogus;")
    name = b"/cuda/lib64/libcudadevrt.a" if kind == "CUDADEVRT" else b"part"
    print("add", call("AddData", made, TYPES.get(kind, 2), data, ctypes.c_size_t(len(data)), name))
print("complete", call("Complete", made))
call("GetErrorLogSize", made, ctypes.byref(nbytes))
log = ctypes.create_string_buffer(nbytes.value + 1)
call("GetErrorLog", made, log)
print("log", log.raw[: nbytes.value].decode(errors="replace").rstrip("\0"))
print("size", call("GetLinkedCubinSize", made, ctypes.byref(nbytes)))
linked = ctypes.create_string_buffer(nbytes.value)
if call("GetLinkedCubin", made, linked) == 0:
    open(sys.argv[1], "wb").write(linked.raw)
print("destroy", call("Destroy", ctypes.byref(made)))
"""


def link(path: Path, options: str, *inputs: str) -> list[str]:
    env = {"PATH": os.environ["PATH"], "LD_PRELOAD": COMPILERS, "PYTHONPATH": str(packages(*NVIDIA))}
    command = [sys.executable, "-c", PROGRAM, str(path), options, *inputs]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()


def test_nvjitlink_installs() -> None:
    assert packages(*NVIDIA).is_dir()


@pytest.mark.parametrize(
    ("options", "inputs", "count"),
    [
        ("-arch=sm_90 -lto", ("LTOIR", "LTOIR"), 1),
        ("-arch=sm_130 -lto", ("LTOIR", "LTOIR"), 1),  # an architecture that nvJitLink does not know
        ("-arch=sm_90 -lto", ("LTOIR", "PTX"), 2),
        ("-arch=sm_90", ("PTX", "PTX"), 2),
        ("-arch=sm_90", ("ANY", "ANY"), 2),
    ],
)
def test_what_is_linked_is_ptx_that_a_module_is_made_of(
    tmp_path: Path, options: str, inputs: tuple[str, ...], count: int
) -> None:
    said = link(tmp_path / "linked", options, *inputs)
    assert said == ["create 0", "add 0", "add 0", "complete 0", "log ", "size 0", "destroy 0"]
    loaded = image.load((tmp_path / "linked").read_bytes(), (13, 0))
    assert len(loaded.texts) == count
    assert sum(".entry k" in text for text in loaded.texts) == 1


@pytest.mark.parametrize("options", ["-arch=sm_90 -lto", "-arch=sm_130"])
def test_the_device_runtime_is_the_simulators_own(tmp_path: Path, options: str) -> None:
    """numba links libcudadevrt.a, machine code in an archive, where a kernel has a barrier of the grid."""
    said = link(tmp_path / "linked", options, "LTOIR" if "lto" in options else "PTX", "CUDADEVRT")
    assert said == ["create 0", "add 0", "add 0", "complete 0", "log ", "size 0", "destroy 0"]
    assert len(image.load((tmp_path / "linked").read_bytes(), (13, 0)).texts) == 1


@pytest.mark.parametrize(("options", "kind"), [("-lto", "LTOIR"), ("", "PTX"), ("-lto", "PTX")])
def test_a_limit_of_registers_stays(tmp_path: Path, options: str, kind: str) -> None:
    """numba's max_registers: the simulator reports no more registers, as the linker's machine code has no more."""
    link(tmp_path / "linked", f"-arch=sm_90 -maxrregcount=24 {options}", kind, kind)
    loaded = image.load((tmp_path / "linked").read_bytes(), (13, 0))
    assert {PtxText(text).register_limit for text in loaded.texts} == {24}


def test_machine_code_is_refused_by_name(tmp_path: Path) -> None:
    said = link(tmp_path / "linked", "-arch=sm_90", "CUBIN")
    assert said[:3] == ["create 0", "add 8", "complete 3"]
    assert said[3] == "log part: machine code cannot be linked for a simulated device: pass PTX or LTO-IR"
    assert not (tmp_path / "linked").exists()


def test_nvidias_linker_judges_ptx_for_an_architecture_that_it_knows(tmp_path: Path) -> None:
    said = link(tmp_path / "linked", "-arch=sm_90", "BAD")
    assert said[1] == "add 4"
    assert "Not a name of any known instruction: 'bogus'" in said[3] + said[4]
    said = link(tmp_path / "linked", "-arch=sm_90", "PTX")
    assert said[1:3] == ["add 0", "complete 6"]
    assert "log error   : Undefined reference to 'f' in" in said[3]
    assert link(tmp_path / "linked", "-arch=sm_130", "PTX")[:3] == ["create 0", "add 0", "complete 0"]  # at the load


def test_nvidias_own_errors_are_the_programs(tmp_path: Path) -> None:
    assert link(tmp_path / "linked", "-arch=sm_90 -ptx", "PTX")[0] == "create 11"  # -ptx needs -lto
    said = link(tmp_path / "linked", "-arch=sm_90 -lto -ptx", "PTX")
    assert said[2] == "complete 12"
    assert "-ptx requires that all inputs have LTOIR" in said[3]
