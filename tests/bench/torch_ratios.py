"""The third part of `make bench`: PyTorch on a simulated device against PyTorch on the CPU, one thread each."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.torch.conftest import PROGRAMS, torch_python  # noqa: E402

TIMEOUT_S = 600


def main() -> None:
    vgpu = Path(sys.executable).parent / "vgpu"
    print("\nPyTorch: simulated device against CPU, quartiles", flush=True)
    command = [vgpu, "run", "--gpu", "h100", "--", torch_python(), PROGRAMS / "ratios.py", *sys.argv[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "VGPU_TORCH_NOTICE": "0"}
    sys.exit(subprocess.run(command, env=environment, timeout=TIMEOUT_S).returncode)


if __name__ == "__main__":
    main()
