"""`make demo`: install CuPy with NVIDIA's NVRTC and cuRAND, and run them unmodified on a simulated device."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.clients.requirements import CUPY  # noqa: E402
from tests.pypi import environment  # noqa: E402


def main() -> int:
    print("Installing CuPy, NVRTC, cuRAND and numpy from PyPI (once) ...", flush=True)
    python = environment(*CUPY) / "bin/python"
    program = ROOT / "tests/clients/programs/with_cupy.py"
    vgpu = Path(sys.executable).parent / "vgpu"
    print(f"$ vgpu run -- python {program.relative_to(ROOT)}", flush=True)
    begin = time.monotonic()
    code = subprocess.run([vgpu, "run", "--", python, program]).returncode
    print(f"{time.monotonic() - begin:.0f} s after set-up (build and installation), compiling included", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
