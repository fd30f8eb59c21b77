"""The checks of CUDA's kernels, per operator: from data that tools/make_tables.py generates for each version of
torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

DATA = Path(__file__).parent / "data"

# Arguments that operators write although their schemas do not say so.
HIDDEN_WRITES = {
    "aten::native_batch_norm": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats_with_counts": ("running_mean", "running_var"),
    "aten::batch_norm_update_stats": ("running_mean", "running_var"),
    "aten::rrelu_with_noise": ("noise",),
}


# Kernels that torch.use_deterministic_algorithms refuses. Key: an operator, or its name without overload. Value: the
# kernel's name in the error, and when it is refused: "" always, "floating" for a first tensor of a floating point type,
# "ARGUMENT" if it is given and not 0, "ARGUMENT=NUMBER". From the tests and the documentation of torch 2.14.
NONDETERMINISTIC = {
    "_adaptive_avg_pool2d_backward": ("adaptive_avg_pool2d_backward_cuda", ""),
    "_adaptive_avg_pool3d_backward": ("adaptive_avg_pool3d_backward_cuda", ""),
    "_ctc_loss_backward": ("ctc_loss_backward_gpu", ""),
    "_embedding_bag_dense_backward": ("embedding_bag_backward_cuda_max", "mode=2"),
    "adaptive_avg_pool3d_backward": ("adaptive_avg_pool3d_backward_out_cuda", ""),
    "adaptive_max_pool2d_backward": ("adaptive_max_pool2d_backward_cuda", ""),
    "avg_pool3d_backward": ("avg_pool3d_backward_cuda", ""),
    "bincount": ("_bincount_cuda", "weights"),
    "fractional_max_pool2d_backward": ("fractional_max_pool2d_backward_cuda", ""),
    "fractional_max_pool3d_backward": ("fractional_max_pool3d_backward_cuda", ""),
    "grid_sampler_2d_backward": ("grid_sampler_2d_backward_cuda", ""),
    "grid_sampler_3d_backward": ("grid_sampler_3d_backward_cuda", ""),
    "histc": ("_histc_cuda with floating point input", "floating"),
    "kthvalue": ("kthvalue CUDA", ""),
    "max_pool3d_with_indices_backward": ("max_pool3d_with_indices_backward_cuda", ""),
    "max_unpool2d": ("max_unpooling2d_forward_out", ""),
    "max_unpool3d": ("max_unpooling3d_forward_out", ""),
    "median.dim_values": ("median CUDA with indices output", ""),
    "nanmedian.dim_values": ("median CUDA with indices output", ""),
    "nll_loss2d_forward": ("nll_loss2d_forward_out_cuda_template", "reduction"),
    "put_": ("put_", ""),
    "reflection_pad1d_backward": ("reflection_pad1d_backward_out_cuda", ""),
    "reflection_pad2d_backward": ("reflection_pad2d_backward_cuda", ""),
    "reflection_pad3d_backward": ("reflection_pad3d_backward_out_cuda", ""),
    "replication_pad1d_backward": ("replication_pad1d_backward_cuda", ""),
    "replication_pad2d_backward": ("replication_pad2d_backward_cuda", ""),
    "replication_pad3d_backward": ("replication_pad3d_backward_cuda", ""),
    "upsample_bicubic2d_backward": ("upsample_bicubic2d_backward_out_cuda", ""),
    "upsample_bilinear2d_backward": ("upsample_bilinear2d_backward_out_cuda", ""),
    "upsample_linear1d_backward": ("upsample_linear1d_backward_out_cuda", ""),
    "upsample_trilinear3d_backward": ("upsample_trilinear3d_backward_out_cuda", ""),
}


class DeviceRule(IntEnum):
    """The values of DeviceRule in core/operator.h."""

    SAME = 0
    ITERATOR = 1
    INDICES = 2
    CONVOLUTION = 3
    MASKED_FILL = 4
    NONE = 5


@dataclass(frozen=True)
class Rules:
    device: DeviceRule = DeviceRule.NONE
    method: str = ""
    kernel: str = ""
    refused_dtypes: int = 0  # bit per c10::ScalarType
    hidden_writes: tuple[str, ...] = field(default=())
    alert: str = ""  # a nondeterministic kernel's name in the error
    alert_when: str = ""


class Tables:
    """The rules for one version of torch; generic rules for versions without a data file."""

    def __init__(self, version: str, refuse_dtypes: bool = True) -> None:
        self.minor = ".".join(version.split("+")[0].split(".")[:2])
        self.file = DATA / f"operators-{self.minor}.tsv"
        self.is_known = self.file.exists()
        self._refuse_dtypes = refuse_dtypes
        self._rows: dict[str, list[str]] = {}
        if self.is_known:
            lines = [line for line in self.file.read_text().splitlines() if not line.startswith("#")]
            self._rows = {row[0]: row[1:] for row in (line.split("\t") for line in lines)}

    def rules(self, name: str, key: str) -> Rules:
        hidden = HIDDEN_WRITES.get(name, ())
        overload = name.removeprefix("aten::")
        alert = NONDETERMINISTIC.get(overload) or NONDETERMINISTIC.get(overload.split(".")[0]) or ("", "")
        short = name.split("::")[1].replace(".", "_")
        row = self._rows.get(name)
        if row is None:
            generic = DeviceRule.NONE if self.is_known else DeviceRule.ITERATOR
            return Rules(generic, f"wrapper_{key}_{short}", short, 0, hidden, *alert)
        rule, method, kernel, dtypes = row
        mask = 0
        asked = self._refuse_dtypes and (
            key == "CUDA" or name.startswith("aten::sparse_")
        )  # other kernels: as the CPU's
        for number in dtypes.split(",") if dtypes != "-" and asked else []:
            mask |= 1 << int(number)
        called = short if kernel == "-" else kernel
        return Rules(DeviceRule[rule], f"wrapper_{key}_{method}", called, mask, hidden, *alert)
