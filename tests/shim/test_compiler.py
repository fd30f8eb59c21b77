"""vgpu's library in front of NVRTC: what it changes, what it passes on, and where it finds NVIDIA's NVRTC.

The tests of clients use NVIDIA's NVRTC behind the library; these tests use vgt_nvrtc.c, which records its arguments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from vgpu_guest.libraries import LIBRARIES
from vgpud.cli import steering

COMPILER = LIBRARIES / "compiler"
SOURCE = Path(__file__).parent / "vgt_nvrtc.c"
PROGRAM = r"""
import ctypes, json, sys
lib = ctypes.CDLL(sys.argv[1])
lib.nvrtcGetErrorString.restype = ctypes.c_char_p
def compiled(*options):
    made, names = ctypes.c_void_p(), (ctypes.c_char_p * 2)(b"a.h", b"b.h")
    code = lib.nvrtcCreateProgram(ctypes.byref(made), b"source", b"name.cu", 2, names, names)
    if code:
        return code, lib.nvrtcGetErrorString(code).decode()
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    assert lib.nvrtcCompileProgram(made, len(options), given) == 0
    nbytes, name = ctypes.c_size_t(), ctypes.c_char_p()
    assert lib.nvrtcGetCUBINSize(made, ctypes.byref(nbytes)) == 0
    code = ctypes.create_string_buffer(nbytes.value)
    assert lib.nvrtcGetCUBIN(made, code) == 0
    assert lib.nvrtcGetLoweredName(made, b"k", ctypes.byref(name)) == 0
    lib.nvrtcDestroyProgram(ctypes.byref(made))
    return code.raw.decode(), name.value.decode()
print(json.dumps([compiled(*options.split("|")) for options in sys.argv[2:]]))
"""
Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Python packages that has the recording NVRTC where NVIDIA's wheel has it."""
    site = tmp_path_factory.mktemp("site")
    folder = site / "nvidia/cu13/lib"
    folder.mkdir(parents=True)
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libnvrtc.so.13",
        "-o",
        str(folder / "libnvrtc.so.13"),
        str(SOURCE),
    ]
    subprocess.run(command, check=True)
    return site


@pytest.fixture
def ask() -> Ask:
    def run(*options: str, soname: str = "libnvrtc.so.13", **env: str) -> subprocess.CompletedProcess[str]:
        kept = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(COMPILER / soname)}
        command = [sys.executable, "-c", PROGRAM, soname, *options]
        return subprocess.run(command, env={**kept, **env}, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-arch=sm_90|-O3", "-arch=sm_90 -O3 "),
        ("-arch=sm_130", "-arch=sm_120 "),
        ("--gpu-architecture=compute_130", "--gpu-architecture=compute_120 "),
        ("-I.|--gpu-architecture|sm_100a|-lineinfo", "-I. --gpu-architecture sm_90 -lineinfo "),
        ("-arch=sm_50", "-arch=sm_50 "),  # older than all supported ones: NVRTC refuses it
        ("-arch=sm_130|-arch=sm_90", "-arch=sm_130 -arch=sm_90 "),  # the last option counts
        ("-DNAME=-arch=sm_130", "-DNAME=-arch=sm_130 "),
        ("-arch=native", "-arch=native "),
    ],
)
def test_machine_code_is_answered_with_ptx_for_an_architecture_that_nvrtc_knows(
    ask: Ask, real: Path, options: str, expected: str
) -> None:
    done = ask(options, PYTHONPATH=str(real))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f'[["{expected}\\u0000", "name.cu 2 b.h b.h"]]'
    assert done.stderr == ""


@pytest.mark.parametrize("option", ["-maxrregcount=40", "--maxrregcount|40"])
def test_a_limit_of_registers_stays_in_what_answers_for_machine_code(ask: Ask, real: Path, option: str) -> None:
    done = ask(option, "-O3", f"--maxrregcount=24|{option}", PYTHONPATH=str(real))
    answers = [code for code, _ in json.loads(done.stdout)]
    limit = '\n.pragma "vgpu_maxnreg 40";\n\0'
    given = option.replace("|", " ")
    assert answers == [f"{given} {limit}", "-O3 \0", f"--maxrregcount=24 {given} {limit}"]


def test_where_there_is_no_ptx_nvrtcs_own_answer_counts(ask: Ask, real: Path) -> None:
    assert '"cubin\\u0000"' in ask("-dlto|-arch=sm_90", PYTHONPATH=str(real)).stdout


