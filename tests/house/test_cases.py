"""Every case of the collections of faults and attacks has a test that carries the case's id.

A test carries an id in its name, in a docstring or a parameter; a CUDA program in its first comment.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
CASES = {
    *(f"GD{n}" for n in range(1, 10)),  # the doctor says OK, the program fails
    *(f"GM{n}" for n in range(1, 12)),  # repairs that harm, mislead or cannot work
    *(f"GR{n}" for n in range(1, 10)),  # the reason is shown on the wrong machine
    *(f"GP{n}" for n in range(1, 13)),  # packages, installing, service
    *(f"AT{n}" for n in range(1, 26)),  # attacks (docs/security.md)
    # Public bug reports; NR06, 11, 12, 18 and 20 were never assigned.
    *(f"NR{n:02}" for n in (1, 2, 3, 4, 5, 7, 8, 9, 10, 13, 14, 15, 16, 17, 19, 21, 22)),
}
_ID = re.compile(r"(?<![A-Z0-9])(?:AT|GD|GM|GR|GP|NR)\d+")


def _texts(path: Path) -> list[str]:
    """The texts of a file in which ids may stand."""
    text = path.read_text()
    if path.suffix == ".cu":
        return [line for line in text.split("\n\n")[0].splitlines() if line.startswith("//")]
    nodes = list(ast.walk(ast.parse(text)))
    names = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [*(name for name in names if name.startswith("test_")), *strings]


def carried() -> dict[str, list[str]]:
    """The files that carry each id."""
    found: dict[str, list[str]] = {}
    for path in sorted({*TESTS.rglob("test_*.py"), *(TESTS / "programs").glob("*.cu")} - {Path(__file__).resolve()}):
        ids = {match for text in _texts(path) for match in _ID.findall(text.upper())}
        for case in ids:
            found.setdefault(case, []).append(str(path.relative_to(TESTS)))
    return found


def controlled(text: str) -> set[str]:
    """Ids of attacks in a test file's marks `control` and in the holes of tests/mutation/test_attacks.py."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    ids: set[str] = set()
    for call in calls:
        name = ast.unparse(call.func)
        given = call.args if name == "pytest.mark.control" else call.args[:1] if name == "Hole" else []
        ids |= {case for each in given for case in _ID.findall(ast.literal_eval(each))}
    return ids


def test_each_attack_has_a_control() -> None:
    """A control is a deliberately vulnerable build, configuration or process in which the attack's test fails."""
    found = {case for path in TESTS.rglob("test_*.py") for case in controlled(path.read_text())}
    assert sorted({case for case in CASES if case.startswith("AT")} - found) == []
    assert controlled('@pytest.mark.control("AT1")\ndef test_it(): pass\nHoles = [Hole("AT2 AT3", "AT4")]') == {
        "AT1",
        "AT2",
        "AT3",
    }


def test_each_case_has_a_test() -> None:
    assert sorted(CASES - carried().keys()) == []


if __name__ == "__main__":
    for case, files in sorted(carried().items()):
        print(case, *files)
