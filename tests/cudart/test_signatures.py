"""The specification's signatures match the headers': number of parameters, their widths and which are pointers."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from protocol.gen import runtime as spec
from protocol.gen.load import load
from protocol.gen.model import SpecError
from tests.cudart.runtimes import MAJORS, Major

HERE = Path(__file__).parent
WIDTHS = {
    "int": 4,
    "unsigned int": 4,
    "size_t": 8,
    "uint64_t": 8,
    "unsigned long long": 8,
    "CUipcMemHandle": 64,
    "CUipcEventHandle": 64,
}
HANDLES = re.compile(
    r"CU(stream|event|graph|graphNode|graphExec|memoryPool|library|kernel|function|hostFn|streamCallback)$"
)
FEWEST = {11: 150, 12: 190, 13: 170}  # minimum number of specified functions that the header declares


def declared(include: Path) -> dict[str, list[str]]:
    """The parameter types of every function in cuda_runtime_api.h, by function name."""
    text = (include / "cuda_runtime_api.h").read_text()
    text = re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    text = re.sub(r"\s*__dv\([^)]*\)", "", text)
    found = {}
    for match in re.finditer(r"\bCUDARTAPI(?:_CDECL)?\s+(\w+)\s*\(([^;{}]*?)\)\s*;", text):
        found[match[1]] = [] if match[2].strip() == "void" else [type_of(part) for part in match[2].split(",")]
    return found


def type_of(parameter: str) -> str:
    """The type without the parameter's name, the last word: `const void *src` becomes `const void *`."""
    return re.sub(r"\w+\s*$", "", " ".join(parameter.split())).strip()


@pytest.mark.client
@pytest.mark.timeout(700)
@pytest.mark.parametrize("major", MAJORS, ids=lambda major: str(major.number))
def test_parameters_are_those_of_the_header(major: Major, tmp_path: Path) -> None:
    names = declared(major.include())
    bodies = spec.load_runtime(load()).bodies(major.number)
    lines, compared = ['#include "cuda_runtime_api.h"'], 0
    for function in bodies.values():
        name = function.name
        if name not in names:  # declared in another header, or the name of an older version
            continue
        compared += 1
        ours = [] if function.params == "void" else [type_of(part) for part in function.params.split(",")]
        theirs = names[name]
        assert len(ours) == len(theirs), f"{name}: {ours} and {theirs}"
        for i in range(len(ours)):
            if "*" in ours[i]:
                # A pointer in the specification must be a pointer in the header; the compiler checks the width below.
                lines.append(f'_Static_assert(sizeof({theirs[i]}) == 8, "{name} {i}");')
                assert "*" in theirs[i], f"{name}: {ours[i]} and {theirs[i]}"
            elif ours[i].startswith("struct "):
                assert ours[i].split()[-1] in theirs[i], f"{name}: {ours[i]} and {theirs[i]}"
            else:
                width = 8 if HANDLES.match(ours[i]) else WIDTHS[ours[i]]
                lines.append(f'_Static_assert(sizeof({theirs[i]}) == {width}, "{name} {i}");')
    assert compared >= FEWEST[major.number]
    (tmp_path / "crt").mkdir()
    shutil.copy(HERE / "vgt_host_defines.h", tmp_path / "crt/host_defines.h")
    source = tmp_path / "signatures.c"
    source.write_text("\n".join(lines) + "\n")
    command = ["cc", "-std=gnu11", "-fsyntax-only", "-w", f"-I{tmp_path}", f"-I{major.include()}", str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr[:3000]


def test_a_function_that_no_library_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_refused(
        monkeypatch, lambda: spec.custom("cudaNoSuchThing", "void"), "cudaNoSuchThing: the runtime of CUDA 11"
    )


def test_a_driver_call_without_prototype_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_refused(
        monkeypatch,
        lambda: spec.forward(
            "cudaGraphicsUnregisterResource", "void *resource", "cuGraphicsUnregisterResource(resource)"
        ),
        "cuGraphicsUnregisterResource: no prototype",
    )


def test_a_call_that_is_no_driver_function_is_refused() -> None:
    with pytest.raises(SpecError, match="calls no driver function"):
        spec.forward("cudaMalloc", "void **devPtr, size_t size", "malloc(size)")


def check_refused(monkeypatch: pytest.MonkeyPatch, entry: object, message: str) -> None:
    """Loading the specification with this additional entry must fail with `message`, which names the entry."""
    assert callable(entry)
    real = spec.importlib.import_module

    def with_one_more(name: str, package: str | None = None) -> object:
        module = real(name, package)
        if name == "protocol.spec_runtime.graph":
            entry()
        return module

    api = load()
    monkeypatch.setattr(spec.importlib, "import_module", with_one_more)
    with pytest.raises(SpecError, match=message):
        spec.load_runtime(api)
