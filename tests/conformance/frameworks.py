"""Checks of real libraries: `python frameworks.py FAMILY` prints a JSON line for each check.

{"name", "tolerance", "values"}, {"name", "error"}, or {"name", "missing"} if a check cannot run here. Seeds are fixed.
The tolerance is relative to the value. It is 0 where the algorithms are deterministic and gave the same bits natively
and remoted on an H100. Where libraries may vary algorithms or order between runs, it is what the number format allows.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any

Check = Callable[[], list[float]]
NEEDS = {
    "torch": ["torch"],
    "transformers": ["torch", "transformers"],
    "cupy": ["cupy"],
    "jax": ["jax"],
    "triton": ["torch", "triton"],
    "nccl": ["torch"],
}
CHECKS: dict[str, dict[str, tuple[float, Check]]] = {family: {} for family in NEEDS}
SAME_BITS, FP32, FP8 = 0.0, 1e-4, 5e-2


class Unavailable(Exception):
    """The check needs something that this machine lacks."""


def check(family: str, name: str, tolerance: float) -> Callable[[Check], Check]:
    """Register a check: a function that returns the numbers to compare."""

    def register(function: Check) -> Check:
        CHECKS[family][name] = (tolerance, function)
        return function

    return register


def seeded() -> Any:
    import torch

    torch.manual_seed(3)
    return torch


def numbers(*tensors: Any) -> list[float]:
    return [float(tensor) for tensor in tensors]


@check("torch", "bf16 training, transformer, AdamW", SAME_BITS)
def training() -> list[float]:
    torch = seeded()
    from torch import nn

    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 3).cuda().bfloat16()
    data = torch.randn(4, 64, 256, device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(8):
        optimizer.zero_grad(set_to_none=True)
        loss = (model(data).float() - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    assert losses[-1] < losses[0]
    return numbers(*losses)


@check("torch", "scaled dot product attention, causal, bf16", SAME_BITS)
def attention() -> list[float]:
    torch = seeded()
    q, k, v = (torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return numbers(out.float().sum(), out.float().abs().max())


@check("torch", "attention by cuDNN, forward and backward", 1e-2)
def attention_by_cudnn() -> list[float]:
    """Its kernels read pinned memory of cuDNN's own."""
    torch = seeded()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        try:
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        except RuntimeError as error:
            raise Unavailable(str(error).splitlines()[0]) from error
        out.float().square().sum().backward()
    return numbers(out.float().sum(), q.grad.float().sum(), k.grad.float().sum(), v.grad.float().sum())


@check("torch", "torch.compile", FP32)
def compiled() -> list[float]:
    torch = seeded()
    x = torch.randn(256, 256, device="cuda")

    @torch.compile
    def function(v: Any) -> Any:
        return torch.nn.functional.gelu(v @ v / 16).sum(dim=1).relu()

    return numbers(function(x).sum(), function(x).max())


@check("torch", "convolution, forward and backward", SAME_BITS)
def convolution() -> list[float]:
    torch = seeded()
    image = torch.randn(2, 8, 32, 32, device="cuda", requires_grad=True)
    torch.nn.Conv2d(8, 16, 3, padding=1).cuda()(image).relu().sum().backward()
    return numbers(image.grad.abs().sum())


@check("torch", "LSTM", SAME_BITS)
def lstm() -> list[float]:
    torch = seeded()
    return numbers(torch.nn.LSTM(16, 32, 2).cuda()(torch.randn(6, 3, 16, device="cuda"))[0].sum())


