"""PyTorch on a simulated device against PyTorch on the CPU, on a quiet machine: `python3 tests/gpu/torch_ratios.py`.

It needs no card, only a C and a C++ compiler and a Python with torch. Like tests/long.py, it builds in a copy of this
tree, with wheels that `python3 tests/long.py --fetch DIR` downloads on another machine. Each run is one of `make
bench`'s third part (tests/torch/programs/ratios.py): --out gets ratios-N.txt and machine.txt.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.gpu.run import VGPU, build, describe, run_steps  # noqa: E402

BUILD = (("-m", "protocol.gen"), ("shim/build.py",), ("daemon/executor/build_ffi.py",), ("pytorch/build.py",))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the results (results)")
    parser.add_argument("--wheels", type=Path, help="folder with what --fetch has downloaded; without it: installed")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--turns", type=int, default=41, help="of CPU and device in each run (41)")
    parser.add_argument("--limit-s", type=int, default=200, help="seconds that a run may take (200)")
    parser.add_argument("--commit", default="", help="of this tree, where it is a copy without .git")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / "machine.txt").write_text(describe(sys.executable, options.commit))
    program = (sys.executable, "tests/torch/programs/ratios.py", str(options.turns))
    command = ("-c", VGPU, "run", "--gpu", "h100", "--", *program)
    with tempfile.TemporaryDirectory(prefix="vgpu-torch-") as name:
        os.chmod(name, 0o755)  # workers have user ids of their own
        try:
            env = build(Path(name), options.wheels, out, BUILD) | {"OMP_NUM_THREADS": "1"}
        except RuntimeError as error:
            print(error)
            return 1
        steps = {f"ratios-{number}": command for number in range(1, options.runs + 1)}
        failed = run_steps(Path(name), env, steps, out, options.limit_s)
    for step in steps:
        print((out / f"{step}.txt").read_text(), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
