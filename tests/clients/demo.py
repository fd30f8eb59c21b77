"""`make demo`: install tinygrad, a real CUDA client, and run it unmodified on a simulated H100."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.pypi import environment  # noqa: E402

GPU = "h100"


def main() -> None:
    print("Installing tinygrad and numpy from PyPI (once) ...", flush=True)
    python = environment("tinygrad==0.14.*", "numpy") / "bin/python"
    program = ROOT / "tests/clients/programs/with_tinygrad.py"
    vgpu = Path(sys.executable).parent / "vgpu"
    print(f"$ DEV=CUDA:PTX vgpu run --gpu {GPU} -- python {program.relative_to(ROOT)}", flush=True)
    command = [str(vgpu), "run", "--gpu", GPU, "--", str(python), str(program)]
    os.execve(command[0], command, {**os.environ, "DEV": "CUDA:PTX", "CACHELEVEL": "0"})


if __name__ == "__main__":
    main()