@check("torch", "fp8 matmul", FP8)
def fp8() -> list[float]:
    torch = seeded()
    if torch.cuda.get_device_capability() < (8, 9):
        raise Unavailable("fp8 needs compute capability 8.9")
    a = torch.randn(64, 128, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(96, 128, device="cuda").to(torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")
    out = torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    return numbers(out.float().abs().sum(), (out.float() - a.float() @ b.float()).abs().max() < 1)


@check("torch", "FFT, real and three-dimensional", SAME_BITS)
def fft() -> list[float]:
    torch = seeded()
    signal, cube = torch.randn(4, 500, device="cuda"), torch.randn(16, 16, 16, device="cuda")
    back = torch.fft.irfft(torch.fft.rfft(signal), n=500)
    return numbers(torch.fft.rfft(signal).abs().sum(), torch.fft.fftn(cube).abs().sum(), (back - signal).norm() < 1e-4)


@check("torch", "SVD", SAME_BITS)
def svd() -> list[float]:
    torch = seeded()
    return numbers(torch.linalg.svdvals(torch.randn(96, 96, device="cuda")).sum())


@check("torch", "solve", SAME_BITS)
def solve() -> list[float]:
    torch = seeded()
    a = torch.randn(96, 96, device="cuda") + 20 * torch.eye(96, device="cuda")
    b = torch.randn(96, 3, device="cuda")
    x = torch.linalg.solve(a, b)
    return numbers(x.abs().sum(), (a @ x - b).norm() < 1e-3)


@check("torch", "eigh", SAME_BITS)
def eigh() -> list[float]:
    torch = seeded()
    a = torch.randn(96, 96, device="cuda")
    return numbers(torch.linalg.eigvalsh(a @ a.T).sum())


@check("torch", "sparse matrix times dense", FP32)
def sparse() -> list[float]:
    torch = seeded()
    dense = torch.randn(64, 64, device="cuda")
    csr = torch.where(dense > 1, dense, torch.zeros_like(dense)).to_sparse_csr()
    return numbers((csr @ dense).abs().sum())


@check("torch", "CUDA graph with two streams, replayed", SAME_BITS)
def graph() -> list[float]:
    torch = seeded()
    static, linear = torch.randn(16, 64, device="cuda"), torch.nn.Linear(64, 64).cuda()
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            linear(static)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        hidden = linear(static)
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            doubled = hidden * 2
        torch.cuda.current_stream().wait_stream(other)
        total = (hidden + doubled).sum()
    totals = []
    for scale in (1.0, 2.0):
        static.copy_(torch.arange(1024.0).view(16, 64) * scale / 1024)
        captured.replay()
        totals.append(float(total))
    return totals


@check("torch", "copies, pageable and pinned, both ways", SAME_BITS)
def copies() -> list[float]:
    torch = seeded()
    big = torch.randn(1 << 21)
    pinned = torch.empty_like(big).pin_memory()
    there = big.cuda()
    pinned.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    return numbers((there.cpu() - big).abs().max(), (pinned - big).abs().max(), torch.sort(there).values[1000])


@check("torch", "out of memory is an error, and not the last one", SAME_BITS)
def out_of_memory() -> list[float]:
    torch = seeded()
    try:
        torch.empty(1 << 44, device="cuda")
    except torch.OutOfMemoryError:
        return numbers(torch.ones(10, device="cuda").sum())
    raise AssertionError("16 TiB were had")


def double_in_place(queue: Any, done: Any) -> None:
    tensor = queue.get()
    tensor *= 2
    done.put(float(tensor.sum()))
    del tensor  # before the process that owns the memory frees it


@check("torch", "a tensor changed by another process, torch.multiprocessing", SAME_BITS)
def two_processes() -> list[float]:
    torch = seeded()
    context = torch.multiprocessing.get_context("spawn")
    queue, done = context.Queue(), context.Queue()
    child = context.Process(target=double_in_place, args=(queue, done))
    child.start()
    tensor = torch.arange(1000.0, device="cuda")
    queue.put(tensor)
    there = done.get(timeout=120)
    child.join(60)
    assert child.exitcode == 0
    return [there, *numbers(tensor.sum())]


@check("torch", "expandable segments", SAME_BITS)
def expandable_segments() -> list[float]:
    torch = seeded()
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    try:
        kept = [torch.full((size,), 1.0, device="cuda") for size in (1 << 20, 3 << 20, 9 << 20)]
        del kept[1]
        kept.append(torch.full((30 << 20,), 2.0, device="cuda"))
        result = numbers(*(tensor.sum() for tensor in kept))
        kept.clear()
        torch.cuda.empty_cache()
    finally:
        torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    return result


@check("transformers", "generation, a small Llama, bf16", SAME_BITS)
def generation() -> list[float]:
    torch = seeded()
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=500, hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4
    )
    model = LlamaForCausalLM(config).cuda().bfloat16().eval()
    prompt = torch.arange(1, 17, device="cuda")[None]
    tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False)
    return [float(token) for token in tokens[0]]


@check("cupy", "elementwise, matmul, sort", SAME_BITS)
def cupy_basics() -> list[float]:
    import cupy

    x = cupy.arange(1 << 16, dtype=cupy.float32).reshape(256, 256) / 7
    return numbers((x * 2 + 1).sum(), cupy.sqrt(x).max(), (x @ x.T).sum(), cupy.sort(cupy.sin(x).ravel())[1234])


