"""Kernels that torch compiles with NVRTC, to machine code where that is possible (cases.py)."""

import torch
from cases import case, main


@case
def jiterator():
    source = "template <typename T> T axpy(T x, T y, T a) { return a * x + y; }"
    function = torch.cuda.jiterator._create_jit_fn(source, a=2)
    for dtype in (torch.float32, torch.float64, torch.int32):
        x, y = torch.arange(1000, dtype=dtype), torch.arange(1000, dtype=dtype).flip(0)
        assert torch.equal(function(x.cuda(), y.cuda()).cpu(), 2 * x + y)
        assert torch.equal(function(x.cuda(), y.cuda(), a=5).cpu(), 5 * x + y)


@case
def compiled_kernel():
    source = """
    extern "C" __global__ void add(const float *x, const float *y, float *sum, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n)
        sum[i] = x[i] + y[i];
    }"""
    kernel = torch.cuda._compile_kernel(source, "add")
    x, y = torch.randn(1000), torch.randn(1000)
    total = torch.empty(1000, device="cuda")
    kernel(grid=(4, 1, 1), block=(256, 1, 1), args=(x.cuda(), y.cuda(), total, 1000))
    assert torch.equal(total.cpu(), x + y)


@case
def fuser_of_torchscript():
    def eager(x, y):
        return torch.tanh(x * y + 1.5) * x.sigmoid() - y

    scripted = torch.jit.script(eager)
    x, y = torch.randn(1000), torch.randn(1000)
    with torch.jit.fuser("fuser1"):
        for _ in range(4):
            found = scripted(x.cuda(), y.cuda())
        graph = str(torch.jit.last_executed_optimized_graph())
    assert "prim::TensorExprGroup" in graph, graph
    assert torch.allclose(found.cpu(), eager(x, y), atol=1e-6)


if __name__ == "__main__":
    main()
