"""Profiles of the same work natively and remoted: which kernels and copies, in which order, how long.

`python tests/gpu/profiles.py --out DIR` on a machine with a card and PyTorch, and CuPy and JAX if it has them. Each
work runs in a process of its own on either side, under torch.profiler (JAX's under its own); the Chrome traces, which
Perfetto opens, are left in DIR. `--simulator GPU` has a simulated device instead of the card, and nothing native
beside it: to try the script.

The last table is about cost: 100,000 launches without a profiler and with one, and how many records came.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

WORKS = ("train", "graph", "cupy", "jax", "many")
MANY, LIMIT_S = 100_000, 240
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
"""


def training() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What is to be profiled, after what comes first."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 6).cuda()
    data, host = torch.randn(8, 128, 512, device="cuda"), torch.randn(1 << 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(data).square().mean().backward()
        optimizer.step()
        host.cuda().cpu()

    return step, step


def replay() -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    x = torch.randn(2048, 2048, device="cuda")
    graph = torch.cuda.CUDAGraph()

    def body() -> Any:
        y = x
        for _ in range(10):
            y = torch.relu(y @ x) * 1e-3
        return y

    body()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        body()
    return graph.replay, graph.replay


def with_cupy() -> tuple[Callable[[], Any], Callable[[], Any]]:
    import cupy
    import torch

    torch.empty(1, device="cuda")
    x = cupy.arange(1 << 22, dtype=cupy.float32).reshape(2048, 2048)

    def work() -> None:
        y = cupy.sin(x) @ x
        y.sum(axis=0).get()
        cupy.sort(x[0])
        cupy.cuda.Device().synchronize()

    return work, work


def profile_torch(prepare: Callable[[], tuple[Callable[[], Any], Callable[[], Any]]], trace: Path) -> list[Any]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    warm, work = prepare()
    for _ in range(3):
        warm()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(3):
            work()
        torch.cuda.synchronize()
    profiled.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    device = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return [[e["name"], e["dur"], e["cat"]] for e in sorted(device, key=lambda e: e["ts"])]


def profile_jax(trace: Path) -> list[Any]:
    import jax
    import jax.numpy as jnp

    function = jax.jit(lambda a: jnp.tanh(a @ a) + jnp.cumsum(a, axis=0))
    x = jnp.ones((1024, 1024), dtype=jnp.float32)
    for _ in range(3):
        function(x).block_until_ready()
    folder = trace.with_suffix(".jax")
    with jax.profiler.trace(str(folder)):
        for _ in range(3):
            function(x).block_until_ready()
    packed = max(folder.rglob("*.trace.json.gz"))
    trace.write_bytes(gzip.decompress(packed.read_bytes()))
    events = json.loads(trace.read_text())["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    lines = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    device = [e for e in events if e.get("ph") == "X" and "GPU" in named.get(e["pid"], "")]
    device = [e for e in device if "Stream" in lines.get((e["pid"], e["tid"]), "")]
    return [[e["name"], e["dur"], "kernel"] for e in sorted(device, key=lambda e: e["ts"])]


def many() -> dict[str, Any]:
    """The time of MANY launches, without and with a profiler, in us a launch."""
    import torch
    from torch.cuda._utils import _cuda_load_module
    from torch.profiler import ProfilerActivity, profile

    torch.empty(1, device="cuda")
    kernel = _cuda_load_module(PTX, ["nothing"])["nothing"]

    def launches(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            kernel((1, 1, 1), (1, 1, 1), ())
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e6 / count

    launches(1000)
    off = launches(MANY)
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        on = launches(MANY)
    after = launches(MANY)
    seen = sum(1 for event in profiled.profiler.kineto_results.events() if event.name() == "nothing")
    return {"launched": MANY, "seen": seen, "us off": off, "us on": on, "us off again": after}


def work(name: str, trace: Path) -> None:
    """Be the process: its rows as JSON."""
    prepared = {"train": training, "graph": replay, "cupy": with_cupy}
    rows: Any = (
        many() if name == "many" else profile_jax(trace) if name == "jax" else profile_torch(prepared[name], trace)
    )
    print(json.dumps(rows))


def run(name: str, side: str, env: dict[str, str], out: Path) -> Any:
    command = [sys.executable, __file__, "--work", name, "--out", str(out / f"{name}-{side}.json")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        print(f"\n{name}, {side}: ended with {done.returncode}\n{done.stderr[-3000:]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def shares(rows: list[Any]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for name, duration, _ in rows:
        found[name].append(duration)
    return found


def compare(name: str, native: list[Any], remoted: list[Any]) -> list[str]:
    """Lines of Markdown: counts, order, and the times of each name that takes more than a hundredth."""
    here, there = Counter(row[0] for row in native), Counter(row[0] for row in remoted)
    same_order = [row[0] for row in native] == [row[0] for row in remoted]
    lines = [
        f"\n### {name}\n",
        f"{len(native)} records natively, {len(remoted)} remoted; names and counts "
        f"{'equal' if here == there else 'differ'}; order {'equal' if same_order else 'differs'}.",
    ]
    if here != there:
        lines += [f"- {key[:80]}: {here[key]} natively, {there[key]} remoted" for key in here.keys() | there.keys()
                  if here[key] != there[key]][:20]  # fmt: skip
    lines += ["\n| name | times | native us | remoted us | ratio |", "|---|---|---|---|---|"]
    ours, total = shares(remoted), sum(row[1] for row in native)
    for key, durations in sorted(shares(native).items(), key=lambda item: -sum(item[1])):
        if sum(durations) < total / 100 or key not in ours:
            continue
        a, b = sum(durations) / len(durations), sum(ours[key]) / len(ours[key])
        lines.append(f"| {key[:60]} | {len(durations)} | {a:.2f} | {b:.2f} | {b / a:.3f} |")
    whole = sum(row[1] for row in remoted) / total if total else 0
    return [*lines, f"\nAll device times together: ratio {whole:.3f}."]


def host_cupti() -> str:
    """The folder of NVIDIA's libcupti among Python's packages."""
    found = [file for part in sys.path if part for file in Path(part).glob("nvidia/*/lib/libcupti.so.1[23]")]
    return str(found[0].parent) if found else ""


def main() -> int:
    from vgpu_guest.libraries import LIBRARIES
    from vgpud.bench.side import Host, native

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=WORKS, help="be one of the processes")
    parser.add_argument("--libcuda", default="libcuda.so.1")
    parser.add_argument("--simulator", metavar="GPU", default="")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--out", type=Path, default=Path("profiles"))
    options = parser.parse_args()
    if options.work:
        work(options.work, options.out)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    library = LIBRARIES / "cupti/13/libcupti.so.13"
    failed = False
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-profiles-")))
        backend = "simulator" if options.simulator else "cuda"
        if found := host_cupti():  # the worker asks it for times
            os.environ["LD_LIBRARY_PATH"] = f"{found}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        print(f"the host's CUPTI: {found or 'of the system, if it has one'}")
        host = stack.enter_context(Host("shm", folder, backend, options.simulator or "h100", options.libcuda))
        remote = host.side.of_program() | {"LD_PRELOAD": str(library)}
        for name in options.works:
            ours = run(name, "remoted", remote, options.out)
            plain = native(options.libcuda).of_program()
            theirs = None if options.simulator else run(name, "native", plain, options.out)
            failed |= not ours or (not options.simulator and not theirs)
            if name == "many":
                print(f"\n### {MANY} launches\n\nnative: {theirs}\n\nremoted: {ours}")
            elif ours and theirs:
                print("\n".join(compare(name, theirs, ours)))
            elif ours:
                print(f"\n### {name}\n\n{len(ours)} records: {Counter(row[0][:60] for row in ours)}")
            sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main())
