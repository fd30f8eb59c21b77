"""Which kernel each operator gets: torch's own, the CPU's, a composite, a random one, or a refusal."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


class Answer(Enum):
    NATIVE = "native"  # torch's own CUDA kernel: host code only
    CPU = "executed on the CPU"
    COMPOSED = "composed"  # composed of other operators (composites/)
    RANDOM = "random as on the GPU"  # Philox numbers in CUDA's order
    REFUSED = "refused"


class Decision(NamedTuple):
    name: str  # namespace::name.overload
    key: str  # dispatch key
    answer: Answer


# Torch's own kernels, which are host code only: memory, metadata, streams.
NATIVE = {
    "aten::_efficientzerotensor",
    "aten::_nested_view_from_buffer",
    "aten::_pin_memory",
    "aten::_reshape_alias",
    "aten::_use_miopen_ctc_loss",
    "aten::_use_miopen_ctc_loss.Tensor",
    "aten::as_strided",
    "aten::empty.memory_format",
    "aten::empty_strided",
    "aten::is_pinned",
    "aten::is_set_to",
    "aten::record_stream",
    "aten::resize_",
    "aten::set_",
    "aten::set_.source_Storage",
    "aten::set_.source_Storage_storage_offset",
    "aten::set_.source_Tensor",
    "aten::unfold",
    "aten::view",
    "aten::view_as_complex",
    "aten::view_as_real",
}

# Operators without a CUDA kernel, whose composite implementation selects cuDNN or a device's stub.
ALSO = {
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
    "aten::convolution",
    "aten::convolution_backward",
    "aten::convolution_backward_overrideable",
    "aten::convolution_overrideable",
    "aten::copy_",
    "aten::ldexp.Tensor",
    "aten::ldexp.out",
    "aten::ldexp_",
}

# Random operators that give the numbers of a GPU (core/distribution.cc).
RANDOM = {
    "aten::_fused_dropout",
    "aten::bernoulli_.Tensor",
    "aten::bernoulli_.float",
    "aten::cauchy_",
    "aten::exponential_",
    "aten::geometric_",
    "aten::log_normal_",
    "aten::native_dropout",
    "aten::normal_",
    "aten::random_",
    "aten::random_.from",
    "aten::random_.to",
    "aten::uniform_",
}

# Operators on the metadata and parts of sparse tensors: torch's own kernels.
SPARSE_NATIVE = {
    "_coalesced_", "_dimI", "_dimV", "_indices", "_nnz", "_sparse_compressed_tensor_unsafe",
    "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "_sparse_csr_tensor_unsafe", "_values",
    "ccol_indices", "col_indices", "copy_", "copy_sparse_to_sparse_", "crow_indices", "dense_dim", "empty",
    "empty_like", "indices", "is_coalesced", "isnan", "resize_", "resize_as_sparse_", "row_indices", "select",
    "sparse_dim", "sparse_resize_", "sparse_resize_and_clear_", "unsqueeze", "values",
}  # fmt: skip

# Operators on the metadata and memory of quantised tensors: torch's own kernels.
QUANTIZED_NATIVE = {
    "_empty_affine_quantized", "_empty_per_channel_affine_quantized", "_reshape_alias", "as_strided", "empty",
    "empty_like", "empty_quantized", "empty_strided", "q_per_channel_axis", "q_per_channel_scales",
    "q_per_channel_zero_points", "q_scale", "q_zero_point", "qscheme", "set_", "squeeze", "unfold", "unsqueeze", "view",
}  # fmt: skip
# Refused: cuDNN computes these, with rules for types and scales that differ from those of the CPU's libraries.
QUANTIZED_REFUSED = ("conv", "linear")

# Communication libraries register their own kernels; their operators are host calls.
HOST_NAMESPACES = {"c10d", "_c10d_functional", "_dtensor"}
SPARSE_KEYS = ("SparseCUDA", "SparseCsrCUDA")


def decide(composites: Collection[str]) -> Iterator[Decision]:
    """Every operator that has a kernel for CUDA, and how it runs."""
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if name.split("::")[0] in HOST_NAMESPACES:
            continue
        if name in RANDOM:
            yield Decision(name, "CUDA", Answer.RANDOM)
        elif name in composites:
            yield Decision(name, "CUDA", Answer.COMPOSED)
        elif name in NATIVE:
            yield Decision(name, "CUDA", Answer.NATIVE)
        elif name in ALSO or has(name, "CUDA"):
            yield Decision(name, "CUDA", Answer.CPU if _runs_on_cpu(name) else Answer.REFUSED)
        base = name.split("::")[1].split(".")[0]
        if has(name, "QuantizedCUDA") or name == "aten::copy_":
            yield Decision(name, "QuantizedCUDA", _quantized(name))
        for key in SPARSE_KEYS:
            if has(name, key):
                native = base in SPARSE_NATIVE
                on_cpu = _runs_on_cpu(name) or has(name, key.replace("CUDA", "CPU"))
                yield Decision(name, key, Answer.NATIVE if native else Answer.CPU if on_cpu else Answer.REFUSED)


def _quantized(name: str) -> Answer:
    import torch

    namespace, base = name.split(".")[0].split("::")
    if namespace == "aten" and base in QUANTIZED_NATIVE:
        return Answer.NATIVE
    refused = namespace == "quantized" and base.startswith(QUANTIZED_REFUSED)
    on_cpu = base == "copy_" or torch._C._dispatch_has_kernel_for_dispatch_key(name, "QuantizedCPU")
    return Answer.CPU if on_cpu and not refused else Answer.REFUSED


def _runs_on_cpu(name: str) -> bool:
    import torch

    computed = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    return bool(computed(name, "CPU"))
