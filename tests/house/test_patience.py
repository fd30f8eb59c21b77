"""No test waits for what must happen with a time limit of its own that a busy machine could exceed."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

# Limits of one second and less are meant to expire; from a minute on only a hang reaches them.
MEANT_TO_EXPIRE_S, LONG_S = 1, 60
KEYWORDS = ("timeout", "timeout_s")
POSITIONAL = ("join", "settimeout", "timeout", "wait", "wait_for", "wait_log", "wait_until")
OTHER_MACHINES = ("gpu", "bench")


def limits(tree: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    """Each argument that may be a time limit, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield from ((node.lineno, keyword.value) for keyword in node.keywords if keyword.arg in KEYWORDS)
            if name in POSITIONAL and node.args:
                yield node.lineno, node.args[-1]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defaults = zip(reversed(node.args.args), reversed(node.args.defaults), strict=False)
            yield from ((node.lineno, value) for argument, value in defaults if argument.arg in KEYWORDS)


def too_short(path: Path) -> Iterator[str]:
    for line, value in limits(ast.parse(path.read_text())):
        number = value.value if isinstance(value, ast.Constant) else None
        if isinstance(number, int | float) and MEANT_TO_EXPIRE_S < number < LONG_S:
            yield f"{path.relative_to(ROOT)}:{line}: {number} s; tests/patience.py has PATIENCE_S"


def test_waits_have_patience() -> None:
    tests = ROOT / "tests"
    paths = [path for path in tests.rglob("*.py") if path.relative_to(tests).parts[0] not in OTHER_MACHINES]
    assert [found for path in sorted(paths) for found in too_short(path)] == []


def test_a_short_limit_is_found() -> None:
    text = (
        "def run(timeout_s=30): ...\nthread.join(20)\nrun([], timeout=5)\nrun([], timeout=0.5)\nwait_until(done, 100)"
    )
    assert [line for line, value in limits(ast.parse(text)) if isinstance(value, ast.Constant)] == [1, 2, 3, 4, 5]
