"""Work of real frameworks, in windows: `python work.py torch|cupy|jax|triton`, run by `vgpu bench` on both sides.

The protocol is that of daemon/bench/vgb_calls.c: a JSON list of names, then, for each name on standard input, the
milliseconds of one iteration. Imports nothing of vgpu: the interpreter that has the frameworks need not have vgpu.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Window = tuple[Callable[[], Any], int]  # one iteration, and the number of iterations in a window
Windows = dict[str, Window]
WARM_UP = 3


def torch_work() -> tuple[Windows, Callable[[], Any]]:
    """Eager kernels, training, decoding (also as a CUDA graph), convolutions, copies, events."""
    import torch
    from torch import nn

    # cuDNN's attention passes host memory to kernels; on a socket each wait then needs a second round trip to fetch it.
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.manual_seed(1)
    work: Windows = {}
    x, a = torch.randn(1024, device="cuda"), torch.randn(256, 256, device="cuda")
    work["torch add"] = (lambda: x + 1, 1000)
    work["torch matmul 256"] = (lambda: a @ a, 500)
    work["torch item"] = (lambda: x[0].item(), 300)

    def transformer() -> Any:
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
        return nn.TransformerEncoder(layer, 6).cuda().bfloat16()

    model = transformer()
    data = torch.randn(8, 128, 512, device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(data).float().square().mean().backward()
        optimizer.step()

    work["torch train step, 6 layers bf16"] = (step, 10)
    decoder, token = transformer().eval(), torch.randn(1, 1, 512, device="cuda", dtype=torch.bfloat16)

    def decode() -> Any:
        with torch.no_grad():
            return decoder(token)

    work["torch decode, batch 1"] = (decode, 60)
    decode()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        decoder(token)
    work["torch decode as CUDA graph"] = (graph.replay, 100)
    with contextlib.suppress(ImportError):
        from torchvision.models import resnet18

        resnet, images = resnet18().cuda().eval(), torch.randn(8, 3, 224, 224, device="cuda")

        def classify() -> Any:
            with torch.no_grad():
                return resnet(images)

        work["torch resnet18, batch 8"] = (classify, 30)
    big = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    work["gemm 4096 bf16"] = (lambda: big @ big, 40)
    gemm = torch.cuda.CUDAGraph()
    product = torch.empty_like(big)
    torch.matmul(big, big, out=product)
    torch.cuda.synchronize()
    with torch.cuda.graph(gemm):
        torch.matmul(big, big, out=product)
    work["gemm 4096 bf16 as CUDA graph"] = (gemm.replay, 40)
    host = torch.randn(16 << 20)
    pinned, device = host.pin_memory(), host.cuda()
    landing = torch.empty_like(host)
    small = torch.ones(1000)
    work["torch H2D 64 MB pageable"] = (lambda: device.copy_(host), 4)
    work["torch D2H 64 MB pageable, touched pages"] = (lambda: landing.copy_(device), 4)
    work["torch D2H 64 MB pageable, fresh pages"] = (lambda: device.cpu(), 2)
    work["torch H2D 64 MB pinned"] = (lambda: device.copy_(pinned, non_blocking=True), 10)
    work["torch D2H 64 MB pinned"] = (lambda: pinned.copy_(device, non_blocking=True), 10)
    work["torch H2D 4 KB pageable"] = (lambda: small.cuda(), 200)
    event = torch.cuda.Event()

    def wait_for_event() -> None:
        event.record()
        torch.cuda.current_stream().wait_event(event)

    work["torch event record + wait"] = (wait_for_event, 300)
    return work, torch.cuda.synchronize


def cupy_work() -> tuple[Windows, Callable[[], Any]]:
    """Elementwise, reduction, matmul."""
    import cupy

    x = cupy.random.rand(1024, 1024)
    work: Windows = {
        "cupy add": (lambda: x + 1, 300),
        "cupy sum": (lambda: float(x.sum()), 200),
        "cupy matmul": (lambda: x @ x, 50),
    }
    return work, cupy.cuda.Device().synchronize


def jax_work() -> tuple[Windows, Callable[[], Any]]:
    """Functions compiled by XLA."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "gpu":
        raise ImportError(f"jax uses {jax.default_backend()}, not a GPU")
    a = jnp.linspace(0, 1, 1024 * 1024, dtype=jnp.float32).reshape(1024, 1024)
    add, multiply = jax.jit(lambda v: v + 1), jax.jit(lambda v: v @ v)
    last: list[Any] = [a]

    def run(function: Callable[[Any], Any]) -> None:
        last[0] = function(a)

    work: Windows = {"jax add": (lambda: run(add), 300), "jax matmul": (lambda: run(multiply), 100)}
    return work, lambda: last[0].block_until_ready()


def triton_work() -> tuple[Windows, Callable[[], Any]]:
    """A Triton kernel, launched by Triton's launcher."""
    import torch
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def add_one(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

    x = torch.zeros(1 << 16, device="cuda")
    return {"triton add": (lambda: add_one[(64,)](x, x.numel(), BLOCK=1024), 300)}, torch.cuda.synchronize


SETS = {"torch": torch_work, "cupy": cupy_work, "jax": jax_work, "triton": triton_work}


def main() -> None:
    """Serve windows until the end of standard input."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps the frameworks' output out of the times on `out`
    work, synchronize = SETS[sys.argv[1]]()
    for function, _ in work.values():
        for _ in range(WARM_UP):
            function()
        synchronize()
    print(json.dumps(list(work)), file=out, flush=True)
    for line in sys.stdin:
        function, count = work[line.rstrip("\n")]
        function()
        synchronize()
        start = time.perf_counter()
        for _ in range(count):
            function()
        synchronize()
        print((time.perf_counter() - start) / count * 1e3, file=out, flush=True)


if __name__ == "__main__":
    main()
