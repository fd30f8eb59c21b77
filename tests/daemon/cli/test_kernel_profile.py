"""`vgpu sim profile`: bad arguments, programs that fail, and runs that are cut short. Its counts are tested in
tests/sanitizer/test_profile.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from vgpud.cli.kernel_profile import HEADER, read_run, rows, totals, trace
from vgpud.cli.status import ExitStatus

from tests.conftest import VGPU, merged
from tests.daemon.running import children, wait_until
from tests.guest.elf_file import compile_c, compile_library
from tests.patience import PATIENCE_S
from tests.programs.toolchain import PTX, cuda13

LINE = "2026-11-29 02:00:00 info    worker says session=3 worker=7 line={}"
LAUNCH = "profile: 0 1000 3000 1 77 2 1 1 32 1 1 0 4 128 2 1" + " 8" * 12 + " _Z5quickPi"
UNFINISHED = "profile: unfinished _Z7endlessPVi"
CUT_SHORT = "vgpu sim profile: the run was cut short: some launches are missing here"


def said(text: str) -> str:
    return LINE.format(json.dumps(text))


def profile(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*VGPU, "sim", "profile", *map(str, arguments)]
    return subprocess.run(command, env=merged(None), capture_output=True, text=True, timeout=PATIENCE_S)


def test_lines_of_launches() -> None:
    log = ["vgpud is ready", said(LAUNCH), said(LAUNCH.replace("profile: 0", "profile: 700")), said(UNFINISHED)]
    run = read_run(log)
    assert (run.others, run.is_cut_short) == (log[:1], False)
    quick, endless = totals(run)
    assert (quick.kernel, quick.launches, quick.failed, quick.time_ns) == ("quick(int*)", 2, 1, 4000)
    assert (endless.kernel, endless.launches, endless.unfinished) == ("endless(int volatile*)", 0, 1)
    table = [dict(zip(HEADER, row, strict=True)) for row in rows([quick, endless])]
    assert table[0]["KERNEL"] == "quick(int*) (1 failed)"
    assert (table[1]["MEAN"], table[1]["KERNEL"]) == ("-", "endless(int volatile*) (1 still running at the end)")
    assert json.loads(json.dumps(endless.as_json()))["unfinished"] == 1
    assert [event["dur"] for event in trace(run.launches)["traceEvents"] if event["ph"] == "X"] == [2, 2]


@pytest.mark.parametrize("length", [len("profile: "), len("profile: 0 10"), len(LAUNCH) - 12])
def test_a_launch_is_not_read_from_half_a_line(length: int) -> None:
    """A worker that is killed while writing leaves a truncated line, which vgpud logs; a killed vgpud does the same."""
    run = read_run([said(LAUNCH[:length])])
    assert (run.launches, run.others, run.is_cut_short) == ([], [], True)
    run = read_run([said(LAUNCH)[: len(LINE) + length]])
    assert (run.launches, run.others, run.is_cut_short) == ([], [], True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Missing argument 'COMMAND...'"),
        (("--timeout", "0", "--", "true"), "0.0 is not in the range x>0"),
        (("--trace",), "Option '--trace' requires an argument"),
        (("--output", "/", "--", "true"), "'/' is a directory"),
        (("--output", "/no/such/folder/table", "--", "true"), "/no/such/folder/table"),
        (("--trace", "/no/such/folder/trace", "--", "true"), "/no/such/folder/trace"),
    ],
)
def test_bad_arguments_are_told_before_the_program_runs(arguments: tuple[str, ...], says: str) -> None:
    done = profile(*arguments)
    assert says in done.stderr
    assert (done.returncode, done.stdout) == (ExitStatus.USAGE, "")


def test_programs_and_devices_that_are_not_there() -> None:
    done = profile("--", "/no/such/program")
    assert done.returncode == ExitStatus.NOT_FOUND
    assert done.stderr == "vgpu sim profile: /no/such/program: No such file or directory\n"
    done = profile("--gpu", "h1000", "--", "true")
    assert done.returncode == ExitStatus.UNAVAILABLE
    assert done.stderr.endswith("vgpu sim profile: the private vgpud ended at once\n")


PROGRAM = """
#include <cstdio>
#include <cstdlib>
__global__ void quick(int *p) { p[threadIdx.x] = 1; }
__global__ void endless(volatile int *p) { while (*p == 1) {} }
__global__ void stray(int *p) { p[1 << 20] = 1; }
int main(int, char **argv) {
  int *p;
  cudaMalloc(&p, 256);
  quick<<<1, 32>>>(p);
  cudaDeviceSynchronize();
  if (*argv[1] == 'e')
    endless<<<1, 1>>>(p);
  else if (*argv[1] == 's')
    stray<<<1, 1>>>(p);
  cudaStreamQuery(0);
  puts("started");
  fflush(stdout);
  if (*argv[1] == 'k')
    getchar();
  cudaError_t result = cudaDeviceSynchronize();
  if (*argv[1] == 'k')
    abort();
  return result;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, cuda = tmp_path_factory.mktemp("profiled"), cuda13()
    (folder / "program.cu").write_text(PROGRAM)
    command = [cuda.root / "bin/nvcc", "-std=c++17", *PTX.options, f"-L{cuda.root}/lib", "-o", folder / "program"]
    subprocess.run([*command, folder / "program.cu"], check=True, timeout=100)
    return folder / "program"


def test_a_program_that_fails_is_profiled(program: Path) -> None:
    done = profile("--json", "--", program, "stray")
    assert done.returncode == 700 % 256
    text = done.stderr[done.stderr.index("[\n") :]
    kernels = {each["kernel"]: each for each in json.loads(text)}
    assert (kernels["quick(int*)"]["failed"], kernels["stray(int*)"]["failed"]) == (0, 1)
    assert "ended with error 700" in done.stderr


def test_what_still_runs_when_time_is_up_is_named(program: Path) -> None:
    for timeout_s in ("5", "20", "80"):  # until it is long enough for the program to launch both kernels
        done = profile("--timeout", timeout_s, "--", program, "endless")
        if "still running" in done.stderr:
            break
    assert (done.returncode, done.stdout) == (ExitStatus.TIMEOUT, "started\n")
    first, *_, quick, endless = done.stderr.splitlines()
    assert first == "vgpu sim profile: time is up (--timeout): the program is ended"
    assert quick.endswith(" quick(int*)")
    assert endless.endswith(" endless(int volatile*) (1 still running at the end)")
    assert CUT_SHORT not in done.stderr


def test_a_worker_that_is_killed_is_told(program: Path) -> None:
    command = [*VGPU, "sim", "profile", "--", str(program), "killed"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=merged(None), stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        for pid in workers(process.pid):
            os.kill(pid, signal.SIGKILL)
        _, err = process.communicate("\n", timeout=60)
    assert process.returncode == ExitStatus.SIGNAL_BASE + signal.SIGABRT
    assert CUT_SHORT in err.splitlines()
    assert "Traceback" not in err


def workers(pid: int) -> list[int]:
    """The workers of a private vgpud among a process's descendants: grandchildren of the loader."""
    found = []
    for child in children(pid):
        is_loader = b"vgpud.worker.loader" in Path(f"/proc/{child}/cmdline").read_bytes()
        if is_loader:
            [launcher] = wait_until(lambda child=child: children(child))
            found += wait_until(lambda launcher=launcher: children(launcher))
        else:
            found += workers(child)
    return found


def test_all_commands_give_a_program_the_same_libraries(tmp_path: Path) -> None:
    """Those are the runtime, profiler, PyTorch's operators, compilers (and the driver, if an RPATH would win)."""
    for soname in ("libcuda.so.1", "libcupti.so.12", "libcudart.so.12"):
        compile_library(tmp_path / f"theirs/{soname}")
    source = "#include <stdlib.h>\nint main(void) { return system(\"env | grep -v '^_='\"); }"
    linked = f"-Wl,--disable-new-dtags,-rpath,{tmp_path}/theirs"
    program = str(compile_c(tmp_path / "program", source, linked))
    given = []
    for command in (["run", "--gpu", "t4"], ["sim", "profile", "--gpu", "t4"], ["sanitize", "--gpu", "t4"]):
        done = subprocess.run(
            [*VGPU, *command, "--", program], env=merged(None), capture_output=True, text=True, timeout=60, check=True
        )
        lines = [line for line in done.stdout.splitlines() if "=" in line and not line.startswith("=====")]
        found = {name: value for name, _, value in (line.partition("=") for line in lines)}
        assert ("VGPU_HOST_STACKS" in found) == (command[0] == "sanitize")
        given.append({k: v for k, v in found.items() if k not in ("VGPU_ENDPOINT", "VGPU_HOST_STACKS")})
    assert given[0] == given[1] == given[2]
    assert "/cupti/12/libcupti.so.12" in given[0]["LD_PRELOAD"]
    assert "/libcuda.so.1:" in given[0]["LD_PRELOAD"]
    assert "/cupti/13" in given[0]["LD_LIBRARY_PATH"] + given[0]["LD_PRELOAD"]  # preloaded if NVIDIA's is found