@check("cupy", "a kernel that reads and writes pinned memory", SAME_BITS)
def pinned_in_place() -> list[float]:
    cupy = importlib.import_module("cupy")
    pinned = importlib.import_module("cupyx").zeros_pinned(5000, dtype="float32")
    pinned[:] = range(5000)
    kernel = cupy.RawKernel(
        'extern "C" __global__ void f(float *p, int n)'
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] = 3 * p[i] + 1; }",
        "f",
    )
    found = []
    for _ in range(3):
        kernel((40,), (128,), (cupy.uint64(pinned.ctypes.data), cupy.int32(5000)))
        cupy.cuda.Device().synchronize()
        found += [float(pinned.sum()), float(pinned[4999])]
        pinned[4999] = 7
    return found


@check("cupy", "a kernel of the user's, by NVRTC", SAME_BITS)
def cupy_raw() -> list[float]:
    import cupy

    source = 'extern "C" __global__ void f(float *x) { x[threadIdx.x] = x[threadIdx.x] * 3 + blockDim.x; }'
    y = cupy.arange(64, dtype=cupy.float32)
    cupy.RawKernel(source, "f")((1,), (64,), (y,))
    return numbers(y.sum())


@check("jax", "jit and grad", SAME_BITS)
def jax_basics() -> list[float]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "gpu":
        raise Unavailable(f"jax uses {jax.default_backend()}: it is not the build for GPUs")
    a = jnp.linspace(0, 1, 256 * 256, dtype=jnp.float32).reshape(256, 256)
    grad = jax.grad(lambda v: (jnp.sin(v) @ v).sum())(a)
    return numbers(jax.jit(lambda v: jnp.tanh(v @ v / 256).sum())(a), grad.sum())


@check("jax", "gradient step, four layers of 1024", FP32)
def jax_step() -> list[float]:
    """XLA turns such a step into a CUDA graph, which it builds node by node."""
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "gpu":
        raise Unavailable(f"jax uses {jax.default_backend()}: it is not the build for GPUs")
    keys = jax.random.split(jax.random.PRNGKey(3), 5)
    layers = [jax.random.normal(key, (1024, 1024)) / 32 for key in keys[:4]]
    data = jax.random.normal(keys[4], (64, 1024))

    def loss(weights: Any) -> Any:
        hidden = data
        for layer in weights:
            hidden = jnp.tanh(hidden @ layer)
        return (hidden**2).mean()

    @jax.jit
    def step(weights: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], value

    losses = []
    for _ in range(6):
        layers, value = step(layers)
        losses.append(value)
    return numbers(*losses, *(layer.sum() for layer in layers))


@check("triton", "a kernel with a mask", SAME_BITS)
def triton_kernel() -> list[float]:
    torch = seeded()
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:  # Triton reads a kernel's source file
        file.write(
            "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
            "def axpy(x, y, n, BLOCK: tl.constexpr):\n"
            "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
            "    tl.store(y + at, 2 * tl.load(x + at, mask=at < n) + 1, mask=at < n)\n"
        )
    sys.path.insert(0, os.path.dirname(file.name))
    axpy = importlib.import_module(os.path.basename(file.name)[:-3]).axpy
    x, y = torch.arange(1000.0, device="cuda"), torch.zeros(1024, device="cuda")
    axpy[(4,)](x, y, 1000, BLOCK=256)
    os.unlink(file.name)
    return numbers(y.sum(), y[999], y[1000])


@check("nccl", "all-reduce and broadcast of one rank", SAME_BITS)
def nccl() -> list[float]:
    torch = seeded()
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        raise Unavailable("this torch has no NCCL")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    torch.distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    x = torch.arange(1000.0, device="cuda")
    torch.distributed.all_reduce(x)
    torch.distributed.broadcast(x, 0)
    result = numbers(x.sum())
    torch.distributed.destroy_process_group()
    return result


def main() -> None:
    family = sys.argv[1]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to stderr, so that stdout has outcomes alone

    def say(name: str, **fields: Any) -> None:
        print(json.dumps({"name": f"{family}: {name}"} | fields), file=out, flush=True)

    try:
        for module in NEEDS[family]:
            importlib.import_module(module)
    except ImportError as error:
        for name in CHECKS[family]:
            say(name, missing=str(error))
        return
    for name, (tolerance, function) in CHECKS[family].items():
        try:
            say(name, tolerance=tolerance, values=function())
        except Unavailable as error:
            say(name, missing=str(error))
        except Exception as error:
            lines = str(error).strip().splitlines()
            say(name, error=f"{type(error).__name__}: {lines[0] if lines else ''}"[:200])


if __name__ == "__main__":
    main()
