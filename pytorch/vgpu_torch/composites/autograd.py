"""Differentiation inside a kernel: kernels run below autograd, which must therefore be enabled again in the thread."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEYS = ("AutogradCUDA", "AutogradFunctionality", "ADInplaceOrView")


@contextmanager
def above_autograd() -> Iterator[None]:
    """Record operators for torch.autograd.grad; enable_grad() alone leaves the autograd dispatch keys excluded."""
    keys = [getattr(torch._C.DispatchKey, name) for name in _KEYS if hasattr(torch._C.DispatchKey, name)]
    before = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in keys]
    for key in keys:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        with torch.enable_grad():
            yield
    finally:
        for key, excluded in zip(keys, before, strict=True):
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, excluded)


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf tensor with the same values, for which a gradient can be computed."""
    return tensor.detach().requires_grad_()
