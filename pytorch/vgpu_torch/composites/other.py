"""Random operators whose parameters are tensors, and the backward pass of dropout."""

from __future__ import annotations

import torch

from . import composite


@composite("_masked_scale")
def masked_scale(x, mask, scale):
    return x * mask.to(x.dtype) * scale


@composite("bernoulli.out")
def bernoulli_out(p, *, generator=None, out):
    return out.resize_(p.shape).bernoulli_(p, generator=generator)


def _normal(like, mean, std, generator, out=None):
    """Normal numbers as torch computes them: standard normal numbers, scaled and shifted."""
    shape = torch.broadcast_shapes(*(t.shape for t in (mean, std) if isinstance(t, torch.Tensor)))
    if isinstance(std, torch.Tensor):
        if std.is_complex():
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if std.numel() and not bool((std >= 0).all()):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    result = torch.empty(shape, dtype=like.dtype, device=like.device) if out is None else out.resize_(shape)
    if not isinstance(std, torch.Tensor):
        return result.normal_(0, std, generator=generator).add_(mean)
    return result.normal_(0, 1, generator=generator).mul_(std).add_(mean)


@composite("normal.Tensor_float")
def normal_tensor_float(mean, std=1, *, generator=None):
    return _normal(mean, mean, std, generator)


@composite("normal.Tensor_float_out")
def normal_tensor_float_out(mean, std=1, *, generator=None, out):
    return _normal(mean, mean, std, generator, out)


@composite("normal.float_Tensor")
def normal_float_tensor(mean, std, *, generator=None):
    return _normal(std, mean, std, generator)


@composite("normal.float_Tensor_out")
def normal_float_tensor_out(mean, std, *, generator=None, out):
    return _normal(std, mean, std, generator, out)


@composite("normal.Tensor_Tensor")
def normal_tensor_tensor(mean, std, *, generator=None):
    return _normal(mean, mean, std, generator)


@composite("normal.Tensor_Tensor_out")
def normal_tensor_tensor_out(mean, std, *, generator=None, out):
    return _normal(mean, mean, std, generator, out)
