"""Find the dtypes that the CPU's kernels support and CUDA's do not, from torch's own tables (op_db's dtypesIfCUDA).

`VGPU_TORCH_DTYPES=0 vgpu run -- python find_dtypes.py OUT`: every operator of op_db runs on the simulated device with
every dtype, and the core records which ATen operators were used. A pair (ATen operator, dtype) is good if it occurs in
an operator of op_db for which CUDA supports the dtype. If CUDA does not support a dtype that the CPU supports (or that
the core widens), a pair that is not good explains it if its ATen operator has the same name or is a matrix product.
OUT has lines `operator TAB numbers` for make_tables.py; the unexplained cases are comments.
"""

from __future__ import annotations

import itertools
import random
import signal
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch.testing._internal.common_dtype import all_types_and_complex_and
from torch.testing._internal.common_methods_invocations import op_db
from vgpu_torch.install import _state

DTYPES = sorted(all_types_and_complex_and(torch.bool, torch.half, torch.bfloat16), key=str)
WIDENED = (torch.half, torch.bfloat16)
PRODUCTS = {"addbmm", "addmm", "addmv", "baddbmm", "bmm", "convolution", "dot", "mm", "mv", "vdot"}
GOOD_SAMPLES, BAD_SAMPLES, SAMPLE_TIMEOUT_S = 12, 2, 20


class TimedOut(Exception):
    pass


def on_alarm(*_: object) -> None:
    raise TimedOut


def run(op, dtype, samples):
    """Yield the ATen operators that the samples of an operator use, with dtypes."""
    core, ran = _state["core"], False
    for make in (torch.manual_seed, np.random.seed, random.seed):
        make(0)
    signal.alarm(SAMPLE_TIMEOUT_S)
    try:
        for sample in itertools.islice(op.sample_inputs("cuda", dtype), samples):
            core.traced()
            core.trace(True)
            try:
                op(sample.input, *sample.args, **sample.kwargs)
                ran = True
            except TimedOut:
                raise
            except Exception:
                core.traced()
                continue
            finally:
                core.trace(False)
            yield from core.traced()
            if samples == BAD_SAMPLES and ran:
                return
    except Exception:  # there are no samples of this dtype, or they take too long
        return
    finally:
        signal.alarm(0)


def base_name(name: str) -> str:
    """An operator's name without namespace, overload and the suffixes of implementations."""
    base = name.split("::")[1].split(".")[0].strip("_")
    for suffix in ("_ex", "_with_indices", "_forward"):
        base = base.removesuffix(suffix)
    return base


def main() -> None:
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGALRM, on_alarm)
    torch.ones(1, device="cuda")
    good: set[tuple[str, str]] = set()
    bad = []
    for op in op_db:
        supported = op.dtypesIfCUDA if op.dtypesIfCUDA is not None else op.dtypes
        for dtype in DTYPES:
            if dtype in supported:
                good.update(run(op, dtype, GOOD_SAMPLES))
            elif dtype in op.dtypes or dtype in WIDENED:
                taken = list(dict.fromkeys(run(op, dtype, BAD_SAMPLES)))
                if taken:
                    bad.append((op, dtype, taken))
        print(op.name, op.variant_test_name, file=sys.stderr, flush=True)
    refused: dict[str, set[int]] = defaultdict(set)
    unexplained = []
    for op, dtype, taken in bad:
        candidates = [pair for pair in taken if pair not in good and pair[1] != "-"]
        names = {op.name.split(".")[-1], op.name.replace(".", "_"), op.aten_name.strip("_"), *PRODUCTS}
        named = [pair for pair in candidates if base_name(pair[0]) in names]
        if named:
            name, number = named[0]
            refused[name].add(int(number))
        else:
            pairs = " ".join(f"{n}:{d}" for n, d in candidates[:6])
            unexplained.append(f"# {op.name} {op.variant_test_name} {dtype}: {pairs}")
    lines = [f"{name}\t{','.join(map(str, sorted(numbers)))}" for name, numbers in sorted(refused.items())]
    Path(sys.argv[1]).write_text("\n".join([*lines, *unexplained]) + "\n")


if __name__ == "__main__":
    main()
