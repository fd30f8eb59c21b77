"""The second part of `make bench`: the simulator's kernels against the same work as plain C loops on all cores, kernels
like Rodinia's against OpenMP, and Thrust's radix sort against std::sort.

The two sides take turns, so that both see the same machine load. Medians of `TURNS` runs. (Driver calls: `vgpu bench`.)
Matrix products are compared with NumPy's f32 (OpenBLAS) on the same processors.

`--build DIR` only compiles the CUDA programs; `--programs DIR` takes them from there, on a machine without this
project's CUDA packages. `--processors 2` measures on two of the machine's processors, `--only` some of the parts.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/bench"
BUILT = ROOT / "build/bench"
sys.path[:0] = [str(ROOT), str(ROOT / "daemon")]

from vgpud.cli.private_daemon import PrivateDaemon  # noqa: E402

from tests.programs.toolchain import PTX, cuda13  # noqa: E402

TURNS = 5
RUN_TIMEOUT_S = 120.0
SPARE_WORKER_S = 1.5  # time in which vgpud starts a new spare worker
CC = ["gcc", "-Wall", "-Wextra", "-O3", "-march=native", "-fopenmp"]
CUDA_PROGRAMS = ("kernels", "rodinia", "sort", "products")
N = 1024  # products.cu
COUNTERPARTS = {"kernels": "loops", "rodinia": "rodinia_loops"}  # of a program for the device, in C


def build() -> None:
    """Compile the loops and the kernels."""
    build_loops()
    build_cuda(BUILT)


def build_loops() -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    for source, program in (("loops", "loops"), ("rodinia", "rodinia_loops")):
        subprocess.run([*CC, "-o", BUILT / program, HERE / f"{source}.c", "-lm"], check=True)


def build_cuda(folder: Path, *programs: str) -> None:
    """Compile CUDA programs, all without a choice, unless they are newer than their sources."""
    folder.mkdir(parents=True, exist_ok=True)
    cuda = cuda13()
    nvcc = [cuda.root / "bin/nvcc", "-std=c++17", "-O2", *PTX.options, f"-L{cuda.library_folder()}"]
    nvcc += [f"-I{cuda.root}/include", f"-I{cuda.root}/include/cccl", "-Wno-deprecated-gpu-targets"]
    for program in programs or CUDA_PROGRAMS:
        source, built = HERE / f"{program}.cu", folder / program
        if built.exists() and built.stat().st_mtime > max(path.stat().st_mtime for path in (source, HERE / "sizes.h")):
            continue
        subprocess.run([*nvcc, "-o", built, source, "-ldl"], check=True)


def run(program: str, endpoint: str | None = None, libraries: str = "") -> dict[str, list[float]]:
    """Run a program natively, or as a client of `endpoint`; returns the values of each line that it prints, by name.
    `libraries` is a folder with more libraries."""
    path = f"{ROOT}/build/guest:{libraries}".rstrip(":")
    env = {**os.environ, **({"VGPU_ENDPOINT": endpoint, "LD_LIBRARY_PATH": path} if endpoint else {})}
    if endpoint:
        time.sleep(SPARE_WORKER_S)
    result = subprocess.run([BUILT / program], env=env, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    if result.returncode:
        raise SystemExit(f"bench: {program} failed: {result.stdout}{result.stderr}")
    lines = (line.split() for line in result.stdout.splitlines())
    return {name: [float(value) for value in values] for name, *values in lines}


def bench_program(program: str, cold: str, endpoint: str) -> None:
    """Measure the kernels of a program beside its counterpart."""
    ratios = {}
    first = run(program, cold)  # with an empty cache: the first launches compile
    turns = [(run(program, endpoint), run(COUNTERPARTS[program])) for _ in range(TURNS)]
    for name, values in first.items():
        check_sums(name, values, *(turn[name] for turn in turns[0]))
        ratios[name] = row(
            name,
            statistics.median(simulated[name][0] for simulated, _ in turns),
            statistics.median(loops[name][0] for _, loops in turns),
            values[1],
            statistics.median(simulated[name][1] for simulated, _ in turns),
        )
    if program == "rodinia":
        print(f"{'geometric mean of these six':<44}{statistics.geometric_mean(ratios.values()):>9.2f}", flush=True)
    else:
        copies = ratios["copy_bytes"] / ratios["copy_wide"]
        print(f"{'copy_bytes against copy_wide':<44}{copies:>9.2f}", flush=True)


def bench_sort(cold: str, endpoint: str) -> None:
    """Measure Thrust's sort beside the host's, in one program."""
    first = run("sort", cold)
    sorts = [run("sort", endpoint) for _ in range(TURNS)]
    medians = {name: [statistics.median(turn[name][i] for turn in sorts) for i in (0, 1)] for name in first}
    row("radix sort", medians["sort"][0], medians["std::sort"][0], first["sort"][1], medians["sort"][1])


def cublas() -> Path | None:
    """cuBLAS of a Python package, or of a toolkit."""
    folders = [path for folder in sys.path for path in sorted(Path(folder or ".").glob("nvidia/*/lib"))]
    folders += [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders += [path / "lib64" for path in sorted(Path("/usr/local").glob("cuda*"))]
    found = (path for folder in folders for path in sorted(folder.glob("libcublas.so.1[23]")))
    return next(found, None)


def bench_products(cold: str, endpoint: str) -> None:
    """Products of 1024^3: wmma in f16 and cuBLAS in f32 against NumPy in f32."""
    try:
        import numpy as np
    except ImportError:
        print("products: left out: no NumPy")
        return
    library = Path(os.environ["BENCH_CUBLAS"]) if "BENCH_CUBLAS" in os.environ else cublas()
    if library:
        os.environ["BENCH_CUBLAS"] = str(library)
    libraries = str(library.parent) if library else ""
    first = run("products", cold, libraries)
    turns: list[dict[str, list[float]]] = []
    numpy_s: list[float] = []
    ones = np.ones((N, N), np.float32)
    for _ in range(TURNS):
        turns.append(run("products", endpoint, libraries))
        for _ in range(3):
            begin = time.perf_counter()
            ones @ ones
            numpy_s.append(time.perf_counter() - begin)
    for name in first:
        simulated, cached = (statistics.median(turn[name][i] for turn in turns) for i in (0, 1))
        row(f"{name} (NumPy)", simulated, statistics.median(numpy_s), first[name][1], cached)
    if "sgemm" not in first:
        print(f"sgemm: left out: cuBLAS {'does not load' if library else 'not found'}")


def row(name: str, simulated_s: float, loops_s: float, first_s: float, cached_s: float) -> float:
    """Print a row; returns the ratio."""
    ratio = simulated_s / loops_s
    times = f"{simulated_s * 1e3:>11.3f} ms{loops_s * 1e3:>11.3f} ms{ratio:>9.2f}"
    print(f"{name:<16}{times}{first_s * 1e3:>13.1f} ms{cached_s * 1e3:>11.1f} ms", flush=True)
    return ratio


def check_sums(name: str, *measured: list[float]) -> None:
    """Check that the sums of the results agree, where the programs print one after the times."""
    sums = [values[2] for values in measured if len(values) > 2]
    if sums and max(sums) - min(sums) > 1e-3 * abs(sums[0]):
        raise SystemExit(f"bench: {name}: different results: {sums}")


def bench(device: str, programs: Sequence[str]) -> None:
    """Measure some programs on a simulated device, with an empty cache. Turns are with whole code, which a large kernel
    has only once it has run for a while (docs/simulator.md)."""
    others = {"sort": bench_sort, "products": bench_products}
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as name:
        config = Path(name) / "vgpud.toml"
        config.write_text(f'cache_dir = "{name}/cache"\n[log]\nlevel = "warning"\n')
        with PrivateDaemon(device, config=config, log=Path(name) / "log") as cold:
            os.environ["VGPU_QUICK"] = "0"
            with PrivateDaemon(device, config=config, log=Path(name) / "log.whole") as whole:
                endpoints = str(cold.endpoint), str(whole.endpoint)
                for program in programs:
                    if program in COUNTERPARTS:
                        bench_program(program, *endpoints)
                    else:
                        others[program](*endpoints)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, metavar="DIR", help="compile the CUDA programs into DIR, and that is all")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="the CUDA programs that --build has compiled")
    parser.add_argument("--processors", type=int, help="how many to use (all)")
    parser.add_argument("--only", nargs="+", default=CUDA_PROGRAMS, choices=CUDA_PROGRAMS, help="parts (all)")
    options = parser.parse_args()
    if options.build:
        build_cuda(options.build)
        return
    if options.processors:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.processors])
    build_loops()
    if options.programs:
        for program in options.only:
            shutil.copy(options.programs / program, BUILT)
    else:
        build_cuda(BUILT, *options.only)
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = next(
        (line.split(":", 1)[1].strip() for line in cpuinfo.splitlines() if line.startswith("model name")),
        platform.machine(),
    )
    print(
        f"{time.strftime('%Y-%m-%d %H:%M')}, {model}, {len(os.sched_getaffinity(0))} CPUs, "
        f"load {os.getloadavg()[0]:.1f} before, medians of {TURNS} runs"
    )
    print(f"\n{'kernels':<16}{'simulator':>14}{'C loops':>14}{'ratio':>9}{'first launch':>16}{'cached':>14}")
    if others := [program for program in options.only if program != "products"]:
        bench("h100", others)
    if "products" in options.only:  # cuBLAS has machine code for the H100, and PTX for later devices
        bench("forward", ["products"])


if __name__ == "__main__":
    main()
