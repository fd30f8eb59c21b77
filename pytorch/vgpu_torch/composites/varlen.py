"""Attention over sequences of different lengths, packed one after another: flash, memory-efficient, cuDNN's.

Each sequence is computed step by step, half precision in single precision; the backward pass recomputes it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch

from . import composite
from .autograd import above_autograd, leaf

UPPER_LEFT, LOWER_RIGHT = 1, 2  # custom_mask_type: which corner of the scores the diagonal starts from
LSE_ALIGNMENT = 32  # memory-efficient attention pads rows of the log-sum-exp to a multiple
HALF = (torch.half, torch.bfloat16)


class Rule(NamedTuple):
    """Which keys a query attends to, and how scores become weights."""

    scale: float | None
    causal: int = 0  # 0 (not causal), UPPER_LEFT or LOWER_RIGHT
    left: int = -1  # number of visible keys before the diagonal; -1: all
    right: int = -1
    dropout_p: float = 0.0
    seed: int = 0

    def visible(self, n_queries: int, n_keys: int, device: torch.device) -> Any:
        start = 0 if self.causal == UPPER_LEFT else n_keys - n_queries
        distance = torch.arange(n_keys, device=device) - torch.arange(n_queries, device=device).unsqueeze(1) - start
        right = 0 if self.causal else self.right
        seen = torch.ones_like(distance, dtype=torch.bool)
        if right >= 0:
            seen = seen & (distance <= right)
        if self.left >= 0:
            seen = seen & (distance >= -self.left)
        return seen


def _attend(q, k, v, bias, rule, generator):
    """Output (length, heads, width) and log-sum-exp (heads, length) of one sequence (length, heads, width)."""
    dtype, repeat = torch.float32 if q.dtype in HALF else q.dtype, q.shape[1] // k.shape[1]
    qs, ks, vs = (t.to(dtype).transpose(0, 1) for t in (q, k, v))
    if repeat > 1:  # grouped queries
        ks, vs = ks.repeat_interleave(repeat, 0), vs.repeat_interleave(repeat, 0)
    scores = qs @ ks.transpose(1, 2) * (q.shape[-1] ** -0.5 if rule.scale is None else rule.scale)
    if bias is not None:
        scores = scores + bias.to(dtype)
    seen = rule.visible(q.shape[0], k.shape[0], q.device)
    blind = ~seen.any(-1)  # queries without a visible key: output zero, log-sum-exp infinite
    scores = scores.masked_fill(~(seen | blind.unsqueeze(-1)), float("-inf"))
    weights = scores.softmax(-1).masked_fill(blind.unsqueeze(-1), 0.0)
    if rule.dropout_p > 0:
        kept = torch.rand(weights.shape, generator=generator) >= rule.dropout_p
        weights = weights * kept.to(q.device, dtype) / (1 - rule.dropout_p)
    lse = scores.logsumexp(-1).masked_fill(blind, float("inf"))
    return (weights @ vs).transpose(0, 1).to(q.dtype), lse


def _ranges(ends, count, length):
    """Begin and end of each sequence: by `ends` if packed, else of a batch of sequences of the same length."""
    if ends is None:
        return [(i * length, (i + 1) * length) for i in range(count)]
    numbers = ends.tolist()
    return list(pairwise(numbers))


def _all(q, k, v, bias, cum_q, cum_k, rule, used_k=None):
    """Attention of all sequences, (batch, length, heads, width) or packed. Returns packed outputs and log-sum-exps."""
    batch = q.shape[0] if q.dim() == 4 else 1
    qs, ks, vs = (t.flatten(0, -3) for t in (q, k, v))
    queries = _ranges(cum_q, batch, q.shape[-3])
    keys = _ranges(cum_q if cum_k is None else cum_k, batch, k.shape[-3])
    used = used_k.tolist() if used_k is not None else None
    generator = torch.Generator()
    generator.manual_seed(rule.seed)
    outs, lses = [], []
    for i, ((q0, q1), (k0, k1)) in enumerate(zip(queries, keys, strict=True)):
        end = k1 if used is None else k0 + used[i]
        one_bias = None if bias is None else bias.expand(len(queries), *bias.shape[1:])[i, :, : q1 - q0, : end - k0]
        out, lse = _attend(qs[q0:q1], ks[k0:end], vs[k0:end], one_bias, rule, generator)
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs).reshape(*q.shape[:-1], v.shape[-1]), lses


def _gradients(grad, q, k, v, bias, cum_q, cum_k, rule, need_bias=False):
    with above_autograd():
        inputs = [leaf(tensor) for tensor in (q, k, v)] + ([leaf(bias)] if need_bias else [])
        out, _ = _all(*inputs[:3], inputs[3] if need_bias else bias, cum_q, cum_k, rule)
        return torch.autograd.grad(out, inputs, grad)


def _seed(q, dropout_p):
    return int(torch.randint(1 << 31, (1,), device=q.device)) if dropout_p > 0 else 0


def _require(dtypes, q, name):
    if q.dtype not in dtypes:
        raise RuntimeError(f"{name} only support fp16 and bf16 data type")


def _refuse(name, **options):
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise NotImplementedError(f"vgpu: aten::{name} with {', '.join(given)} is not simulated (docs/pytorch.md)")


def _flash_rule(scale, is_causal, left, right, dropout_p, seed):
    sides = (-1 if side is None else int(side) for side in (left, right))
    return Rule(scale, LOWER_RIGHT if is_causal else 0, *sides, dropout_p, seed)


def _flash(name, q, k, v, cum_q, cum_k, dropout_p, is_causal, scale, left, right, seqused_k, refused):
    _require(HALF, q, "FlashAttention")
    _refuse(name, **refused)
    seed = _seed(q, dropout_p)
    rule = _flash_rule(scale, is_causal, left, right, dropout_p, seed)
    out, lses = _all(q, k, v, None, cum_q, cum_k, rule, seqused_k)
    return out, torch.stack(lses) if cum_q is None else torch.cat(lses, -1), seed


@composite("_flash_attention_forward")
def flash_forward(q, k, v, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *, scale=None,
                  window_size_left=None, window_size_right=None, seqused_k=None, num_splits=None,
                  **refused):  # fmt: skip
    out, lse, seed = _flash("_flash_attention_forward", q, k, v, cum_q, cum_k, dropout_p, is_causal, scale,
                            window_size_left, window_size_right, seqused_k, refused)  # fmt: skip
    state = torch.tensor([seed, 0], dtype=torch.int64, device=q.device).view(torch.uint64)
    return out, lse, state, q.new_empty((), dtype=torch.uint64), q.new_empty(0)


@composite("_flash_attention_forward_no_dropout_inplace")
def flash_forward_into(out, q, k, v, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *,
                       scale=None, window_size_left=None, window_size_right=None, seqused_k=None, num_splits=None,
                       **refused):  # fmt: skip
    result, lse, _ = _flash("_flash_attention_forward_no_dropout_inplace", q, k, v, cum_q, cum_k, 0.0, is_causal, scale,
                            window_size_left, window_size_right, seqused_k, refused)  # fmt: skip
    out.copy_(result)
    return lse


@composite("_flash_attention_backward")
def flash_backward(grad, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, state, unused, *,
                   scale=None, window_size_left=None, window_size_right=None):  # fmt: skip
    seed = int(state.view(torch.int64)[0]) if dropout_p > 0 else 0
    rule = _flash_rule(scale, is_causal, window_size_left, window_size_right, dropout_p, seed)
    return _gradients(grad, q, k, v, None, cum_q, cum_k, rule)


def _efficient_rule(scale, mask_type, window_size, dropout_p, seed):
    left = -1 if window_size is None else window_size - 1
    return Rule(scale, mask_type, left, -1, dropout_p, seed)


@composite("_efficient_attention_forward")
def efficient_forward(q, k, v, bias, cum_q, cum_k, max_q, max_k, dropout_p, custom_mask_type, compute_log_sumexp=False,
                      *, scale=None, seqlen_k=None, window_size=None):  # fmt: skip
    _require((*HALF, torch.float32), q, "Efficient attention")
    _refuse("_efficient_attention_forward", seqlen_k=seqlen_k)
    seed = _seed(q, dropout_p)
    rule = _efficient_rule(scale, custom_mask_type, window_size, dropout_p, seed)
    out, lses = _all(q, k, v, bias, cum_q, cum_k, rule)
    longest_q = max(lse.shape[-1] for lse in lses)
    longest_k = k.shape[1] if cum_k is None else int(max_k)
    width = -(-longest_q // LSE_ALIGNMENT) * LSE_ALIGNMENT if compute_log_sumexp else 0
    padded = torch.full((len(lses), q.shape[2], width), float("inf"), device=q.device)
    for i, lse in enumerate(lses if compute_log_sumexp else []):
        padded[i, :, : lse.shape[-1]] = lse
    scalars = (torch.tensor(number, device=q.device) for number in (seed, 0))
    return out, padded, *scalars, longest_q, longest_k


@composite("_efficient_attention_backward")
def efficient_backward(grad, q, k, v, bias, out, cum_q, cum_k, max_q, max_k, lse, dropout_p, seed, offset,
                       custom_mask_type, bias_requires_grad, *, scale=None, num_splits_key=None, window_size=None,
                       shared_storage_dqdkdv=False):  # fmt: skip
    rule = _efficient_rule(scale, custom_mask_type, window_size, dropout_p, int(seed) if dropout_p > 0 else 0)
    need_bias = bias_requires_grad and bias is not None
    grads = _gradients(grad, q, k, v, bias, cum_q, cum_k, rule, need_bias)
    return grads if need_bias else (*grads, q.new_empty(0))


# cuDNN's, used by torch.nn.attention.varlen from 129 queries on; its log-sum-exp has the shape of torch's fake kernel.
@composite("_cudnn_attention_forward")
def cudnn_forward(q, k, v, attn_bias, cum_q, cum_k, max_q, max_k, compute_log_sumexp, dropout_p=0.0, is_causal=False,
                  return_debug_mask=False, *, scale=None, seqused_k=None, block_table=None):  # fmt: skip
    refused = {"attn_bias": attn_bias, "block_table": block_table}
    out, lse, seed = _flash("_cudnn_attention_forward", q, k, v, cum_q, cum_k, dropout_p, is_causal, scale, None, None,
                            seqused_k, refused)  # fmt: skip
    scalars = (torch.tensor(number, device=q.device) for number in (seed, 0))
    return out, lse, cum_q, cum_k, max_q, max_k, *scalars, q.new_empty(0)


@composite("_cudnn_attention_backward")
def cudnn_backward(grad, q, k, v, out, lse, seed, offset, attn_bias, cum_q, cum_k, max_q, max_k, dropout_p, is_causal,
                   *, scale=None):  # fmt: skip
    rule = _flash_rule(scale, is_causal, None, None, dropout_p, int(seed) if dropout_p > 0 else 0)
    return _gradients(grad, q, k, v, None, cum_q, cum_k, rule)
