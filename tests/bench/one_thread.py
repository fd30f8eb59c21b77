"""The kernels of kernels.cu on one thread beside the loops of loops.c on one thread, by processor time: for machines
whose other work would decide what `tests/bench/kernels.py` measures. The two sides take turns; least and median of some
turns. Launches, and what several threads share, are not in these figures.

`--repository DIR` takes the simulator's compiler from another checkout, to compare with.
"""

import argparse
import ctypes
import mmap
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
COUNT, MATRIX, BLOCKS = 1 << 22, 512, 264  # sizes.h, kernels.cu
MATRIX_NBYTES = 4 * MATRIX * MATRIX
CHUNK = 64  # CTAs; vgx_sim_pool.c
KERNELS = {  # how the mangled name goes on, block, grid, number of the loop
    "saxpy": ("saxpy", 256, COUNT // 256, 0), "matmul": ("matmul", (16, 16, 1), (MATRIX // 16, MATRIX // 16, 1), 1),
    "reduction": ("reductionP", 256, BLOCKS, 2), "histogram": ("histogram", 256, BLOCKS, 3),
    "reduction_tree": ("reduction_tree", 256, BLOCKS, 2), "copy_bytes": ("copyIh", 256, COUNT * 4 // 256, 4),
    "copy_halves": ("copyIt", 256, COUNT * 2 // 256, 4), "copy_words": ("copyIf", 256, COUNT // 256, 4),
    "copy_wide": ("copyI6float4", 256, COUNT // 4 // 256, 4),
}  # fmt: skip


class Timed:
    """The simulator's scheduler, with the processor time of its last call."""

    def __init__(self, library: Any) -> None:
        self._library, self.ns = library, 0

    def vgx_sim_schedule(self, *arguments: object) -> None:
        begin = time.thread_time_ns()
        self._library.vgx_sim_schedule(*arguments)
        self.ns = time.thread_time_ns() - begin


def ptx(folder: Path, cuda: Any, program: str = "kernels") -> str:
    options = ["-std=c++17", "-O2", "-ptx", "-arch=compute_90", f"-I{cuda.root}/include", f"-I{cuda.root}/include/cccl"]
    subprocess.run(
        [cuda.root / "bin/nvcc", *options, "-o", folder / "kernels.ptx", HERE / f"{program}.cu"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return (folder / "kernels.ptx").read_text()


def loops(folder: Path) -> Any:
    source = f'#define main unused\n#include "{HERE}/loops.c"\n#undef main\n'
    source += "void (*const loops[])(void) = {saxpy, matmul, reduction, histogram, copy};\n"
    source += (
        "void begin(void) { for (int i = 0; i < VECTOR; i++) x[i] = y[i] = z[i] = 1, bytes[i] = (unsigned char)i; }"
    )
    (folder / "loops.c").write_text(source)
    options = ["-O3", "-march=native", "-fopenmp-simd", "-fPIC", "-shared", f"-I{HERE}"]
    subprocess.run(["gcc", *options, "-o", folder / "loops.so", folder / "loops.c"], check=True)
    library = ctypes.CDLL(str(folder / "loops.so"))
    library.begin()
    return (ctypes.CFUNCTYPE(None) * 5).in_dll(library, "loops")


def device_memory(nbytes: int, reach_nbits: int) -> np.ndarray:
    """Memory where kernels may reach, of a file, as a simulated device's."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    file, fixed = os.memfd_create("device"), 0x100000
    os.ftruncate(file, nbytes)
    both = mmap.PROT_READ | mmap.PROT_WRITE
    at = libc.mmap((1 << reach_nbits) + (1 << 30), nbytes, both, mmap.MAP_SHARED | fixed, file, 0)
    return np.frombuffer((ctypes.c_char * nbytes).from_address(at), np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, default=HERE.parents[1])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("kernels", nargs="*", default=list(KERNELS), help="which (all)")
    options = parser.parse_args()
    sys.path[:0] = [str(options.repository), str(options.repository / "daemon")]
    from vgpusim.codegen import abi

    from tests.programs.toolchain import cuda13
    from tests.vgpusim.codegen import harness

    timed = Timed(harness._schedule_library())
    harness._schedule_library = lambda: timed
    memory = device_memory(16 * COUNT, abi.REACH_NBITS)
    memory[:] = np.full(4 * COUNT, 1, np.float32).view(np.uint8)
    x, y, z = (memory[i * 4 * COUNT : (i + 1) * 4 * COUNT] for i in range(3))
    text, result = memory[12 * COUNT : 13 * COUNT], memory[13 * COUNT : 13 * COUNT + 4096]
    text[:] = np.arange(COUNT, dtype=np.uint32).astype(np.uint8)
    a, b, c = x[:MATRIX_NBYTES], y[:MATRIX_NBYTES], z[:MATRIX_NBYTES]
    print(f"load {os.getloadavg()[0]:.1f} before, {options.turns} turns; least, median")
    print(f"{'':<16}{'simulator':>21}{'C loop':>21}{'ratio':>14}")
    with tempfile.TemporaryDirectory() as name:
        source, functions = ptx(Path(name), cuda13()), loops(Path(name))
        entries = harness.module_of(source).entries
        for kernel in options.kernels:
            pattern, block, grid, loop = KERNELS[kernel]
            entry = next(entry for entry in entries if re.match(rf"_Z\d+{pattern}", entry))
            size = COUNT * 4 // {"copy_bytes": 1, "copy_halves": 2, "copy_words": 4, "copy_wide": 16}.get(kernel, 4)
            values: list[object] = {
                "saxpy": [COUNT, np.float32(2), x, y], "matmul": [a, b, c, MATRIX], "histogram": [text, COUNT, result],
            }.get(kernel, [x, z, size] if kernel.startswith("copy") else [x, COUNT, result])  # fmt: skip
            mine, theirs = [], []
            for _ in range(options.turns):
                harness.run(source, entry, grid, block, values, chunk=CHUNK)
                mine.append(timed.ns / 1e6)
                begin = time.thread_time_ns()
                functions[loop]()
                theirs.append((time.thread_time_ns() - begin) / 1e6)
            medians = statistics.median(mine), statistics.median(theirs)
            print(f"{kernel:<16}{min(mine):>8.3f}, {medians[0]:>8.3f} ms{min(theirs):>9.3f}, {medians[1]:>8.3f} ms"
                  f"{min(mine) / min(theirs):>8.2f},{medians[0] / medians[1]:>6.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
