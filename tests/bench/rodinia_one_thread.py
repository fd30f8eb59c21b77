"""The kernels of rodinia.cu on one thread, by processor time, and rodinia.c with one thread of OpenMP, in turns: for
machines whose other work would decide what `tests/bench/kernels.py` measures. Least of some turns.

`--repository DIR` takes the simulator's compiler from another checkout, to compare with.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
NAMES = ("nn", "hotspot", "srad", "bfs", "kmeans", "lud")
MEMORY_NBYTES = 64 << 20
CHUNK = 64  # CTAs; vgx_sim_pool.c
Array = NDArray[np.generic]
Launch = Callable[..., None]  # kernel, grid, block, parameters


def sample(indices: Array) -> NDArray[np.float32]:
    """As rodinia.h's."""
    x = (indices.astype(np.uint32) * np.uint32(2654435761) + np.uint32(12345)).astype(np.uint32)
    x ^= x >> np.uint32(15)
    x = (x * np.uint32(2246822519)).astype(np.uint32)
    x ^= x >> np.uint32(13)
    return (x >> np.uint32(8)).astype(np.float32) * np.float32(1 / 16777216)


class Memory:
    """A simulated device's memory."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory, self._top = memory, 0

    def put(self, values: Array) -> Array:
        place = self._memory[self._top : self._top + values.nbytes].view(values.dtype)
        place[:] = values.ravel()
        self._top += -(-values.nbytes // 256) * 256
        return place


def work(name: str, memory: Memory, launch: Launch) -> tuple[Callable[[], None], Array]:
    """What a turn does, and the array with its result; the sizes are rodinia.h's."""
    put = memory.put
    if name == "nn":
        n = 1 << 21
        x, y, out = put(sample(np.arange(n)) * 60), put(sample(np.arange(n) + n) * 180), put(np.zeros(n, np.float32))
        return lambda: launch("nn", n // 256, 256, x, y, out, n), out
    if name == "kmeans":
        points = 1 << 16
        features, centres = put(sample(np.arange(points * 34))), put(sample(np.arange(5 * 34) + 77777))
        members, sizes = put(np.zeros(points, np.int32)), put(np.zeros(5, np.int32))

        def cluster() -> None:
            sizes[:] = 0
            launch("kmeans", points // 256, 256, features, centres, members, sizes)

        return cluster, members
    if name == "bfs":
        return breadth_first(put, launch)
    if name == "lud":
        return decompose(put, launch)
    side = 1024
    index = np.arange(side * side, dtype=np.uint32)
    start = np.exp(sample(index)) if name == "srad" else 300 + sample(index) * 40
    start = start.astype(np.float32)
    image, other, grid, block = put(start), put(start), (side // 16, side // 16, 1), (16, 16, 1)
    if name == "hotspot":
        power, heat = put(sample(~index)), [image, other]

        def warm() -> None:
            image[:] = start
            for step in range(8):
                launch("hotspot", grid, block, heat[step & 1], power, heat[~step & 1], side)

        return warm, image
    differences, sums = [put(start) for _ in range(4)], put(np.zeros(2, np.float32))

    def smooth() -> None:
        image[:] = start
        for _ in range(2):
            sums[:] = 0
            launch("srad_sums", 128, 256, image, side * side, sums)
            launch("srad_coefficient", grid, block, image, sums, other, *differences, side)
            launch("srad_update", grid, block, image, other, *differences, side)

    return smooth, image


def breadth_first(put: Callable[[Array], Array], launch: Launch) -> tuple[Callable[[], None], Array]:
    n = 1 << 18
    edges = put((sample(np.arange(n * 6)).astype(np.float64) * n).astype(np.int32))
    cost, more = put(np.zeros(n, np.int32)), put(np.zeros(1, np.int32))
    frontier, updating = put(np.zeros(n, np.uint8)), put(np.zeros(n, np.uint8))

    def visit() -> None:
        frontier[:], updating[:], cost[:] = 0, 0, -1
        frontier[0], cost[0], level = 1, 0, 0
        more[0] = 1
        while more[0]:
            more[0] = 0
            launch("bfs_visit", n // 256, 256, edges, frontier, updating, cost, level)
            launch("bfs_advance", n // 256, 256, frontier, updating, more)
            level += 1

    return visit, cost


def decompose(put: Callable[[Array], Array], launch: Launch) -> tuple[Callable[[], None], Array]:
    side = 512
    index = np.arange(side * side)
    start = (sample(index) + np.where(index % (side + 1) == 0, side, 0)).astype(np.float32)
    matrix = put(start)

    def factor() -> None:
        matrix[:] = start
        for at in range(0, side, 16):
            others = (side - at) // 16 - 1
            launch("lud_diagonal", 1, 16, matrix, at)
            if others:
                launch("lud_perimeter", others, 32, matrix, at)
                launch("lud_internal", (others, others, 1), (16, 16, 1), matrix, at)

    return factor, matrix


def loops(program: Path) -> dict[str, float]:
    """Milliseconds of each in C."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    lines = subprocess.run([program], env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[0]: float(line.split()[1]) * 1e3 for line in lines}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, default=HERE.parents[1])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("names", nargs="*", default=NAMES, help="which (all)")
    options = parser.parse_args(arguments)
    sys.path[:0] = [str(options.repository), str(options.repository / "daemon"), str(HERE)]
    from one_thread import Timed, device_memory, ptx
    from vgpusim.codegen import abi

    from tests.programs.toolchain import cuda13
    from tests.vgpusim.codegen import harness

    timed = Timed(harness._schedule_library())
    harness._schedule_library = lambda: timed  # type: ignore[assignment]
    memory = device_memory(MEMORY_NBYTES, abi.REACH_NBITS)
    print(f"load {os.getloadavg()[0]:.1f} before, least of {options.turns} turns")
    with tempfile.TemporaryDirectory() as folder:
        source, program = ptx(Path(folder), cuda13(), "rodinia"), Path(folder) / "loops"
        own = (HERE / "rodinia.c").read_text().replace("CLOCK_MONOTONIC", "CLOCK_PROCESS_CPUTIME_ID")
        (Path(folder) / "loops.c").write_text(own)
        gcc = ["gcc", "-O3", "-march=native", "-fopenmp", f"-I{HERE}"]
        subprocess.run([*gcc, "-o", program, Path(folder) / "loops.c", "-lm"], check=True)
        entries = harness.module_of(source).entries
        spent: dict[str, float] = {}

        def launch(kernel: str, grid: object, block: object, *values: object) -> None:
            entry = next(entry for entry in entries if re.match(rf"_Z\d+{kernel}P", entry))
            harness.run(source, entry, grid, block, values, chunk=CHUNK)  # type: ignore[arg-type]
            spent[kernel] = spent.get(kernel, 0) + timed.ns / 1e6

        theirs = loops(program)
        for name in options.names:
            turn, result = work(name, Memory(memory), launch)
            turn()  # compiles
            least: dict[str, float] = {}
            totals = []
            for _ in range(options.turns):
                spent.clear()
                turn()
                totals.append(sum(spent.values()))
                least = {kernel: min(ms, least.get(kernel, ms)) for kernel, ms in spent.items()}
            theirs = {key: min(ms, theirs[key]) for key, ms in loops(program).items()}
            parts = ", ".join(f"{kernel} {ms:.2f}" for kernel, ms in least.items())
            digest = hashlib.sha256(result.tobytes()).hexdigest()[:12]
            print(f"{name:<8}{min(totals):>8.2f} ms  C {theirs[name]:>8.2f} ms"
                  f"{min(totals) / theirs[name]:>7.2f}  ({parts}) {digest}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
