"""The batch normalisation operators of cuDNN and SyncBatchNorm, and the backward pass of RMS norm."""

from __future__ import annotations

import math

import torch

from . import composite

aten = torch.ops.aten


def _empty_reserve(x):
    return torch.empty(0, dtype=torch.uint8, device=x.device)


@composite("cudnn_batch_norm")
def cudnn_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, epsilon):
    out, mean, invstd = aten.native_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, epsilon)
    if not training:
        mean = invstd = torch.empty(0, dtype=weight.dtype, device=x.device)
    return out, mean, invstd, _empty_reserve(x)


@composite("cudnn_batch_norm.out")
def cudnn_batch_norm_out(
    x, weight, bias, running_mean, running_var, training, momentum, epsilon, *, out0, out1, out2, out3
):
    results = cudnn_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, epsilon)
    targets = (out0, out1, out2, out3)
    for target, result in zip(targets, results, strict=True):
        target.resize_(result.shape).copy_(result)
    return targets


@composite("cudnn_batch_norm_backward")
def cudnn_batch_norm_backward(x, grad, weight, running_mean, running_var, mean, invstd, epsilon, reserve):
    mask = [True, True, True]
    return aten.native_batch_norm_backward(
        grad, x, weight, running_mean, running_var, mean, invstd, True, epsilon, mask
    )


def _per_channel(x, values):
    return values.reshape([1, -1] + [1] * (x.dim() - 2))


def _other_dims(x):
    return [d for d in range(x.dim()) if d != 1]


def _wide(x):
    return x.float() if x.dtype in (torch.half, torch.bfloat16) else x


@composite("batch_norm_stats")
def batch_norm_stats(x, eps):
    variance, mean = torch.var_mean(_wide(x), _other_dims(x), correction=0)
    return mean, (variance + eps).rsqrt()


@composite("batch_norm_elemt")
def batch_norm_elemt(x, weight, bias, mean, invstd, eps):
    y = (_wide(x) - _per_channel(x, mean)) * _per_channel(x, invstd)
    if weight is not None:
        y = y * _per_channel(x, weight)
    if bias is not None:
        y = y + _per_channel(x, bias)
    return y.to(x.dtype)


@composite("batch_norm_elemt.out")
def batch_norm_elemt_out(x, weight, bias, mean, invstd, eps, *, out):
    return out.resize_(x.shape).copy_(batch_norm_elemt(x, weight, bias, mean, invstd, eps))


@composite("batch_norm_gather_stats_with_counts")
def gather_stats_with_counts(x, mean, invstd, running_mean, running_var, momentum, eps, counts):
    """The joint statistics of all ranks, from each rank's statistics weighted by its number of elements."""
    weights = counts.to(mean.dtype).reshape(-1, 1)
    total = weights.sum()
    joint_mean = (mean * weights).sum(0) / total
    variances = invstd.pow(-2) - eps
    squares = ((variances + (mean - joint_mean) ** 2) * weights).sum(0)
    variance = squares / total
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(joint_mean.to(running_mean.dtype), alpha=momentum)
    if running_var is not None:
        unbiased = squares / (total - 1)
        running_var.mul_(1 - momentum).add_(unbiased.to(running_var.dtype), alpha=momentum)
    return joint_mean, (variance + eps).rsqrt()


@composite("batch_norm_gather_stats")
def gather_stats(x, mean, invstd, running_mean, running_var, momentum, eps, count):
    counts = torch.full((mean.shape[0],), count, dtype=mean.dtype, device=mean.device)
    return gather_stats_with_counts(x, mean, invstd, running_mean, running_var, momentum, eps, counts)


@composite("batch_norm_backward_reduce")
def batch_norm_backward_reduce(grad, x, mean, invstd, weight, input_g, weight_g, bias_g):
    dims = _other_dims(x)
    wide = _wide(grad)
    sum_dy = wide.sum(dims)
    sum_dy_xmu = (wide * (_wide(x) - _per_channel(x, mean))).sum(dims)
    grad_weight = (sum_dy_xmu * invstd).to(weight.dtype) if weight is not None and weight_g else None
    grad_bias = sum_dy.to(weight.dtype) if weight is not None and bias_g else None
    unused = (None, None) if not input_g else (sum_dy, sum_dy_xmu)
    return *unused, grad_weight, grad_bias


@composite("batch_norm_backward_elemt")
def batch_norm_backward_elemt(grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, count):
    total = count.sum().to(mean.dtype)
    centred = _wide(x) - _per_channel(x, mean)
    correction = centred * _per_channel(x, sum_dy_xmu / total * invstd * invstd)
    scale = _per_channel(x, invstd if weight is None else invstd * weight)
    return ((_wide(grad) - _per_channel(x, sum_dy / total) - correction) * scale).to(x.dtype)


@composite("_fused_rms_norm_backward")
def rms_norm_backward(grad, x, shape, rstd, weight, mask):
    dims = list(range(-len(shape), 0))
    scaled = _wide(grad * weight if weight is not None else grad)
    wide = _wide(x)
    # d rstd / d x = -rstd^3 * x / n
    inner = (scaled * wide).sum(dims, keepdim=True)
    grad_x = rstd * scaled - wide * rstd**3 * inner / math.prod(shape)
    grad_weight = None
    if weight is not None and mask[1]:
        grad_weight = (_wide(grad) * wide * rstd).reshape(-1, *shape).sum(0).to(weight.dtype)
    return grad_x.to(x.dtype), grad_weight
