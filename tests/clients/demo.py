"""`make demo`: install CuPy with NVIDIA's NVRTC and cuRAND, and run them unmodified on a simulated device."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.clients.requirements import CUPY  # noqa: E402
from tests.pypi import environment  # noqa: E402


def main() -> None:
    print("Installing CuPy, NVRTC, cuRAND and numpy from PyPI (once) ...", flush=True)
    python = environment(*CUPY) / "bin/python"
    program = ROOT / "tests/clients/programs/with_cupy.py"
    vgpu = Path(sys.executable).parent / "vgpu"
    print(f"$ vgpu run -- python {program.relative_to(ROOT)}", flush=True)
    command = [str(vgpu), "run", "--", str(python), str(program)]
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
