"""`vgpu sanitize` finds planted faults and nothing else, in a selection of the cases of tests/sanitizer/corpus.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sanitizer import corpus

SOME = {
    "memcheck": ["write-1-past", "pointer-in-memory", "after-free", "misaligned-8", "ok-store", "ok-heap"],
    "leakcheck": ["leak"],
    "initcheck": [
        "half-written",
        "shared-half",
        "unset-branch",
        "unset-index",
        "unset-shuffle",
        "unset-copy",
        "ok-unset",
        "ok-shared-set",
        "ok-free-later",
    ],
    "racecheck": [
        "shared-bytes",
        "ok-shared-bytes",
        "tiles",
        "ok-tiles",
        "handed-over",
        "ok-handed-over",
        "reverse-again",
        "late-round",
        "late-round-before",
        "some-lanes",
        "ok-some-lanes",
        "add-rows",
        "ok-add-rows",
        "fields",
        "ok-fields",
        "ok-late-round",
        "part-of-a-row",
        "neighbour-blocks",
        "one-place-warp",
        "ok-last-block",
        "ok-grid-sync",
        "ok-flags",
        "bytes-of-next",
        "ok-bytes-of-next",
        "bytes-of-all",
        "flag-is-set",
        "ok-flag-is-set",
        "counted",
        "ok-counted",
    ],
    "synccheck": ["half-a-warp", "wrong-count", "warp-mask", "ok-early-exit", "ok-warp-tiles", "ok-whole-warps"],
}


@pytest.fixture(scope="module")
def program() -> Path:
    return corpus.build()


@pytest.mark.parametrize("tool", SOME)
def test_planted_faults(program: Path, tool: str) -> None:
    """Each fault is reported by its tool; correct code is not reported (issue 16)."""
    chosen = [case for case in corpus.cases((program,)) if case.name in SOME[tool]]
    assert len(chosen) == len(SOME[tool])
    result, _ = corpus.check(tool, chosen, (program,))
    assert (result.missed, result.false, result.unwatched) == ([], [], [])


def test_racecheck_finds_the_same_on_several_processors(program: Path) -> None:
    """Blocks run ahead of their turn there (issue 16); on one processor a launch has one thread."""
    chosen = [case for case in corpus.cases((program,)) if case.name in SOME["racecheck"]]
    everywhere = os.sched_getaffinity(0)
    found = []
    for processors in ({min(everywhere)}, everywhere):
        os.sched_setaffinity(0, processors)
        try:
            reports, _, _ = corpus.run("racecheck", chosen, (program,))
        finally:
            os.sched_setaffinity(0, everywhere)
        names = ("session", "kind", "kernel", "hazard", "place", "before_place", "block", "thread", "count")
        found.append([[report.get(name) for name in names] for report in reports])
    one, several = (sorted(each, key=str) for each in found)
    assert one == several
    assert len(one) > len(chosen)


def test_each_load_of_unset_memory_is_named(program: Path) -> None:
    """Also where another one comes before its value is used."""
    chosen = [case for case in corpus.cases((program,)) if case.name == "unset-two"]
    reports, _, _ = corpus.run("initcheck", chosen, (program,))
    source = (Path(__file__).parent / "faults.cu").read_text().splitlines()
    places = {report["place"].split()[0] for report in reports if report["kind"] == "uninitialised"}
    lines = [source[int(re.findall(r"\d+", place)[-1]) - 1].strip() for place in sorted(places)]
    assert lines == ["int one = s[t];", "int other = r[t];"]


@pytest.mark.ecosystem
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("compiler", corpus.COMPILERS)
@pytest.mark.parametrize("tool", sorted(set(corpus.TOOLS) - {"leakcheck"}))
def test_planted_faults_of_other_compilers(compiler: str, tool: str) -> None:
    """The same for every kernel that numba and Triton compile."""
    program = corpus.compiled_by(compiler)
    chosen = [case for case in corpus.cases(program) if case.tool in (tool, "none")]
    assert len(chosen) > 3
    result, _ = corpus.check(tool, chosen, program)
    assert (result.missed, result.false, result.unwatched) == ([], [], [])


def sanitize(*program: str | Path, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "vgpu", "sanitize", "--gpu", "a100", *options, "--", *program]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_what_is_printed(program: Path) -> None:
    """The output has compute-sanitizer's lines and the program's own; the exit code is that of --error-exitcode."""
    done = sanitize(program, "write-1-past", options=("--error-exitcode", "7"))
    lines = done.stdout.splitlines()
    assert done.returncode == 7
    assert "an illegal memory access was encountered" in lines
    start = lines.index("========= Invalid __global__ write of size 4 bytes")
    source = (corpus.ROOT / "tests/sanitizer/faults.cu").read_text().splitlines()
    number = next(i for i, line in enumerate(source, 1) if line.startswith("__global__ void store(int *p"))
    assert lines[start + 1].startswith("=========     at store(int*, int) in ")
    assert lines[start + 1].endswith(f"faults.cu:{number}")
    assert lines[start + 2] == "=========     by thread (63,0,0) in block (0,0,0)"
    assert lines[start + 4].startswith("=========     and is 1 bytes after the nearest allocation at 0x")
    assert lines[start + 4].endswith(" of size 256 bytes")
    assert lines[-1] == "========= ERROR SUMMARY: 1 error"


def test_without_faults_the_exit_code_is_the_programs(program: Path) -> None:
    done = sanitize(program, "ok-store", options=("--error-exitcode", "7"))
    lines = ["========= Launches watched: 1", "========= ERROR SUMMARY: 0 errors"]
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (0, lines)


ONLY_CALLS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
exit(3 + cuda.cuInit(0) + cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0))
"""


