"""The works that tests/gpu/profiles.py runs natively and remoted. Each profiles itself with its framework's profiler.

`python tests/gpu/profiled.py WORK TRACE` leaves the Chrome trace in TRACE (gzip, which Perfetto opens) and prints, as
the last line, what the device did: a JSON list of [name, microseconds], in order of time. `many` prints other facts
and leaves no trace.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

REPEATS = 10
WINDOW, WINDOWS = 20_000, 5  # launches in a window, and windows: 100,000 launches
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
"""

Row = tuple[str, float]  # a name, and microseconds
Work = Callable[[], object]


def train() -> Work:
    """A training step with a copy of each kind: from pageable and from pinned memory, and back."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 6).cuda()
    data = torch.randn(8, 128, 512, device="cuda")
    pageable, pinned = torch.randn(1 << 20), torch.randn(1 << 22).pin_memory()
    back = torch.empty(1 << 22).pin_memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(data).square().mean().backward()
        optimizer.step()
        pageable.cuda().cpu()
        back.copy_(pinned.to("cuda", non_blocking=True), non_blocking=True)
        torch.cuda.synchronize()

    return step


def graph() -> Work:
    """The replay of a CUDA graph."""
    import torch

    x = torch.randn(2048, 2048, device="cuda")
    captured = torch.cuda.CUDAGraph()

    def body() -> Any:
        y = x
        for _ in range(10):
            y = torch.relu(y @ x) * 1e-3
        return y

    body()
    torch.cuda.synchronize()
    with torch.cuda.graph(captured):
        body()
    return captured.replay


def cupy() -> Work:
    """A CuPy program in a process that has torch.profiler."""
    import cupy
    import torch

    torch.empty(1, device="cuda")
    x = cupy.arange(1 << 22, dtype=cupy.float32).reshape(2048, 2048)

    def work() -> None:
        y = cupy.sin(x) @ x
        y.sum(axis=0).get()
        cupy.sort(x[0])
        cupy.cuda.Device().synchronize()

    return work


def kernels() -> Work:
    """Kernels and copies that use no library of NVIDIA's, so that a simulated device can run them."""
    import torch
    from torch.cuda._utils import _cuda_load_module

    torch.empty(1, device="cuda")
    kernel, host = _cuda_load_module(PTX, ["nothing"])["nothing"], torch.ones(1 << 16)

    def work() -> None:
        device = host.cuda()
        for size in range(1, 4):
            kernel((size, 1, 1), (32, 1, 1), ())
        device.cpu()

    return work


def pack(events: Any, trace: Path) -> None:
    with gzip.open(trace, "wt", compresslevel=3) as file:
        json.dump(events, file)


def under_torch(prepare: Callable[[], Work], trace: Path) -> list[Row]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    work = prepare()
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(REPEATS):
            work()
        torch.cuda.synchronize()
    plain = trace.with_suffix(".tmp")
    profiled.export_chrome_trace(str(plain))
    exported = json.loads(plain.read_text())
    plain.unlink()
    pack(exported, trace)
    device = [e for e in exported["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return [(e["name"], e["dur"]) for e in sorted(device, key=lambda e: e["ts"])]


def rows_of_xla(events: Iterable[dict[str, Any]]) -> list[Row]:
    """The device's kernels and copies in a trace of XLA's profiler: the events on the lines of streams."""
    events = [event for event in events if event]  # the last event is empty
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    lines = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    device = [e for e in events if e["ph"] == "X" and "GPU" in named.get(e["pid"], "")]
    device = [e for e in device if "Stream" in lines.get((e["pid"], e["tid"]), "")]
    return [(e["name"], e["dur"]) for e in sorted(device, key=lambda e: e["ts"])]


def jax(trace: Path) -> list[Row]:
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "gpu":
        raise SystemExit(f"JAX computes on {jax.default_backend()}")
    function = jax.jit(lambda a: jnp.tanh(a @ a) + jnp.cumsum(a, axis=0))
    x = jnp.ones((1024, 1024), dtype=jnp.float32)
    for _ in range(3):
        function(x).block_until_ready()
    folder = trace.with_suffix(".folder")
    with jax.profiler.trace(str(folder)):
        for _ in range(REPEATS):
            function(x).block_until_ready()
    (packed,) = folder.rglob("*.trace.json.gz")
    exported = json.loads(gzip.decompress(packed.read_bytes()))
    shutil.rmtree(folder)
    pack(exported, trace)
    return rows_of_xla(exported["traceEvents"])


def tensorflow(trace: Path) -> list[Row]:
    """TensorFlow writes XLA's own format, and a Chrome trace only in some versions."""
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        raise SystemExit("TensorFlow sees no GPU")
    x = tf.ones((1024, 1024))
    function = tf.function(lambda a: tf.tanh(a @ a) + tf.cumsum(a))
    for _ in range(3):
        function(x).numpy()
    folder = trace.with_suffix(".folder")
    with tf.profiler.experimental.Profile(str(folder)):
        for _ in range(REPEATS):
            function(x).numpy()
    for packed in folder.rglob("*.trace.json.gz"):
        exported = json.loads(gzip.decompress(packed.read_bytes()))
        pack(exported, trace)
        return rows_of_xla(exported["traceEvents"])
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (file,) = folder.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    found = []
    for plane in space.planes:
        for line in plane.lines if plane.name.startswith("/device:GPU") else ():
            for event in line.events if line.name.startswith("Stream") else ():
                begin_ps = line.timestamp_ns * 1000 + event.offset_ps
                found.append((begin_ps, plane.event_metadata[event.metadata_id].name, event.duration_ps / 1e6))
    return [(name, duration) for _, name, duration in sorted(found)]


def many(cupti: bool) -> dict[str, Any]:
    """Time of a launch by cuLaunchKernel, in us: median of WINDOWS windows before, during and after profiling.

    Args:
        cupti: Whether a CUPTI that can profile is available.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.empty(1, device="cuda")
    driver = ctypes.CDLL("libcuda.so.1")
    module, function, one, none = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint(1), ctypes.c_void_p()
    if driver.cuModuleLoadData(ctypes.byref(module), PTX) or driver.cuModuleGetFunction(
        ctypes.byref(function), module, b"nothing"
    ):
        raise SystemExit("no kernel")
    arguments = (function, one, one, one, one, one, one, ctypes.c_uint(0), none, none, none)
    launch = driver.cuLaunchKernel

    def window() -> float:
        begin = time.perf_counter()
        for _ in range(WINDOW):
            launch(*arguments)
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e6 / WINDOW

    def windows() -> float:
        return statistics.median(window() for _ in range(WINDOWS))

    window()
    facts: dict[str, Any] = {"launched": WINDOW * WINDOWS, "off": windows()}
    if cupti:
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            facts["on"] = windows()
        facts["seen"] = sum(1 for event in profiled.profiler.kineto_results.events() if event.name() == "nothing")
    facts["after"] = windows()
    return facts


def main() -> None:
    name, trace = sys.argv[1], Path(sys.argv[2])
    torch_works = {"train": train, "graph": graph, "cupy": cupy, "kernels": kernels}
    if name in torch_works:
        print(json.dumps(under_torch(torch_works[name], trace)))
    elif name.startswith("many"):
        print(json.dumps(many(name == "many")))
    else:
        print(json.dumps({"jax": jax, "tensorflow": tensorflow}[name](trace)))


if __name__ == "__main__":
    main()
