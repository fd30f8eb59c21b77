"""Compare the record layouts, callback ids and results that libcupti is generated from with NVIDIA's headers."""

import re
import subprocess
from pathlib import Path

import pytest

from protocol.gen.cupti import DRIVER, RUNTIME, callback_ids, exports, records, results
from tests.pypi import SITE, environment

# Names of the written records' structs in the headers of CUPTI 12.9 and 13.5.
NAMES = {
    12: {"Kernel": "Kernel9", "Memcpy": "Memcpy6", "Memset": "Memset4", "MemcpyPtoP": "MemcpyPtoP4",
         "Overhead": "Overhead3", "Synchronization": "Synchronization2", "MemoryOperation": "Memory4",
         "MemoryPool": "MemoryPool2", "CudaEvent": "CudaEvent2", "GraphTrace": "GraphTrace2"},
    13: {"Kernel": "Kernel13", "Memcpy": "Memcpy7", "Memset": "Memset5", "MemcpyPtoP": "MemcpyPtoP4",
         "Overhead": "Overhead3", "Synchronization": "Synchronization2", "MemoryOperation": "Memory4",
         "MemoryPool": "MemoryPool3", "CudaEvent": "CudaEvent3", "GraphTrace": "GraphTrace2"},
}  # fmt: skip
PACKAGES = {
    12: ("nvidia-cuda-cupti-cu12==12.9.79", "nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cuda-crt==13.5.*"),
    13: ("nvidia-cuda-cupti==13.5.25", "nvidia-cuda-runtime==13.5.*", "nvidia-cuda-crt==13.5.*"),
}


def folders(major: int) -> list[Path]:
    site = environment(*PACKAGES[major], with_dependencies=False) / SITE
    return sorted(site.glob("nvidia/*/include"))


def header(major: int, name: str) -> str:
    return next(folder / name for folder in folders(major) if (folder / name).exists()).read_text()


@pytest.mark.parametrize("major", [12, 13])
def test_layouts(major: int, tmp_path: Path) -> None:
    source = "#include <stddef.h>\n#include <cuda.h>\n#include <cupti_activity.h>\n"
    for record in records(major):
        name = f"CUpti_Activity{NAMES[major].get(record.name, record.name)}"
        source += f'_Static_assert(sizeof({name}) == {record.nbytes}, "{name}");\n'
        for field in record.fields:
            place = f"offsetof({name}, {field.name}) == {field.offset} && sizeof((({name} *)0)->{field.name})"
            source += f'_Static_assert({place} == {field.nbytes}, "{name}.{field.name}");\n'
    (tmp_path / "layouts.c").write_text(source)
    includes = [f"-I{folder}" for folder in folders(major)]
    subprocess.run(["cc", "-fsyntax-only", *includes, tmp_path / "layouts.c"], check=True)


@pytest.mark.parametrize("major", [12, 13])
@pytest.mark.parametrize(("domain", "stem"), [(DRIVER, "driver"), (RUNTIME, "runtime")])
def test_callback_ids(major: int, domain: str, stem: str) -> None:
    """A callback id never changes: programs built with either header mean the same function by it."""
    text = header(major, f"cupti_{stem}_cbid.h")
    theirs = dict(re.findall(rf"CUPTI_{stem.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text))
    ours = callback_ids(domain)
    common = ours.keys() & theirs.keys()
    assert len(common) > 300
    assert {name: ours[name] for name in common} == {name: int(theirs[name]) for name in common}


@pytest.mark.parametrize("major", [12, 13])
def test_results_and_exports(major: int) -> None:
    rows = re.findall(r"(CUPTI_\w+)\s*=\s*(\d+)\b", header(major, "cupti_result.h"))
    theirs = {(int(number), name) for name, number in rows}
    assert theirs <= set(results())
    site = environment(*PACKAGES[major], with_dependencies=False) / SITE
    library = next(site.glob(f"nvidia/*/lib/libcupti.so.{major}"))
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    symbols = [line.split() for line in listing.splitlines()]
    assert {row[2].split("@")[0] for row in symbols if len(row) > 2 and row[1] == "T"} == set(exports(major))
