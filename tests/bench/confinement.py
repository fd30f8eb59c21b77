"""The cost of confinement: the kernels of tests/bench/kernels.cu with and without the address check, in turns, in this
process. `python tests/bench/confinement.py [TURNS]` reports processor time, which other load on the machine hardly
changes: the least of each, their ratio, and the median of the turns' ratios."""

import ctypes
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon")]

import numpy as np  # noqa: E402

from tests.programs.toolchain import cuda13  # noqa: E402
from tests.vgpusim.codegen import harness  # noqa: E402

TURNS = 60
_REACH = 0x380000000000 + (8 << 40) - (32 << 30)  # vgx_sim_reach.h: the last thread slot, unused here


def ptx() -> str:
    """Compile tests/bench/kernels.cu; returns its PTX."""
    cuda, target = cuda13(), ROOT / "build/bench/kernels.ptx"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [cuda.root / "bin/nvcc", "-std=c++17", "-O2", "-arch=compute_75", "-ptx"]
    subprocess.run([*command, f"-I{cuda.root}/include", "-o", target, ROOT / "tests/bench/kernels.cu"], check=True)
    return target.read_text()


class Reach:
    """Memory at addresses that confined kernels may access."""

    def __init__(self, nbytes: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self.address = libc.mmap(_REACH, nbytes, 3, 0x100022, -1, 0)  # private, anonymous, MAP_FIXED_NOREPLACE
        if self.address != _REACH:
            raise SystemExit("confinement: the addresses are taken")
        self.used = 0

    def array(self, count: int, dtype: type) -> np.ndarray:
        nbytes = count * np.dtype(dtype).itemsize
        buffer = (ctypes.c_char * nbytes).from_address(self.address + self.used)
        self.used += -(-nbytes // 4096) * 4096
        return np.frombuffer(buffer, dtype)


def main() -> None:
    """Print a table: milliseconds with and without confinement, and their ratio."""
    text, reach = ptx(), Reach(1 << 30)
    module = harness.module_of(text)
    n, side = 1 << 21, 512
    x, y = (reach.array(n, np.float32) for _ in range(2))
    a, b, c = (reach.array(side * side, np.float32) for _ in range(3))
    bins, total, data = reach.array(256, np.uint32), reach.array(1, np.float32), reach.array(n, np.uint8)
    data[:] = np.random.default_rng(1).integers(0, 256, n)
    names = {}  # as tests/bench/kernels.cu prints them, where the kernel's differ
    launches = {
        "saxpy": (-(-n // 256), (256, 1, 1), [n, np.float32(2), x, y]),
        "matmul": ((side // 16, side // 16, 1), (16, 16, 1), [a, b, c, side]),
        "reduction": (256, (256, 1, 1), [x, n, total]),
        "histogram": (256, (256, 1, 1), [data, n, bins]),
    }
    for what, mangled, nbytes in (("bytes", "h", 1), ("halves", "t", 2), ("words", "f", 4), ("wide", "6float4", 16)):
        count = x.nbytes // nbytes
        launches[f"copyI{mangled}E"] = (count // 256, (256, 1, 1), [x, y, count])
        names[f"copyI{mangled}E"] = f"copy_{what}"
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else TURNS
    print(f"{'kernel':<24}{'confined':>12}{'not':>12}{'ratio':>8}{'median':>8}")
    for entry in module.entries:
        found = next((name for name in launches if name in entry), None)
        if found is None:
            print(f"{entry:<24} no launch is known")
            continue
        grid, block, values = launches[found]
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(turns):
            for confined in (True, False):
                begin = time.process_time()
                harness.run(text, entry, grid, block, values, chunk=64, confined=confined)
                times[confined].append(time.process_time() - begin)
        least = {key: min(value[1:]) for key, value in times.items()}
        middle = statistics.median(w / o for w, o in zip(times[True][1:], times[False][1:], strict=True))
        ratio = least[True] / least[False]
        columns = f"{least[True] * 1e3:>9.2f} ms{least[False] * 1e3:>9.2f} ms{ratio:>8.3f}{middle:>8.3f}"
        print(f"{names.get(found, found):<24}{columns}")


if __name__ == "__main__":
    main()
