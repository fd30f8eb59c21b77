"""Matrix products whose result type differs from that of the operands."""

from __future__ import annotations

import torch

from . import composite


@composite("mm.dtype")
def mm(a, b, out_dtype):
    return torch.mm(a.to(out_dtype), b.to(out_dtype))


@composite("mm.dtype_out")
def mm_out(a, b, out_dtype, *, out):
    return out.copy_(mm(a, b, out_dtype))


@composite("bmm.dtype")
def bmm(a, b, out_dtype):
    return torch.bmm(a.to(out_dtype), b.to(out_dtype))


@composite("bmm.dtype_out")
def bmm_out(a, b, out_dtype, *, out):
    return out.copy_(bmm(a, b, out_dtype))


@composite("addmm.dtype")
def addmm(bias, a, b, out_dtype, *, beta=1, alpha=1):
    return torch.addmm(bias.to(out_dtype), a.to(out_dtype), b.to(out_dtype), beta=beta, alpha=alpha)


@composite("addmm.dtype_out")
def addmm_out(bias, a, b, out_dtype, *, beta=1, alpha=1, out):
    return out.copy_(addmm(bias, a, b, out_dtype, beta=beta, alpha=alpha))


@composite("baddbmm.dtype")
def baddbmm(bias, a, b, out_dtype, *, beta=1, alpha=1):
    return torch.baddbmm(bias.to(out_dtype), a.to(out_dtype), b.to(out_dtype), beta=beta, alpha=alpha)


@composite("baddbmm.dtype_out")
def baddbmm_out(bias, a, b, out_dtype, *, beta=1, alpha=1, out):
    return out.copy_(baddbmm(bias, a, b, out_dtype, beta=beta, alpha=alpha))
