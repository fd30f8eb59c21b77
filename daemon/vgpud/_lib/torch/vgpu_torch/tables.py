"""What CUDA's kernels check, per operator: from data that tools/make_tables.py generates for each version of torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

DATA = Path(__file__).parent / "data"

# Operators whose schema does not say that they write these arguments.
HIDDEN_WRITES = {
    "aten::native_batch_norm": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats_with_counts": ("running_mean", "running_var"),
    "aten::batch_norm_update_stats": ("running_mean", "running_var"),
    "aten::rrelu_with_noise": ("noise",),
}


class DeviceRule(IntEnum):
    """As in core/operator.h."""

    SAME = 0
    ITERATOR = 1
    INDICES = 2
    CONVOLUTION = 3
    NONE = 4


@dataclass(frozen=True)
class Rules:
    device: DeviceRule = DeviceRule.NONE
    method: str = ""
    kernel: str = ""
    refused_dtypes: int = 0  # bit per c10::ScalarType
    hidden_writes: tuple[str, ...] = field(default=())


class Tables:
    """The rules of one version of torch; generic ones where it has no data."""

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
        short = name.split("::")[1].replace(".", "_")
        row = self._rows.get(name)
        if row is None:
            generic = DeviceRule.NONE if self.is_known else DeviceRule.ITERATOR
            return Rules(generic, f"wrapper_{key}_{short}", short, 0, hidden)
        rule, method, kernel, dtypes = row
        mask = 0
        for number in dtypes.split(",") if dtypes != "-" and self._refuse_dtypes else []:
            mask |= 1 << int(number)
        return Rules(DeviceRule[rule], f"wrapper_{key}_{method}", short if kernel == "-" else kernel, mask, hidden)
