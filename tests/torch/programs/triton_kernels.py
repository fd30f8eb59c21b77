"""A kernel in Triton's language, in a file of its own because not every environment has Triton."""

import torch
import triton
from triton import language as tl


@triton.jit
def _add(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


def add(x, y):
    out = torch.empty_like(x)
    _add[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), block=256)
    return out
