"""Computations of real frameworks, each printed as exact numbers: run natively and remoted, the lines must be equal.

`python framework_numbers.py torch|cupy|jax`. Seeds are fixed and every algorithm chosen is
deterministic (a floating-point cumsum is not).
"""

import sys


def show(name, *values):
    print(name, *[float(v).hex() for v in values], flush=True)


def torch_numbers():
    import torch
    from torch import nn

    torch.manual_seed(3)
    gpu = "cuda"
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 3).to(gpu).bfloat16()
    data = torch.randn(4, 64, 256, device=gpu, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(8):
        optimizer.zero_grad(set_to_none=True)
        loss = (model(data).float() - 1).square().mean()
        loss.backward()
        optimizer.step()
        show(f"train {step}", loss.item())
    image = torch.randn(2, 8, 32, 32, device=gpu, requires_grad=True)
    conv = nn.Conv2d(8, 16, 3, padding=1).to(gpu)
    conv(image).relu().sum().backward()
    show("conv", image.grad.abs().sum().item())
    show("lstm", nn.LSTM(16, 32, 2).to(gpu)(torch.randn(6, 3, 16, device=gpu))[0].sum().item())
    signal = torch.randn(4, 500, device=gpu)
    show(
        "fft",
        torch.fft.rfft(signal).abs().sum().item(),
        torch.fft.fftn(torch.randn(16, 16, 16, device=gpu)).real.sum().item(),
    )
    square = torch.randn(96, 96, device=gpu)
    show("solve", torch.linalg.solve(square, torch.randn(96, 3, device=gpu)).sum().item())
    show("svd", torch.linalg.svdvals(square).sum().item(), torch.linalg.eigvalsh(square @ square.T).sum().item())
    query = torch.randn(2, 4, 128, 64, device=gpu, dtype=torch.bfloat16)
    show(
        "attention",
        nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True).float().sum().item(),
    )
    big = torch.randn(1 << 21)
    show("copy", (big.to(gpu).cpu() - big).abs().max().item(), big.pin_memory().to(gpu, non_blocking=True).sum().item())
    show("sort", torch.sort(big.to(gpu)).values[1000].item(), (big * 1000).int().to(gpu).cumsum(0)[-1].item())

    static = torch.randn(16, 64, device=gpu)
    linear = nn.Linear(64, 64).to(gpu)
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            linear(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        hidden = linear(static)
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            doubled = hidden * 2
        torch.cuda.current_stream().wait_stream(other)
        total = (hidden + doubled).sum()
    for scale in (1.0, 2.0):
        static.copy_(torch.arange(1024.0).view(16, 64) * scale / 1024)
        graph.replay()
        show("graph", total.item())
    try:
        torch.empty(1 << 44, device=gpu)
    except torch.OutOfMemoryError:
        print("out of memory, told")


def cupy_numbers():
    import cupy

    cupy.random.seed(5)
    x = cupy.arange(1 << 16, dtype=cupy.float32).reshape(256, 256) / 7
    show("elementwise", float((x * 2 + 1).sum()), float(cupy.sqrt(x).max()))
    show("matmul", float((x @ x.T).sum()))
    show("sort", float(cupy.sort(cupy.sin(x).ravel())[1234]))
    source = 'extern "C" __global__ void f(float *x) { x[threadIdx.x] = x[threadIdx.x] * 3 + blockDim.x; }'
    y = cupy.arange(64, dtype=cupy.float32)
    cupy.RawKernel(source, "f")((1,), (64,), (y,))
    show("raw", float(y.sum()))


def jax_numbers():
    import jax
    import jax.numpy as jnp

    a = jnp.linspace(0, 1, 256 * 256, dtype=jnp.float32).reshape(256, 256)
    show("jit", jax.jit(lambda v: jnp.tanh(v @ v).sum())(a))
    show("grad", jax.grad(lambda v: (jnp.sin(v) @ v).sum())(a).sum())


if __name__ == "__main__":
    {"torch": torch_numbers, "cupy": cupy_numbers, "jax": jax_numbers}[sys.argv[1]]()
    print("end", flush=True)
