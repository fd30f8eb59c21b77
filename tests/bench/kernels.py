"""`make bench`, its second part: the simulator's kernels against the same work as plain C loops with all cores.

The two take turns, so that both see the same machine. Medians of `TURNS`. (Driver calls: `vgpu bench`.)
"""

import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/bench"
BUILT = ROOT / "build/bench"
BIN = Path(sys.executable).parent
sys.path.insert(0, str(ROOT))

from tests.programs.toolchain import PTX, cuda13  # noqa: E402

TURNS = 5
START_TIMEOUT_S = 10.0
RUN_TIMEOUT_S = 120.0
SPARE_WORKER_S = 1.5  # time for vgpud to have its spare worker ready again
CC = ["gcc", "-Wall", "-Wextra"]


def build() -> None:
    """Compile the loops and the kernels."""
    BUILT.mkdir(parents=True, exist_ok=True)
    loops = [*CC, "-O3", "-march=native", "-fopenmp", "-o", BUILT / "loops", HERE / "loops.c"]
    subprocess.run(loops, check=True)
    cuda = cuda13()
    nvcc = [cuda.root / "bin/nvcc", "-std=c++17", "-O2", *PTX.options, f"-I{cuda.root}/include"]
    subprocess.run([*nvcc, f"-L{cuda.library_folder()}", "-o", BUILT / "kernels", HERE / "kernels.cu"], check=True)


@contextmanager
def daemon(folder: Path) -> Iterator[str]:
    """A vgpud with an empty cache; yields its endpoint."""
    endpoint = f"unix:{folder}/vgpud.sock"
    config = folder / "vgpud.toml"
    config.write_text(
        f'listen = ["{endpoint}"]\nadmin = ""\ngpus = "h100"\ncache_dir = "{folder}/cache"\n[log]\nlevel = "warning"\n'
    )
    process = subprocess.Popen([BIN / "vgpud", "--config", config])
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (folder / "vgpud.sock").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("bench: vgpud did not start")
            time.sleep(0.05)
        yield endpoint
    finally:
        process.terminate()
        process.wait(timeout=START_TIMEOUT_S)


def run(program: str, endpoint: str | None = None) -> dict[str, list[float]]:
    """Run a program that prints lines of a name and seconds; natively, or as a client of `endpoint`."""
    library = f"{ROOT}/build/guest"
    env = {**os.environ, **({"VGPU_ENDPOINT": endpoint, "LD_LIBRARY_PATH": library} if endpoint else {})}
    if endpoint:
        time.sleep(SPARE_WORKER_S)
    result = subprocess.run([BUILT / program], env=env, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    if result.returncode:
        raise SystemExit(f"bench: {program} failed: {result.stdout}{result.stderr}")
    lines = (line.split() for line in result.stdout.splitlines())
    return {name: [float(value) for value in values] for name, *values in lines}


def bench_kernels(endpoint: str) -> None:
    first = run("kernels", endpoint)  # with an empty cache: the first launches compile
    turns = [(run("kernels", endpoint), run("loops")) for _ in range(TURNS)]
    print(f"\n{'kernels':<12}{'simulator':>14}{'C loops':>14}{'ratio':>9}{'first launch':>16}{'cached':>14}")
    for name in first:
        simulated_s = statistics.median(simulated[name][0] for simulated, _ in turns)
        loops_s = statistics.median(loops[name][0] for _, loops in turns)
        cached_s = statistics.median(simulated[name][1] for simulated, _ in turns)
        row = f"{simulated_s * 1e3:>11.3f} ms{loops_s * 1e3:>11.3f} ms{simulated_s / loops_s:>9.2f}"
        print(f"{name:<12}{row}{first[name][1] * 1e3:>13.1f} ms{cached_s * 1e3:>11.1f} ms")


def main() -> None:
    build()
    folder = Path(tempfile.mkdtemp(prefix="vgpu-bench-"))
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
        model = next(
            (line.split(":", 1)[1].strip() for line in cpuinfo.splitlines() if line.startswith("model name")),
            platform.machine(),
        )
        print(
            f"{time.strftime('%Y-%m-%d %H:%M')}, {model}, {len(os.sched_getaffinity(0))} CPUs, "
            f"load {os.getloadavg()[0]:.1f} before, medians of {TURNS} runs"
        )
        with daemon(folder) as endpoint:
            bench_kernels(endpoint)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
