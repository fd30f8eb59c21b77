"""`make bench`: ratios measured in one run, on this machine.

Calls are timed in the client, against a vgpud of our own, over a unix socket and over TCP. Kernels are timed against
the same work as plain C loops with all cores, the two taking turns so that both see the same machine. Medians of
`TURNS`.
"""

import os
import platform
import shutil
import socket
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
    """Compile the client, the loops and the kernels."""
    BUILT.mkdir(parents=True, exist_ok=True)
    subprocess.run([*CC, "-O2", "-o", BUILT / "calls", HERE / "calls.c", "-ldl"], check=True)
    loops = [*CC, "-O3", "-march=native", "-fopenmp", "-o", BUILT / "loops", HERE / "loops.c"]
    subprocess.run(loops, check=True)
    cuda = cuda13()
    nvcc = [cuda.root / "bin/nvcc", "-std=c++17", "-O2", *PTX.options, f"-I{cuda.root}/include"]
    subprocess.run([*nvcc, f"-L{cuda.library_folder()}", "-o", BUILT / "kernels", HERE / "kernels.cu"], check=True)


@contextmanager
def daemon(folder: Path) -> Iterator[dict[str, str]]:
    """A vgpud with an empty cache; yields its endpoints by name."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    endpoints = {"unix": f"unix:{folder}/vgpud.sock", "TCP": f"tcp://127.0.0.1:{port}"}
    config = folder / "vgpud.toml"
    config.write_text(
        f'listen = ["{endpoints["unix"]}", "{endpoints["TCP"]}"]\nadmin = ""\n'
        f'gpus = "h100"\ncache_dir = "{folder}/cache"\n[log]\nlevel = "warning"\n'
    )
    process = subprocess.Popen([BIN / "vgpud", "--config", config])
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (folder / "vgpud.sock").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("bench: vgpud did not start")
            time.sleep(0.05)
        yield endpoints
    finally:
        process.terminate()
        process.wait(timeout=START_TIMEOUT_S)


def run(program: str, endpoint: str | None = None) -> dict[str, list[float]]:
    """Run a program that prints lines of a name and seconds; natively, or as a client of `endpoint`."""
    library = f"{ROOT}/daemon/vgpud/_lib"
    env = {**os.environ, **({"VGPU_ENDPOINT": endpoint, "LD_LIBRARY_PATH": library} if endpoint else {})}
    if endpoint:
        time.sleep(SPARE_WORKER_S)
    result = subprocess.run([BUILT / program], env=env, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    if result.returncode:
        raise SystemExit(f"bench: {program} failed: {result.stdout}{result.stderr}")
    lines = (line.split() for line in result.stdout.splitlines())
    return {name: [float(value) for value in values] for name, *values in lines}


def bench_calls(endpoints: dict[str, str]) -> None:
    labels = {
        "init": "dlopen and cuInit",
        "first_result": "dlopen to the first kernel's result",
        "round_trip": "a 4-byte copy from the device",
        "launch_call": "cuLaunchKernel, queued",
        "launch_done": "launch until done, 500 to a synchronisation",
    }
    print(f"\n{'calls, seen from the client':<46}" + "".join(f"{name:>14}" for name in endpoints))
    turns = {name: [run("calls", url) for _ in range(TURNS)] for name, url in endpoints.items()}
    for key, label in labels.items():
        row = "".join(f"{statistics.median(t[key][0] for t in turns[name]) * 1e6:>11.1f} us" for name in endpoints)
        print(f"{label:<46}{row}")


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
        with daemon(folder) as endpoints:
            bench_calls(endpoints)
            bench_kernels(endpoints["unix"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