@pytest.mark.parametrize(
    ("options", "command", "code", "why", "summary"),
    [
        (("--tool", "memcheck", "--error-exitcode", "7"), ("sh", "-c", "exit 3"), 7,
         "the program did not call vgpu's libcuda (it failed before, or loaded another)", "ERROR SUMMARY"),
        (("--tool", "racecheck"), (sys.executable, "-c", ONLY_CALLS), 3,
         "the program ended, or failed, before it launched one", "RACECHECK SUMMARY"),
    ],
)  # fmt: skip
def test_a_program_whose_kernels_are_not_watched(
    options: tuple[str, ...], command: tuple[str, ...], code: int, why: str, summary: str
) -> None:
    """It never gets "0 errors": on a card's machine numba failed in Python, and the report called it clean (issue
    16)."""
    done = sanitize(*command, options=options)
    assert (done.returncode, done.stdout.splitlines()) == (
        code,
        [
            f"========= VGPU SANITIZE: {options[1]}",
            f"========= No kernel was watched: {why}",
            f"========= {summary}: nothing was watched",
        ],
    )


@pytest.mark.parametrize(("space", "found"), [("global", 0), ("shared", 1), ("all", 1)])
def test_the_memory_that_initcheck_looks_at(program: Path, space: str, found: int) -> None:
    """Shared memory is left out unless it is asked for, as by compute-sanitizer (issue 16)."""
    options = ("--tool", "initcheck", *(("--initcheck-address-space", space) if space != "global" else ()))
    text = sanitize(program, "shared-half", options=options).stdout
    assert ("Uninitialized __shared__ memory read" in text) == bool(found)
    assert ("ERROR SUMMARY: 0 errors" in text) == (not found)


def stacks_of(lines: list[str]) -> dict[str, list[str]]:
    """The frames of the first finding, without their offsets, by the time of the stack."""
    stacks: dict[str, list[str]] = {}
    for line in lines:
        text = line.removeprefix("=========").strip()
        if found := re.fullmatch(r"Saved host backtrace up to driver entry point at (.*)", text):
            if found[1] in stacks:
                break
            frames = stacks[found[1]] = []
        elif found := re.fullmatch(r"(?:Host|Python) Frame: (.*)", text):
            frames.append(re.sub(r" \[0x[0-9a-f]+\]", "", found[1]))
    return stacks


def in_order(frames: list[str], *wanted: str) -> bool:
    left = iter(frames)
    return all(frame in left for frame in wanted)


def test_call_stacks_on_the_host(program: Path) -> None:
    """A report has the stacks of the launch, of the allocation and of the free (issue 16). Static functions are named,
    too."""
    stacks = stacks_of(sanitize(program, "after-free").stdout.splitlines())
    assert in_order(stacks["kernel launch time"], "cuLaunchKernel", "cudaLaunchKernel in faults", "main in faults")
    assert in_order(
        stacks["allocation time"],
        "cuMemAlloc_v2",
        "cudaMalloc in faults",
        "device(unsigned long, int) in faults",
        "main in faults",
    )
    assert in_order(stacks["the time of the free"], "cuMemFree_v2", "cudaFree in faults", "main in faults")
    leak = sanitize(program, "leak", options=("--leak-check", "full")).stdout.splitlines()
    assert in_order(stacks_of(leak)["allocation time"], "cudaMalloc in faults", "main in faults")


IN_PYTHON = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
PTX = b'''.version 7.0
.target sm_80
.address_size 64
.visible .entry store(.param .u64 p) {
.reg .u64 %a;
ld.param.u64 %a, [p];
st.global.u32 [%a+64], 1;
ret;
}'''
handle, module, kernel, p = (ctypes.c_void_p() for _ in range(4))
def check(result):
    assert result == 0, result
def allocate():
    check(cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64)))
def launch():
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(p))
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
check(cuda.cuInit(0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0))
check(cuda.cuCtxSetCurrent(handle))
check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"store"))
allocate()
launch()
print(cuda.cuCtxSynchronize())
"""


def test_call_stacks_in_python(tmp_path: Path) -> None:
    """A Python program's stacks have its own lines beside the interpreter's functions."""
    script = tmp_path / "script.py"
    script.write_text(IN_PYTHON)
    done = sanitize(Path(sys.executable), str(script))
    assert done.stdout.splitlines()[0] == "700", done.stderr
    lines = [*enumerate(IN_PYTHON.splitlines(), 1)]
    stacks = stacks_of(done.stdout.splitlines())
    for time, call, function in (
        ("kernel launch time", "cuLaunchKernel", "launch"),
        ("allocation time", "cuMemAlloc_v2", "allocate"),
    ):
        inner = next(number for number, line in lines if f"cuda.{call}(" in line)
        outer = next(number for number, line in lines if line == f"{function}()")
        assert in_order(stacks[time], call, f"{function} in {script}:{inner}", f"<module> in {script}:{outer}")
