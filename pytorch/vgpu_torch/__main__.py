"""`python -m vgpu_torch [--json] [PATTERN ...]`: how each operator runs on a simulated GPU; no GPU is needed."""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from collections import Counter

os.environ["VGPU_TORCH"] = "0"  # do not replace kernels in this process


def main(patterns: list[str], *, as_json: bool = False) -> int:
    try:
        import torch
    except ImportError as error:
        print(f"vgpu torch: {sys.executable} cannot import torch: {error}", file=sys.stderr)
        return 1
    if torch.version.cuda is None:
        print(f"vgpu torch: torch {torch.__version__} is built without CUDA", file=sys.stderr)
        return 1
    from . import composites
    from .policy import decide
    from .tables import Tables

    tables = Tables(torch.__version__)
    counts: Counter[str] = Counter()
    rows: list[dict[str, object]] = []
    for decision in decide(composites.load()):
        name = decision.name.removeprefix("aten::")
        if patterns and not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            continue
        rules = tables.rules(decision.name, decision.key)
        refused = [str(dtype) for dtype in _dtypes() if rules.refused_dtypes >> _dtypes()[dtype] & 1]
        counts[decision.answer.value] += 1
        if as_json:
            row = {"operator": name, "key": decision.key, "answer": decision.answer.value, "refused_dtypes": refused}
            rows.append(row)
            continue
        note = f"not for {', '.join(refused)}" if refused else ""
        print(f"{name}\t{decision.key}\t{decision.answer.value}\t{note}".expandtabs(48).rstrip())
    if as_json:
        print(json.dumps({"torch": torch.__version__, "is_known": tables.is_known, "operators": rows}, indent=2))
        return 0
    known = "its rules are known" if tables.is_known else "unknown: generic rules, dtypes are not checked"
    print(f"torch {torch.__version__} ({known}): " + ", ".join(f"{n} {answer}" for answer, n in counts.most_common()))
    return 0


def _dtypes() -> dict[str, int]:
    """Dtype names and their numbers in c10::ScalarType."""
    names = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
             "complex128", "bool")  # fmt: skip
    return {name: number for number, name in enumerate(names)} | {"bfloat16": 15, "float8_e4m3fn": 24}


if __name__ == "__main__":
    sys.exit(main([word for word in sys.argv[1:] if word != "--json"], as_json="--json" in sys.argv[1:]))