VARIABLES = ("PYTHONPATH", "LD_LIBRARY_PATH", "VGPU_NVRTC", "VGPU_NVRTC_FALLBACK", "CONDA_PREFIX", "CUDA_HOME")


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_programs_own_nvrtc_is_found(ask: Ask, real: Path, tmp_path: Path, variable: str) -> None:
    file = real / "nvidia/cu13/lib/libnvrtc.so.13"
    (tmp_path / "lib").symlink_to(file.parent)
    named = {"PYTHONPATH": real, "LD_LIBRARY_PATH": file.parent, "VGPU_NVRTC": file, "VGPU_NVRTC_FALLBACK": file}
    done = ask("-arch=sm_90", **{variable: str(named.get(variable, tmp_path))})
    assert "-arch=sm_90" in done.stdout, done.stderr
    assert done.stderr == ""


def test_a_program_that_finds_one_majors_name_gets_the_other_that_is_installed(ask: Ask, real: Path) -> None:
    """cuda-pathfinder uses a loaded NVRTC, looking for 13 before 12, and vgpu's libraries for both are preloaded."""
    assert "-arch=sm_90" in ask("-arch=sm_90", soname="libnvrtc.so.12", PYTHONPATH=str(real)).stdout


def test_a_program_finds_nvrtc_by_its_name_without_a_version(ask: Ask, real: Path, tmp_path: Path) -> None:
    """hashcat opens libnvrtc.so, which NVIDIA's packages for Python do not have; the Python on PATH has the others."""
    file = real / "nvidia/cu13/lib/libnvrtc.so.13"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    (tmp_path / "lib/python3.12").mkdir(parents=True)
    (tmp_path / "lib/python3.12/site-packages").symlink_to(real)
    environment = {"PATH": str(tmp_path / "bin")}
    steering.apply(environment, [(9, 0)], "hashcat")
    assert environment["VGPU_NVRTC_FALLBACK"] == str(
        tmp_path / "lib/python3.12/site-packages/nvidia/cu13/lib" / file.name
    )
    done = ask(
        "-arch=sm_130",
        soname="libnvrtc.so",
        LD_PRELOAD=environment["LD_PRELOAD"],
        **{name: environment[name] for name in ("LD_LIBRARY_PATH", "VGPU_NVRTC_FALLBACK")},
    )
    assert "-arch=sm_120" in done.stdout, done.stderr

    own = tmp_path / "own"
    own.mkdir()
    (own / "libnvrtc.so").symlink_to(file)
    environment = {"PATH": str(tmp_path / "bin"), "LD_LIBRARY_PATH": str(own)}
    steering.apply(environment, [(9, 0)], "hashcat")
    assert environment["LD_LIBRARY_PATH"] == str(own), "the program finds one by this name itself"


def test_without_an_nvrtc_calls_fail_and_the_reason_is_on_stderr(ask: Ask, tmp_path: Path) -> None:
    done = ask("-arch=sm_90", VGPU_NVRTC=str(tmp_path / "missing"))
    assert done.stdout.startswith('[[11, "NVRTC_ERROR_INTERNAL_ERROR')
    assert f"VGPU_NVRTC names {tmp_path}/missing, which cannot be opened" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_its_own_kind_is_never_taken_for_nvidias(ask: Ask, tmp_path: Path) -> None:
    """A copy of vgpu's library, e.g. of a second installation, is not NVRTC: the library would call itself for ever."""
    copy = tmp_path / "libnvrtc.so.13"
    copy.write_bytes((COMPILER / "libnvrtc.so.13").read_bytes())
    for file in (copy, COMPILER / "libnvrtc.so.13"):
        assert ask("-arch=sm_90", VGPU_NVRTC=str(file)).stdout.startswith("[[11,")


def test_run_preloads_a_linker_where_the_program_has_nvidias(tmp_path: Path) -> None:
    """numba and cuda-core give PTX to the driver's linker where they find no nvJitLink."""
    linker = tmp_path / "libnvJitLink.so.13"
    linker.write_bytes((COMPILER / linker.name).read_bytes())
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": ""}
    steering.apply(environment, [(9, 0)])
    assert environment["LD_PRELOAD"].endswith(f":{COMPILER / linker.name}")
    assert "libnvJitLink.so.12" not in environment["LD_PRELOAD"]


def test_run_preloads_what_is_built() -> None:
    assert all((COMPILER / name).exists() for name in (*steering.COMPILERS, *steering.LINKERS))
    environment = {"LD_PRELOAD": "/mine.so", "PATH": ""}
    steering.apply(environment, [(9, 0)])
    assert environment["LD_PRELOAD"].split(":") == ["/mine.so", *(str(COMPILER / name) for name in steering.COMPILERS)]
    for capabilities, given in (([], {}), ([(9, 0)], {"VGPU_COMPILER": "0"})):
        left = dict(given)
        steering.apply(left, capabilities)
        assert "LD_PRELOAD" not in left
