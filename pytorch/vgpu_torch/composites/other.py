"""Fused dropout."""

from __future__ import annotations

import torch

from . import composite


@composite("_fused_dropout")
def fused_dropout(x, p, generator=None):
    """Here `p` is the probability that an element is kept."""
    mask = torch.empty_like(x, dtype=torch.uint8).bernoulli_(p, generator=generator)
    return x * mask / p, mask


@composite("_masked_scale")
def masked_scale(x, mask, scale):
    return x * mask.to(x.dtype) * scale
