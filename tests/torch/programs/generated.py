"""Kernels that torch or a Python program generates, compiled to PTX and run by the simulator (cases.py)."""

import torch
from cases import case, main
from torch.nn import functional as F  # noqa: N812


def layers(x, w):
    return F.layer_norm(torch.relu(x @ w), (16,)).softmax(-1)


def check_compiled(**options):
    torch._dynamo.reset()
    compiled, w = torch.compile(layers, **options), torch.randn(8, 16)
    for _ in range(3):
        x = torch.randn(4, 8)
        assert torch.allclose(compiled(x.cuda(), w.cuda()).cpu(), layers(x, w), atol=1e-5)


@case
def kernel_of_triton():
    import triton_kernels

    x, y = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    assert torch.equal(triton_kernels.add(x, y).cpu(), x.cpu() + y.cpu())


@case
def inductor():
    check_compiled()


@case
def inductor_trains():
    torch._dynamo.reset()
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)), torch.randn(4, 8)
    model(x).square().sum().backward()
    expected = model[0].weight.grad.clone()
    model.zero_grad()
    torch.compile(model.cuda())(x.cuda()).square().sum().backward()
    assert torch.allclose(model[0].weight.grad.cpu(), expected, atol=1e-4)


@case
def inductor_with_graphs():
    from torch._dynamo.utils import counters

    counters.clear()
    check_compiled(mode="reduce-overhead")
    assert not counters["inductor"]["cudagraph_skips"]


if __name__ == "__main__":
    main()
