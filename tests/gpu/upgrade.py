"""A training that goes on while its vgpud is upgraded: `python tests/gpu/upgrade.py` on a machine with a card.

A program trains a small network with PyTorch (dropout, AdamW, a loss read in each step) twice through vgpud: first
while `vgpu restart` replaces vgpud every --every seconds, then undisturbed for as many steps. vgpud runs from a folder
that is exchanged before the last restart for a copy of the program with another version, as a package's upgrade does.
Printed: whether every step's loss is the same, to the bit, and the longest step before and after the first restart. The
exit code is 1 if losses differ, the program fails, or the version that runs at the end is not the new one.
`--work torch` or `--work driver` is the program itself; `driver` needs no PyTorch: it trains a polynomial by gradient
descent in a kernel of its own, so that the script can be tried with `--backend simulator`.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]
VERSION = "0.1.0.upgraded"
FIRST = 20  # steps in which libraries and kernels are loaded
Step = Callable[[], float]

# weights -= 0.01 * (sums of (polynomial(x) - target(x)) * x**i over 32 places x); out: the sum of squares. One thread.
KERNEL = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry train(.param .u64 weights, .param .u64 out) {
  .reg .b64 %rd<3>; .reg .f32 %f<12>; .reg .b32 %r<2>; .reg .pred %p;
  ld.param.u64 %rd1, [weights];
  ld.param.u64 %rd2, [out];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  ld.global.f32 %f1, [%rd1];
  ld.global.f32 %f2, [%rd1+4];
  mov.f32 %f3, 0f00000000;
  mov.f32 %f4, 0f00000000;
  mov.f32 %f5, 0f00000000;
  mov.u32 %r1, 0;
again:
  cvt.rn.f32.u32 %f6, %r1;
  mul.f32 %f6, %f6, 0f3D000000;
  fma.rn.f32 %f7, %f2, %f6, %f1;
  mul.f32 %f8, %f6, %f6;
  sub.f32 %f7, %f7, %f8;
  fma.rn.f32 %f3, %f7, %f7, %f3;
  add.f32 %f4, %f4, %f7;
  fma.rn.f32 %f5, %f7, %f6, %f5;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p, %r1, 32;
  @%p bra again;
  fma.rn.f32 %f1, %f4, 0fBC23D70A, %f1;
  fma.rn.f32 %f2, %f5, 0fBC23D70A, %f2;
  st.global.f32 [%rd1], %f1;
  st.global.f32 [%rd1+4], %f2;
  st.global.f32 [%rd2], %f3;
  ret;
}
\0"""


def training_by_torch() -> Step:
    import torch
    from torch import nn

    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True, warn_only=True)
    width = 1024
    layers = [part for _ in range(4) for part in (nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(4096, width, device="cuda"), torch.randint(0, 10, (4096,), device="cuda")

    def step() -> float:
        chosen = torch.randint(0, 4096, (512,), device="cuda")
        loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def training_by_driver() -> Step:
    cuda = ctypes.CDLL("libcuda.so.1")

    def ok(result: int) -> None:
        if result:
            raise RuntimeError(f"CUDA error {result}")

    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    weights, out, back = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_float()
    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))
    ok(cuda.cuModuleLoadData(ctypes.byref(module), KERNEL))
    ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"train"))
    for place in (weights, out):
        ok(cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(8)))
    ok(cuda.cuMemsetD32_v2(weights, 0, ctypes.c_size_t(2)))

    def step() -> float:
        parameters = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in (weights, out)))
        ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None))
        ok(cuda.cuMemcpyDtoH_v2(ctypes.byref(back), out, ctypes.c_size_t(4)))
        time.sleep(0.002)
        return back.value

    return step


def work(kind: str, steps: int) -> None:
    """Train; print a line "ready", then one of JSON for each step: its loss in hexadecimal, and its seconds."""
    step = training_by_torch() if kind == "torch" else training_by_driver()
    for number in range(steps) if steps else itertools.count():
        before = time.perf_counter()
        loss = step()
        print(json.dumps([loss.hex(), time.perf_counter() - before]), flush=True)
        if number == FIRST - 1:
            print("ready", flush=True)
        if not steps and select.select([sys.stdin], [], [], 0)[0]:
            return


