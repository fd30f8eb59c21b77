"""torch's own table of operators (op_db), on the simulated GPU against the CPU and against torch's tables for CUDA.

Differences that are allowed stand in exceptions.tsv, with their reasons. `make test` checks some operators, `make
test-ecosystem` all.
"""

import ast
import fnmatch
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torch.conftest import RunTorch

EXCEPTIONS = Path(__file__).parent / "exceptions.tsv"
FULL_TIMEOUT_S = 1800

Record = Callable[[str, object], None]  # pytest's record_property: docs/ecosystem.md shows "counts"


def exceptions(mode: str) -> list[tuple[str, str]]:
    """The patterns of operator and detail that exceptions.tsv has for `mode`."""
    rows = [line.split("\t") for line in EXCEPTIONS.read_text().splitlines() if line and not line.startswith("#")]
    assert all(len(row) == 4 and len(row[3]) > 10 for row in rows), "mode, operator, detail, reason"
    return [(row[1], row[2]) for row in rows if row[0] == mode]


def check(run_torch: RunTorch, mode: str, *arguments: str, timeout_s: float, python: Path | None = None) -> str:
    """Run op_db.py; return how many verdicts there were of each kind."""
    result = run_torch("op_db.py", mode, *arguments, timeout_s=timeout_s, python=python)
    assert result.returncode == 0, result.stderr[-3000:]
    *lines, checked = result.stdout.splitlines()
    assert checked.startswith("checked\t"), checked
    assert "'exact'" in checked
    allowed = exceptions(mode)
    unexpected = []
    for line in lines:
        operator, detail, verdict = line.split("\t")
        known = any(fnmatch.fnmatch(operator, name) and fnmatch.fnmatch(detail, d) for name, d in allowed)
        if not known and verdict != "close":
            unexpected.append(line)
    assert not unexpected, checked
    return describe(checked)


def describe(checked: str) -> str:
    """The last line of op_db.py as text: "checked", the number of operators, the number of verdicts of each kind."""
    _, operators, counts = checked.split("\t")
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(ast.literal_eval(counts).items()))
    return f"{operators}, {verdicts}".replace("other", "by exceptions.tsv")


@pytest.mark.client
@pytest.mark.parametrize(("mode", "every"), [("values", 9), ("dtypes", 30), ("errors", 8), ("devices", 2)])
def test_some_operators(run_torch: RunTorch, mode: str, every: int) -> None:
    check(run_torch, mode, "float32", "--samples", "2", "--every", str(every), timeout_s=350)


@pytest.mark.ecosystem
@pytest.mark.timeout(FULL_TIMEOUT_S)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "complex64"])
def test_all_operators_values(run_torch: RunTorch, record_property: Record, dtype: str) -> None:
    """Results and gradients; the verdict "close", within 1e-4 (bfloat16: 1.6e-2), is accepted."""
    record_property("counts", check(run_torch, "values", dtype, timeout_s=FULL_TIMEOUT_S))


@pytest.mark.ecosystem
@pytest.mark.timeout(FULL_TIMEOUT_S)
@pytest.mark.parametrize("mode", ["dtypes", "errors", "devices"])
def test_all_operators_refuse_what_cuda_refuses(run_torch: RunTorch, record_property: Record, mode: str) -> None:
    record_property("counts", check(run_torch, mode, timeout_s=FULL_TIMEOUT_S))
