"""Operators that only CUDA has, composed of operators that the CPU has, too."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MODULES = ("attention", "cells", "convolution", "cudnn", "matmul", "norm", "other", "varlen")
_registered: dict[str, Callable[..., Any]] = {}


def composite(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function as the kernel of `name` (name.overload in aten)."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _registered[f"aten::{name}"] = function
        return function

    return register


def load() -> dict[str, Callable[..., Any]]:
    """Operator name to function, for all composites whose operator exists in this version of torch."""
    import torch

    for module in MODULES:
        importlib.import_module(f".{module}", __name__)
    known = set(torch._C._dispatch_get_all_op_names())
    return {name: function for name, function in _registered.items() if name in known}
