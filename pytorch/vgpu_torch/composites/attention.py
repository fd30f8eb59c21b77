"""Fused attention (flash, memory-efficient, cuDNN's): by the CPU's flash attention where it can, else step by step."""

from __future__ import annotations

import torch

from . import composite
from .autograd import above_autograd, leaf

aten = torch.ops.aten
_MATH_BACKEND = 0  # torch.nn.attention.SDPBackend.MATH


@composite("_fused_sdp_choice")
def fused_sdp_choice(q, k, v, mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """The general implementation, for programs that call this by name.

    scaled_dot_product_attention asks CUDA's own rule instead, which torch brings along for the simulated architecture.
    """
    return _MATH_BACKEND


def _stepwise(q, k, v, bias, dropout_p, is_causal, scale, seed):
    """Output and log-sum-exp. Dropout has its own generator, so that the backward pass draws the same mask."""
    dtype = torch.float32 if q.dtype in (torch.half, torch.bfloat16) else q.dtype
    repeat = q.shape[1] // k.shape[1]  # grouped queries
    k, v = (t.to(dtype).repeat_interleave(repeat, 1) if repeat > 1 else t.to(dtype) for t in (k, v))
    scores = q.to(dtype) @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~visible, float("-inf"))
    if bias is not None:
        scores = scores + bias.to(dtype)
    weights = scores.softmax(-1)
    if dropout_p > 0:
        generator = torch.Generator()
        generator.manual_seed(seed)
        kept = torch.rand(weights.shape, generator=generator) >= dropout_p
        weights = weights * kept.to(q.device, dtype) / (1 - dropout_p)
    return (weights @ v).to(q.dtype), scores.logsumexp(-1)


def _cpu_flash_can(q, k, v, dropout_p):
    return dropout_p == 0 and q.shape[-1] == v.shape[-1] and q.shape[1] % k.shape[1] == 0


def _forward(q, k, v, bias, dropout_p, is_causal, scale):
    """Output, log-sum-exp and seed of the dropout."""
    if _cpu_flash_can(q, k, v, dropout_p):
        out, lse = aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, is_causal, attn_mask=bias, scale=scale
        )
        return out, lse, 0
    seed = int(torch.randint(1 << 31, (1,), device=q.device)) if dropout_p > 0 else 0
    return *_stepwise(q, k, v, bias, dropout_p, is_causal, scale, seed), seed


def _backward(grad, q, k, v, bias, out, lse, seed, dropout_p, is_causal, scale, need_bias=False):
    """Gradients of q, k, v and bias (None unless `need_bias`)."""
    if not need_bias and _cpu_flash_can(q, k, v, dropout_p):
        return *aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, is_causal, attn_mask=bias, scale=scale
        ), None
    with above_autograd():
        inputs = [leaf(tensor) for tensor in (q, k, v)] + ([leaf(bias)] if need_bias else [])
        used_bias = inputs[3] if need_bias else bias
        result, _ = _stepwise(*inputs[:3], used_bias, dropout_p, is_causal, scale, int(seed))
        grads = torch.autograd.grad(result, inputs, grad)
    return (*grads, None) if not need_bias else grads


def _scalar(q, value):
    return torch.tensor(value, device=q.device)


def _none(q):
    return torch.empty(0, device=q.device)


@composite("_scaled_dot_product_efficient_attention")
def efficient(q, k, v, bias, compute_lse, dropout_p=0.0, is_causal=False, *, scale=None):
    out, lse, seed = _forward(q, k, v, bias, dropout_p, is_causal, scale)
    return out, lse, _scalar(q, seed), _scalar(q, 0)


@composite("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(grad, q, k, v, bias, out, lse, seed, offset, dropout_p, mask, is_causal=False, *, scale=None):
    used = bias if bias is not None and bias.numel() else None
    grads = _backward(grad, q, k, v, used, out, lse, seed, dropout_p, is_causal, scale, mask[3] and used is not None)
    return tuple(tensor if tensor is not None else _none(q) for tensor in grads)


@composite("_scaled_dot_product_flash_attention")
def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    out, lse, seed = _forward(q, k, v, None, dropout_p, is_causal, scale)
    return out, lse, None, None, q.shape[2], k.shape[2], _scalar(q, seed), _scalar(q, 0), _none(q)


@composite("_scaled_dot_product_flash_attention_backward")
def flash_backward(grad, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset, *,
                   scale=None):  # fmt: skip
    return _backward(grad, q, k, v, None, out, lse, seed, dropout_p, is_causal, scale)[:3]


@composite("_scaled_dot_product_cudnn_attention")
def cudnn(q, k, v, bias, compute_lse, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    out, lse, seed = _forward(q, k, v, bias, dropout_p, is_causal, scale)
    return out, lse, None, None, q.shape[2], k.shape[2], _scalar(q, seed), _scalar(q, 0), _none(q)


@composite("_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(grad, q, k, v, out, lse, seed, offset, bias, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, *,
                   scale=None):  # fmt: skip
    used = bias if bias is not None and bias.numel() else None
    return _backward(grad, q, k, v, used, out, lse, seed, dropout_p, is_causal, scale)[:3]