class Program:
    """The training in a process, whose lines a thread reads. `steps` 0: until end() is called."""

    def __init__(self, options: argparse.Namespace, environment: dict[str, str], steps: int) -> None:
        command = [options.python, __file__, "--work", options.kind, "--steps", str(steps)]
        environment = environment | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.losses: list[str] = []
        self.seconds: list[float] = []
        self.ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "ready\n":
                self.ready.set()
            else:
                loss, seconds = json.loads(line)
                self.losses.append(loss)
                self.seconds.append(seconds)
        self.ready.set()

    @property
    def is_at_work(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join()
        return self._process.wait()


def longest_ms(seconds: list[float]) -> str:
    place = max(range(len(seconds)), key=seconds.__getitem__) if seconds else 0
    return f"{1e3 * seconds[place]:.1f} ms (step {place} of {len(seconds)})" if seconds else "none"


def copy(folder: Path) -> None:
    """The program with another version, as an upgrade brings it."""
    for part in ("daemon", "guest"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "build").symlink_to(ROOT / "build")
    place = folder / "daemon/vgpud/__init__.py"
    place.write_text(re.sub(r'__version__ = "[^"]*"', f'__version__ = "{VERSION}"', place.read_text()))


def upgrade(running: Any, folder: Path, program: Program, options: argparse.Namespace) -> tuple[int, list[str]]:
    """Restart vgpud while the program is at work. Returns the number of steps before, and lines about each restart."""
    program.ready.wait()
    time.sleep(options.every)
    before, lines = len(program.losses), []
    for number in range(options.restarts):
        if number == options.restarts - 1:
            (folder / "installed").unlink()
            (folder / "installed").symlink_to("new")
        if not program.is_at_work:
            raise RuntimeError(f"the training ended before restart {number + 1}")
        generation, begun = running.status()["generation"], time.monotonic()
        running.admin.request("POST", "restart")
        while running.status()["generation"] == generation:
            time.sleep(0.01)
        status = running.status()
        sessions, taken_s = len(running.admin.get("sessions")["sessions"]), time.monotonic() - begun
        lines.append(f"restart {number + 1}: {taken_s:.2f} s, version {status['version']}, {sessions} session(s)")
        time.sleep(options.every)
    return before, lines


def compare(options: argparse.Namespace) -> int:
    from vgpud.bench.side import remote

    from tests.daemon.running import Running

    with tempfile.TemporaryDirectory(prefix="vgpu-upgrade-") as name:
        folder = Path(name)
        os.chmod(folder, 0o755)
        copy(folder / "new")
        (folder / "installed").symlink_to(ROOT)
        config = folder / "vgpud.toml"
        config.write_text(
            f"listen = ['unix:{folder}/s']\nadmin = '{folder}/admin.sock'\ncache_dir = '{folder}/cache'\n"
            f"backend = '{options.backend}'\nlibcuda = '{options.libcuda}'\n"
        )
        path = f"{folder}/installed/daemon:{folder}/installed/guest"
        inherited = os.environ.get("PYTHONPATH", "")
        running = Running.start(config, folder, "log", {"PYTHONPATH": f"{path}:{inherited}".rstrip(":")})
        try:
            running.wait_ready()
            environment = remote("", str(running.endpoint)).of_program()
            upgraded = Program(options, environment, 0)
            before, lines = upgrade(running, folder, upgraded, options)
            codes = [upgraded.end()]
            undisturbed = Program(options, environment, len(upgraded.losses))
            codes.append(undisturbed.end())
            version = running.status()["version"]
        except BaseException:
            print(running.log[-3000:])
            raise
        finally:
            running.end()
    same = undisturbed.losses == upgraded.losses
    first = next((i for i, (a, b) in enumerate(zip(undisturbed.losses, upgraded.losses, strict=False)) if a != b), None)
    report = [
        f"{options.kind}, backend {options.backend}: {len(upgraded.losses)} and {len(undisturbed.losses)} steps, "
        f"exit codes {codes}",
        *lines,
        f"losses are equal to the bit: {'yes' if same else f'NO, from step {first} on'}; "
        f"first {float.fromhex(undisturbed.losses[0]):.6f}, last {float.fromhex(undisturbed.losses[-1]):.6f}",
        f"longest step undisturbed: {longest_ms(undisturbed.seconds[FIRST:])}",
        f"longest step before the first restart: {longest_ms(upgraded.seconds[FIRST:before])}",
        f"longest step from the first restart on: {longest_ms(upgraded.seconds[before:])}",
        f"version at the end: {version}",
    ]
    print("\n".join(report))
    if options.out:
        options.out.write_text("\n".join(report) + "\n")
    return 0 if same and codes == [0, 0] and version == VERSION else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=("torch", "driver"), help="be the program")
    parser.add_argument("--kind", choices=("torch", "driver"), default="torch", help="the program that trains (torch)")
    parser.add_argument("--libcuda", default="libcuda.so.1")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--python", default=sys.executable, help="with PyTorch")
    parser.add_argument("--steps", type=int, default=0, help="of the program; 0: until its standard input ends")
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--every", type=float, default=2.0, help="seconds before each restart (2)")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.steps)
        return 0
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
