"""What `vgpu doctor -- python program.py` prints for a framework is what makes its program right: run as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import test_pypi_clients as clients
from tests.conftest import ROOT
from tests.daemon.running import Running
from tests.ecosystem.requirements import REQUIREMENTS
from tests.pypi import environment

TIMEOUT_S = 600
PROGRAMS = {
    "cupy": """import cupy
x = cupy.arange(1000, dtype="f4")
assert float(x.sum()) == 499500 and float(x.max()) == 999
""",
    "numba": """import numpy as np
from numba import cuda
@cuda.jit
def add(a, b):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += b[i]
a = cuda.to_device(np.arange(64, dtype="f4"))
add[1, 64](a, cuda.to_device(np.ones(64, "f4")))
assert (a.copy_to_host() == np.arange(64) + 1).all()
""",
    "warp": """import numpy as np
import warp as wp
@wp.kernel
def scale(x: wp.array(dtype=float), s: float):
    i = wp.tid()
    x[i] = x[i] * s
wp.init()
with wp.ScopedDevice("cuda:0"):
    x = wp.array(np.arange(100, dtype="f4"), dtype=float)
    wp.launch(scale, dim=100, inputs=[x, 3.0])
    assert (x.numpy() == 3 * np.arange(100)).all()
""",
    "triton": """import torch, triton
import triton.language as tl
@triton.jit
def add(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
a = torch.arange(1000, device="cuda", dtype=torch.float32)
o = torch.empty_like(a)
add[(4,)](a, o, 1000, B=256)
assert (o.cpu() == torch.arange(1000) + 1).all()
""",
    "torch": "import torch\na = torch.ones(3, 4, device='cuda')\nassert (a @ a.T).cpu().tolist() == [[4.0] * 3] * 3\n",
    "jax": """import jax
assert float((jax.numpy.arange(1000.0) * 2 + 1).sum()) == 1e6
assert jax.devices()[0].platform == "gpu"
""",
    "tensorflow": """import tensorflow as tf
with tf.device("/GPU:0"):
    b = tf.reduce_sum(tf.range(12, dtype=tf.float32) * 2 + 1)
assert float(b) == 144 and "GPU:0" in b.device
""",
}
NEEDS = {
    **{name: REQUIREMENTS[name] for name in ("cupy", "warp", "triton", "jax", "tensorflow")},
    "torch": REQUIREMENTS["triton"],
    "numba": (*clients.REQUIREMENTS["numba"], "nvidia-nvjitlink==13.0.*"),
}

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(3 * TIMEOUT_S)]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("vgpud")
    config = folder / "vgpud.toml"
    config.write_text(f"listen = ['unix:{folder}/v.sock']\nadmin = ''\ngpus = 'h100'\ncache_dir = '{folder}'\n")
    running = Running.start(config, folder, "log")
    running.wait_ready()
    yield str(running.endpoint)
    running.end()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_remedy_cures(endpoint: str, tmp_path: Path, name: str) -> None:
    python = environment(*NEEDS[name]) / "bin/python"
    (tmp_path / "program.py").write_text(PROGRAMS[name])
    own = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(ROOT / "build/guest"),
        "VGPU_ENDPOINT": endpoint,
    }

    def shell(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command], env=own, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
        )

    plain = f"{python} program.py"
    assert shell(plain).returncode != 0
    told = shell(f"vgpu doctor -- {plain}").stdout
    assert re.match("machine-code-made|no-device-code|device-file-missing", told), told
    mend = re.search(r"^ *mend: (.*)$", told, re.MULTILINE)
    run = re.search(r"^ *next: .*?((?:env -u \S+ )?\S*vgpu run (?:-.* )?-- .*?)(, which .*)?$", told, re.MULTILINE)
    assert mend or run, told
    done = shell(f"{mend[1]}\n{plain}" if mend else run[1] if run else "")
    assert done.returncode == 0, f"{told}\n{done.stderr[-3000:]}"
