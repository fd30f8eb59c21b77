"""Generate vgpu_torch/data/operators-<minor>.tsv: what CUDA's kernels check, from tables that ship in torch's wheel.

Run with the Python that has that torch: `python pytorch/tools/make_tables.py [--dtypes FILE]`. Sources:
- torchgen/packaged/ATen/native/native_functions.yaml: which wrappers check devices, and what they call themselves.
- --dtypes: what tools/find_dtypes.py found: dtypes that CUDA's kernels lack.
Columns: operator, device rule, method, kernel's name in errors about dtypes, refused dtypes (c10::ScalarType numbers).
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import torch
import torchgen
from torchgen.api import dispatcher, native
from torchgen.gen import parse_native_yaml
from torchgen.model import DeviceCheckType, NativeFunction

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vgpu_torch.policy import ALSO, SPARSE_KEYS

PACKAGED = Path(torchgen.__file__).parent / "packaged/ATen/native"
DATA = Path(__file__).resolve().parents[1] / "vgpu_torch/data"
# Operators whose indexing kernels check devices themselves (ATen/native/cuda/Indexing.cu).
INDICES = {
    "index.Tensor", "index.Tensor_out", "_index_put_impl_", "index_put_", "index_put", "_unsafe_index.Tensor",
    "_unsafe_index_put",
}  # fmt: skip
# Names of CUDA's kernels in their errors about dtypes (ATen/native/cuda).
KERNELS = {
    "addbmm": "baddbmm_cuda", "addmm": "addmm_cuda", "addmv": "addmv_impl_cuda", "addmv_": "addmv_impl_cuda",
    "baddbmm": "baddbmm_cuda", "bmm": "baddbmm_cuda", "mm": "addmm_cuda", "histc": "histc",
    "angle": "angle_cuda", "angle.out": "angle_cuda", "polar.out": "polar_cuda",
    "sparse_sampled_addmm": "sampled_addmm_out_sparse_csr",
    "sparse_sampled_addmm.out": "sampled_addmm_out_sparse_csr",
    "max_pool2d_with_indices": "max_pool2d_with_indices_out_cuda_frame", "avg_pool2d": "avg_pool2d_out_cuda_frame",
    "upsample_bilinear2d": "upsample_bilinear2d_out_frame", "upsample_bicubic2d": "upsample_bicubic2d_out_frame",
}  # fmt: skip
# Refused dtypes that find_dtypes.py misses, because few samples of op_db use these integer dtypes.
REFUSED_TOO = {
    "aten::convolution": {0, 1, 2, 3, 4, 11},
    "aten::upsample_bicubic2d": {0},
    "aten::upsample_bilinear2d": {0},
}
# Dtypes that CUDA's kernels have since torch 2.14 (cholesky: removed there).
REFUSED_BEFORE_2_14 = {
    "aten::angle": {5, 15}, "aten::cholesky": {5, 15}, "aten::polar": {5}, "aten::sparse_sampled_addmm": {5, 15},
}  # fmt: skip
# Operators without a CUDA kernel of their own, in which TensorIterator checks devices.
ITERATORS_TOO = {"ldexp.Tensor", "ldexp.out", "ldexp_"}
ITERATOR_COMMENT = re.compile(r"device_check: NoCheck\s*# TensorIterator")


def functions() -> list[NativeFunction]:
    return parse_native_yaml(PACKAGED / "native_functions.yaml", PACKAGED / "tags.yaml").native_functions


def iterator_operators() -> set[str]:
    """Operators for which TensorIterator, not the wrapper, checks devices: by a comment in the entry, or inherited."""
    structured = {str(f.func.name) for f in functions() if f.structured_inherits == "TensorIteratorBase"}
    delegates = {str(f.func.name) for f in functions() if str(f.structured_delegate) in structured}
    found, current = structured | delegates | ITERATORS_TOO, ""
    for line in (PACKAGED / "native_functions.yaml").read_text().splitlines():
        if line.startswith("- func: "):
            current = line.removeprefix("- func: ").partition("(")[0]
        elif ITERATOR_COMMENT.search(line):
            found.add(current)
    return found


def method(function: NativeFunction) -> str:
    """The name of the generated wrapper for a dispatch key, without the prefix `wrapper_<key>_`."""
    if function.structured or function.structured_delegate is not None:
        return native.name(function.func)
    return f"{function.func.name.overload_name}_{dispatcher.name(function.func)}"


def kernel_owner(function: NativeFunction) -> str:
    """The functional operator whose kernel an operator uses: `add_` and `add.out` use that of `add`."""
    overload = function.func.name.overload_name
    base = function.func.name.name.base
    return f"aten::{base}" if overload in ("", "out") else f"aten::{function.func.name}"


def has_cuda_kernel(name: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return name in ALSO or any(has(name, key) for key in ("CUDA", *SPARSE_KEYS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", type=Path, help="lines `operator<TAB>numbers`")
    options = parser.parse_args()
    refused = {name: set(numbers) for name, numbers in REFUSED_TOO.items()}
    for line in options.dtypes.read_text().splitlines() if options.dtypes is not None else []:
        name, tab, numbers = line.partition("\t")
        if tab and not line.startswith("#"):
            refused.setdefault(name, set()).update(map(int, numbers.split(",")))
    minor = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    if minor in ("2.11", "2.12", "2.13"):
        for name, numbers in REFUSED_BEFORE_2_14.items():
            refused.setdefault(name, set()).update(numbers)
    iterators = iterator_operators()
    rows = [f"# Generated by tools/make_tables.py from torch {torch.__version__}; do not edit."]
    for function in sorted(functions(), key=lambda f: str(f.func.name)):
        name = str(function.func.name)
        if not has_cuda_kernel(f"aten::{name}"):
            continue
        if name in INDICES:
            rule = "INDICES"
        elif name == "convolution":
            rule = "CONVOLUTION"
        elif name.startswith("masked_fill_."):
            rule = "MASKED_FILL"
        elif function.device_check is DeviceCheckType.NoCheck or name in ITERATORS_TOO:
            rule = "ITERATOR" if name in iterators else "NONE"
        else:
            rule = "SAME"
        numbers = ",".join(map(str, sorted(refused.get(kernel_owner(function), ())))) or "-"
        kernel = KERNELS.get(name, "-")
        rows.append("\t".join((f"aten::{name}", rule, method(function), kernel, numbers)))
    DATA.mkdir(exist_ok=True)
    (DATA / f"operators-{minor}.tsv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
