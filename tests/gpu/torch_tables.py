"""What a card says of torch's own tables: `python3 tests/gpu/torch_tables.py --out DIR`, for the installed torch.

It runs tests/torch/programs/op_db.py natively: which inputs that must raise do, which dtypes run, and which calls with
one tensor on the CPU raise. What vgpu-torch answers on a simulated device is compared with that (docs/pytorch.md).
DIR/MODE.txt gets the sorted lines `operator TAB detail TAB verdict` of all calls whose verdict is not "exact", and a
line with the counts. Each process takes some operators; those of a process whose context was lost run again alone.
"""

from __future__ import annotations

import argparse
import ast
import collections
import importlib.util
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "torch/programs/op_db.py"
MODES = ("errors", "dtypes", "devices")
PARTS = 48
LIMIT_S = 400
# torch.testing derives a class from expecttest's, and does not use it here.
STUB = "import unittest\nclass TestCase(unittest.TestCase): pass\ndef assert_expected_inline(*_, **__): pass\n"


def run(arguments: list[str], env: dict[str, str]) -> tuple[list[str], dict[str, int], bool]:
    """The lines and counts of one process, and whether its context was lost or it did not end well."""
    try:
        done = subprocess.run(
            [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT_S, env=env
        )
    except subprocess.TimeoutExpired:
        return [f"{' '.join(arguments)}\t*\tended after {LIMIT_S} s"], {}, True
    *lines, checked = done.stdout.splitlines() or [""]
    if not checked.startswith("checked\t"):
        said = (done.stderr.strip().splitlines() or [""])[-1]
        return [*lines, f"{' '.join(arguments)}\t*\tended with {done.returncode}: {said}"], {}, True
    return lines, ast.literal_eval(checked.split("\t")[2]), any("CUDA error" in line for line in lines)


def table(mode: str, pool: ThreadPoolExecutor, env: dict[str, str]) -> str:
    counts: collections.Counter[str] = collections.Counter()
    found: list[str] = []
    parts = [[mode, "--every", str(PARTS), "--first", str(first)] for first in range(PARTS)]
    results = list(pool.map(lambda part: run(part, env), parts))
    lost = [first for first, (_, _, bad) in enumerate(results) if bad]
    again = [[mode, "--every", "100000", "--first", str(i)] for first in lost for i in range(first, 800, PARTS)]
    alone = list(pool.map(lambda part: run(part, env), again))
    for lines, said, _ in [result for result in results if not result[2]] + alone:
        found += lines
        counts.update(said)
    return "".join(f"{line}\n" for line in sorted(found)) + f"{mode}: {dict(counts)}, {len(lost)} parts run again\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the results (results)")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        if importlib.util.find_spec("expecttest") is None:
            Path(folder, "expecttest.py").write_text(STUB)
            env["PYTHONPATH"] = f"{folder}:{env.get('PYTHONPATH', '')}"
        for mode in options.modes:
            text = table(mode, pool, env)
            (options.out / f"{mode}.txt").write_text(text)
            print(text, end="", flush=True)


if __name__ == "__main__":
    main()
